//go:build ignore

/* Which rows a process gives llama.cpp, and how long it computes them: programs at the entry of functions of its
 * library, and at their return. A llama_batch is read when it is decoded. A llama_batch_ext, whose insides are not
 * public, is followed as the process fills it: a row is there when its position is set, which every row needs. */
#include "target.h"
#include "calls.h"

#define MAX_ROWS 65536

/* Counters, per processor. resource/process/calls_linux.go knows the order. */
enum {
	LOST_RING,    /* the ring buffer was full */
	UNREADABLE,   /* memory of the process that is not there */
	HITS,         /* of all programs: each costs the process a trap */
	COUNTERS,
};

/* The registers at the entry of a function, as the kernel hands them over. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#define FIRST(r) ((r)->di)
#define SECOND(r) ((r)->si)
#define THIRD(r) ((r)->dx)
#define FIFTH(r) ((r)->r8)
#define RESULT(r) ((r)->ax)
#define STRUCTURE(r) ((r)->sp + 8) /* a structure of more than two words lies on the stack, above the return address */
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 regs[31], sp, pc, pstate;
};
#define FIRST(r) ((r)->regs[0])
#define SECOND(r) ((r)->regs[1])
#define THIRD(r) ((r)->regs[2])
#define FIFTH(r) ((r)->regs[4])
#define RESULT(r) ((r)->regs[0])
#define STRUCTURE(r) ((r)->regs[1]) /* the caller passes the address of a copy */
#endif

/* llama_batch, of llama.h. */
struct llama_batch {
	__s32 n_tokens, zero;
	__u64 token, embd, pos, n_seq_id, seq_id, logits;
};

/* The rows of a batch so far. */
struct batch {
	__s32 seq; /* of the row that was added last */
	__u32 rows, outputs, beyond, runs_n;
	struct call_run runs[CALL_RUNS];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64); /* address */
	__type(value, struct batch);
} batches SEC(".maps");

/* Threads within a call: llama.cpp's functions call one another. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} depths SEC(".maps");

static const struct batch no_rows;

static __always_inline void count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&counters, &which);

	if (n)
		*n += 1;
}

static __always_inline bool watched(void)
{
	count(HITS);
	return target_has_pid(bpf_get_current_pid_tgid() >> 32);
}

static __always_inline struct batch *batch_at(__u64 address)
{
	struct batch *b = bpf_map_lookup_elem(&batches, &address);

	if (!b && !bpf_map_update_elem(&batches, &address, &no_rows, BPF_ANY))
		b = bpf_map_lookup_elem(&batches, &address);
	return b;
}

/* add_row adds a row of a sequence. */
static __always_inline void add_row(struct batch *b, __s32 seq, __s32 pos)
{
	__u32 last = b->runs_n - 1;

	b->rows++;
	if (b->runs_n && last < CALL_RUNS && b->runs[last].seq == seq && !b->beyond) {
		b->runs[last].rows++;
		return;
	}
	last = b->runs_n;
	if (last >= CALL_RUNS) {
		b->beyond++;
		return;
	}
	b->runs[last].seq = seq;
	b->runs[last].pos = pos;
	b->runs[last].rows = 1;
	b->runs[last].outputs = 0;
	b->runs_n = last + 1;
}

/* add_output notes that the logits of a row are wanted. */
static __always_inline void add_output(struct batch *b, __u32 row)
{
	__u32 before = 0;

	b->outputs++;
	for (__u32 i = 0; i < CALL_RUNS; i++) {
		if (i >= b->runs_n)
			return;
		before += b->runs[i].rows;
		if (row < before) {
			b->runs[i].outputs++;
			return;
		}
	}
}


SEC("uprobe")
int llama_batch_ext_clear(struct pt_regs *r)
{
	__u64 address = FIRST(r);

	if (watched())
		bpf_map_delete_elem(&batches, &address);
	return 0;
}

SEC("uprobe")
int llama_batch_ext_add(struct pt_regs *r)
{
	struct batch *b;

	if (!watched())
		return 0;
	b = batch_at(FIRST(r));
	if (b)
		b->seq = (__s32)SECOND(r);
	return 0;
}

SEC("uprobe")
int llama_batch_ext_set_pos(struct pt_regs *r)
{
	struct batch *b;
	__s32 pos = -1;

	if (!watched())
		return 0;
	b = batch_at(FIRST(r));
	if (!b || (__u32)SECOND(r) != b->rows) /* a row may be given another position */
		return 0;
	if (bpf_probe_read_user(&pos, sizeof pos, (void *)THIRD(r)))
		count(UNREADABLE);
	add_row(b, b->seq, pos);
	return 0;
}

SEC("uprobe")
int llama_batch_ext_set_output_logits(struct pt_regs *r)
{
	struct batch *b;

	if (!watched() || !(THIRD(r) & 1))
		return 0;
	b = batch_at(FIRST(r));
	if (b)
		add_output(b, (__u32)SECOND(r));
	return 0;
}

