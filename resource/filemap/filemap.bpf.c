//go:build ignore

/* What threads of the wanted processes wait for on files, sent one by one through a ring buffer that wakes nobody: a
 * reader that was woken at each fault took the processor from the model, as measured. A fault begins at the software
 * event page-faults and ends at minor-faults or major-faults, which the kernel counts when the fault has been handled;
 * both exist on every processor and need no types of the kernel. */
#include "target.h"
#include "types.h"
#include "fault.h"

/* Counters, per processor. resource/filemap/lost.go knows the order. */
enum {
	LOST_RING,       /* the ring buffer was full */
	LOST_THREADS,    /* there was no room for a thread */
	LOST_REQUESTS,   /* there was no room for a request */
	FAULTS_OPEN,     /* faults that never returned: a signal, the end of a thread */
	FAULTS_UNKNOWN,  /* returns of faults whose entry was not seen */
	COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* The least recently used thread makes room: a thread that ends leaves its entry behind. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct wait_thread);
} threads SEC(".maps");

struct file_key {
	__u64 ino;
	__u32 dev, zero;
};

/* Files whose requests are recorded, whoever issues them: those that a wanted thread reads, and those that user space
 * names. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct file_key);
	__type(value, __u8);
} files SEC(".maps");

static const struct wait_thread new_thread;

/* What runs on a processor, so that switches of other threads cost next to nothing. */
struct here {
	__u32 tid;   /* in a fault; 0: none */
	__u32 reads; /* has a run of pages that is not emitted yet */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct here);
} heres SEC(".maps");

/* How many threads left a processor within a fault or a wait in a system call, and are not back. */
volatile __u64 away;

static __always_inline struct here *here_now(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&heres, &zero);
}

static __always_inline void count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&counters, &which);

	if (n)
		*n += 1;
}

static __always_inline struct wait_event *reserve(__u32 kind, __u32 flags)
{
	struct wait_event *e = bpf_ringbuf_reserve(&events, sizeof *e, 0);

	if (!e) {
		count(LOST_RING);
		return NULL;
	}
	e->at = e->ino = e->first = e->last = e->blocked_ns = e->preempted_ns = e->bytes = 0;
	e->dev = e->bdev = e->call = 0;
	e->kind_flags = kind << 16 | flags;
	return e;
}

static __always_inline void submit(struct wait_event *e)
{
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

static __always_inline struct wait_thread *known(__u32 tid)
{
	return bpf_map_lookup_elem(&threads, &tid);
}

static __always_inline struct wait_thread *thread(void)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tid = (__u32)id;
	struct wait_thread *t = known(tid);

	if (t)
		return t;
	if (bpf_map_update_elem(&threads, &tid, &new_thread, BPF_ANY)) {
		count(LOST_THREADS);
		return NULL;
	}
	t = known(tid);
	if (t)
		t->tgid = id >> 32;
	return t;
}

static __always_inline void tell_run(struct wait_thread *t, __u32 tid)
{
	struct wait_event *e;

	if (!t->run.pages)
		return;
	e = reserve(WAIT_READ, t->run.flags);
	if (e) {
		e->begin_ns = t->run.begin_ns;
		e->end_ns = t->run.end_ns;
		e->dev = t->run.dev;
		e->ino = t->run.ino;
		e->first = t->run.first;
		e->last = t->run.first + t->run.pages - 1;
		e->tid = tid;
		e->tgid = t->tgid;
		submit(e);
	}
	t->run.pages = 0;
}

static __always_inline int fault(struct fault_frame *frame)
{
	struct wait_thread *t = thread();
	struct here *here = here_now();

	if (!t || !here)
		return 0;
	here->tid = (__u32)bpf_get_current_pid_tgid();
	if (wait_fault_begin(t, bpf_ktime_get_ns(), frame->address, FROM_KERNEL(frame) ? WAIT_KERNEL : 0))
		count(FAULTS_OPEN);
	return 0;
}

SEC("perf_event")
int on_fault(struct fault_frame *frame)
{
	return wanted(bpf_get_current_task_btf()) ? fault(frame) : 0;
}

SEC("perf_event")
int on_fault_plain(struct fault_frame *frame)
{
	return wanted_current() ? fault(frame) : 0;
}