/* enter reports whether this is the outermost call of a thread. */
static __always_inline bool enter(void)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), one = 1, *depth = bpf_map_lookup_elem(&depths, &tid);

	if (depth) {
		*depth += 1;
		return false;
	}
	bpf_map_update_elem(&depths, &tid, &one, BPF_ANY);
	return true;
}

static __always_inline struct call_event *reserve(__u32 kind)
{
	struct call_event *e = bpf_ringbuf_reserve(&events, sizeof *e, 0);

	if (!e) {
		count(LOST_RING);
		return NULL;
	}
	__builtin_memset(e, 0, sizeof *e);
	e->at = bpf_ktime_get_ns();
	e->tid = (__u32)bpf_get_current_pid_tgid();
	e->kind = kind;
	return e;
}

static __always_inline void submit(struct call_event *e) { bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP); }

static __always_inline void send(__u64 context, const struct batch *b, __u32 extended)
{
	struct call_event *e = reserve(CALL_BEGIN);

	if (!e)
		return;
	e->context = context;
	e->extended = extended;
	e->rows = b->rows;
	e->outputs = b->outputs;
	e->beyond = b->beyond;
	e->runs_n = b->runs_n;
	__builtin_memcpy(e->runs, b->runs, sizeof e->runs);
	submit(e);
}

SEC("uprobe")
int llama_process(struct pt_regs *r)
{
	struct batch *b;

	if (!watched() || !enter())
		return 0;
	b = batch_at(THIRD(r));
	if (b)
		send(FIRST(r), b, 1);
	return 0;
}

/* A batch that is decoded, while its rows are read. */
struct reading {
	struct llama_batch from;
	struct batch *to;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 64);
	__type(key, __u32); /* thread */
	__type(value, struct batch);
} decoded SEC(".maps");

static int read_row(__u32 i, struct reading *x)
{
	__u64 sequences = 0;
	__s32 seq = 0, pos = -1;
	__s8 output = i + 1 == (__u32)x->from.n_tokens; /* by default the last row has logits */
	long bad = 0;

	if (x->from.seq_id) {
		bad |= bpf_probe_read_user(&sequences, sizeof sequences, (void *)(x->from.seq_id + 8ul * i));
		bad |= bpf_probe_read_user(&seq, sizeof seq, (void *)sequences);
	}
	if (x->from.pos)
		bad |= bpf_probe_read_user(&pos, sizeof pos, (void *)(x->from.pos + 4ul * i));
	if (x->from.logits)
		bad |= bpf_probe_read_user(&output, sizeof output, (void *)(x->from.logits + i));
	if (bad)
		count(UNREADABLE);
	add_row(x->to, seq, pos);
	if (output)
		add_output(x->to, i);
	return 0;
}

/* Nothing: what a trap costs is measured with it. */
SEC("uprobe")
int trap(struct pt_regs *r) { return 0; }

static __always_inline void decode(struct pt_regs *r)
{
	struct reading x = {};
	__u32 tid = (__u32)bpf_get_current_pid_tgid();

	if (!watched() || !enter())
		return;
	if (bpf_probe_read_user(&x.from, sizeof x.from, (void *)STRUCTURE(r)) || x.from.n_tokens < 0 ||
	    x.from.n_tokens > MAX_ROWS) {
		count(UNREADABLE);
		return;
	}
	if (bpf_map_update_elem(&decoded, &tid, &no_rows, BPF_ANY))
		return;
	x.to = bpf_map_lookup_elem(&decoded, &tid);
	if (!x.to)
		return;
	bpf_loop(x.from.n_tokens, read_row, &x, 0);
	send(FIRST(r), x.to, 0);
	bpf_map_delete_elem(&decoded, &tid);
}

SEC("uprobe")
int llama_decode(struct pt_regs *r)
{
	decode(r);
	return 0;
}

SEC("uprobe")
int llama_encode(struct pt_regs *r)
{
	decode(r);
	return 0;
}

SEC("uprobe")
int llama_memory_seq_add(struct pt_regs *r)
{
	struct call_event *e;

	if (!watched())
		return 0;
	e = reserve(CALL_SHIFT);
	if (!e)
		return 0;
	e->runs[0].seq = (__s32)SECOND(r);
	e->runs[0].pos = (__s32)FIFTH(r);
	submit(e);
	return 0;
}

SEC("uretprobe")
int returned(struct pt_regs *r)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), *depth;
	struct call_event *e;

	if (!watched())
		return 0;
	depth = bpf_map_lookup_elem(&depths, &tid);
	if (!depth) /* it was entered before these programs were there */
		return 0;
	if (*depth > 1) {
		*depth -= 1;
		return 0;
	}
	bpf_map_delete_elem(&depths, &tid);
	e = reserve(CALL_END);
	if (!e)
		return 0;
	e->result = (__s32)RESULT(r);
	submit(e);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