static __always_inline int returned(__u32 major)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct here *here = here_now();
	struct wait_thread *t;
	struct wait_event *e;

	if (here && here->tid == tid)
		here->tid = 0;
	t = known(tid);
	if (!t)
		return 0;
	if (!t->begin_ns) {
		count(FAULTS_UNKNOWN);
		return 0;
	}
	tell_run(t, tid);
	e = reserve(WAIT_FAULT, t->flags | major);
	if (e) {
		e->begin_ns = t->begin_ns;
		e->end_ns = now;
		e->at = t->address;
		e->dev = t->place.dev;
		e->ino = t->place.ino;
		e->first = t->place.first;
		e->last = t->place.last;
		e->blocked_ns = t->blocked_ns;
		e->preempted_ns = t->preempted_ns;
		e->tid = tid;
		e->tgid = t->tgid;
		submit(e);
	}
	t->begin_ns = 0;
	t->place.dev = 0;
	return 0;
}

SEC("perf_event")
int on_minor(struct fault_frame *frame)
{
	return returned(0);
}

SEC("perf_event")
int on_major(struct fault_frame *frame)
{
	return returned(WAIT_MAJOR);
}

static __always_inline int at_file(struct address_space *mapping, __u64 first, __u64 last, __u32 how)
{
	struct wait_thread *t;

	if (!wanted(bpf_get_current_task_btf()))
		return 0;
	t = thread();
	if (t)
		wait_at(t, mapping->host->i_sb->s_dev, mapping->host->i_ino, first, last, how);
	return 0;
}

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(on_page, struct address_space *mapping, unsigned long index)
{
	return at_file(mapping, index, index, WAIT_SLOW);
}

SEC("tp_btf/mm_filemap_map_pages")
int BPF_PROG(on_around, struct address_space *mapping, unsigned long first, unsigned long last)
{
	return at_file(mapping, first, last, WAIT_AROUND);
}

SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(on_get, struct address_space *mapping, unsigned long first, unsigned long last)
{
	return at_file(mapping, first, last, 0);
}

/* The arguments of the filemap tracepoints, where their types are not known. */
struct plain_page {
	__u64 common;
	__u64 ino;
	__u32 dev, pad;
	__u64 first;
	__u64 last; /* mm_filemap_map_pages and mm_filemap_get_pages alone */
};

static __always_inline int at_file_plain(struct plain_page *c, __u64 last, __u32 how)
{
	struct wait_thread *t;

	if (!wanted_current())
		return FOR_OTHERS_TOO;
	t = thread();
	if (t)
		wait_at(t, c->dev, c->ino, c->first, last, how);
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/filemap/mm_filemap_fault")
int on_page_plain(struct plain_page *c)
{
	return at_file_plain(c, c->first, WAIT_SLOW);
}

SEC("tracepoint/filemap/mm_filemap_map_pages")
int on_around_plain(struct plain_page *c)
{
	return at_file_plain(c, c->last, WAIT_AROUND);
}

SEC("tracepoint/filemap/mm_filemap_get_pages")
int on_get_plain(struct plain_page *c)
{
	return at_file_plain(c, c->last, 0);
}

static __always_inline int cached(__u32 dev, __u64 ino, __u64 first, __u64 pages)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct wait_thread *t = thread();
	struct file_key key = { .ino = ino, .dev = dev };
	__u64 now = bpf_ktime_get_ns();
	struct here *here = here_now();
	__u8 one = 1;

	if (here)
		here->reads = tid;
	if (!t || wait_run_takes(&t->run, now, dev, ino, first, pages))
		return 0;
	tell_run(t, tid);
	wait_run_begin(&t->run, now, dev, ino, first, pages);
	if (t->begin_ns)
		t->run.flags = WAIT_WITHIN;
	if (!bpf_map_lookup_elem(&files, &key))
		bpf_map_update_elem(&files, &key, &one, BPF_ANY);
	return 0;
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(on_cached, struct folio *folio)
{
	__u64 flags = 0, pages = 1;

	if (!wanted(bpf_get_current_task_btf()))
		return 0;
	bpf_probe_read_kernel(&flags, sizeof flags, folio); /* the first word of every page */
	if (flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1) {
		if (bpf_core_field_exists(struct folio___early, _folio_order))
			pages <<= BPF_CORE_READ((struct folio___early *)folio, _folio_order) & 31;
		else
			pages <<= folio->_flags_1 & 31;
	}
	return cached(folio->mapping->host->i_sb->s_dev, folio->mapping->host->i_ino, folio->index, pages);
}

struct plain_cached {
	__u64 common;
	__u64 pfn;
	__u64 ino;
	__u64 first;
	__u32 dev;
	__u8 order;
};

SEC("tracepoint/filemap/mm_filemap_add_to_page_cache")
int on_cached_plain(struct plain_cached *c)
{
	if (wanted_current())
		cached(c->dev, c->ino, c->first, 1ull << (c->order & 31));
	return FOR_OTHERS_TOO;
}

static __always_inline void on(struct wait_thread *t, __u32 tid)
{
	__u64 since, now = bpf_ktime_get_ns();
	struct wait_event *e;

	if (!wait_on(t, now, &since))
		return;
	e = reserve(WAIT_CALL, 0);
	if (!e)
		return;
	e->begin_ns = since;
	e->end_ns = now;
	e->blocked_ns = now - since;
	e->dev = t->place.dev;
	e->ino = t->place.ino;
	e->first = t->place.first;
	e->last = t->place.last;
	e->tid = tid;
	e->tgid = t->tgid;
	e->call = t->call - 1;
	submit(e);
}

/* left: a thread leaves the processor. call is the system call that it waits for the disk in, +1, or 0. */
static __always_inline void left(struct here *here, __u32 tid, bool asleep, bool dead, __u32 call)
{
	struct wait_thread *t;

	if (here->tid != tid && here->reads != tid && !call)
		return;
	t = known(tid);
	if (!t)
		return;
	tell_run(t, tid);
	wait_off(t, bpf_ktime_get_ns(), asleep, call);
	if (dead)
		t->off_ns = 0;
	if (t->off_ns)
		__sync_fetch_and_add(&away, 1);
}

/* came: a thread is on this processor. */
static __always_inline void came(struct here *here, __u32 tid)
{
	struct wait_thread *t;

	here->tid = here->reads = 0;
	if (!away)
		return;
	t = known(tid);
	if (!t || !t->off_ns)
		return;
	__sync_fetch_and_sub(&away, 1);
	if (t->begin_ns)
		here->tid = tid;
	on(t, tid);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 call = 0, state = preempt ? 0 : prev->__state;
	struct here *here = here_now();

	if (!here)
		return 0;
	if (state & TASK_UNINTERRUPTIBLE && here->tid != (__u32)prev->pid && BPF_CORE_READ_BITFIELD(prev, in_iowait))
		call = CALL_OF(bpf_task_pt_regs(prev)) + 1;
	left(here, prev->pid, state != 0, state & TASK_DEAD, call);
	came(here, next->pid);
	return 0;
}

struct plain_switch {
	__u64 common;
	char prev_comm[16];
	__u32 prev_pid, prev_prio;
	__u64 prev_state;
	char next_comm[16];
	__u32 next_pid;
};

/* Which system call a thread waits in is unknown without types: such waits are left out. */
SEC("tracepoint/sched/sched_switch")
int on_switch_plain(struct plain_switch *c)
{
	struct here *here = here_now();

	if (!here)
		return FOR_OTHERS_TOO;
	left(here, c->prev_pid, (c->prev_state & 255) != 0, c->prev_state & (TASK_DEAD | EXIT_STATES), 0);
	came(here, c->next_pid);
	return FOR_OTHERS_TOO;
}

/* What a wanted process starts is wanted, too: a script may start the model. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	if (target_by_pid && !target_follow(parent->tgid, child->tgid))
		count(LOST_THREADS);
	return 0;
}

/* The numbers of threads are used again. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_end, struct task_struct *task)
{
	__u32 tid = task->pid;

	if (!wanted(task))
		return 0;
	bpf_map_delete_elem(&threads, &tid);
	if (target_by_pid)
		target_leave(task);
	return 0;
}

#include "request.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
