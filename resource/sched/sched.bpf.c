//go:build ignore

/* Where the time of threads goes, and their page faults. A thread that is looked at has a place in the table: each_task
 * gives one to those that are there, on_new to those that come, on_exec to those whose name or place has come to be
 * wanted. All other hooks ask the table alone, so that a thread that nobody asked for costs one look.
 *
 * Since when a thread waits that runs again is the kernel's own knowledge (sched_info), so that wakings need not be
 * looked at; where it cannot be had on_wakeup is attached.
 *
 * Hot path: on_switch; at most 150 ns with a wanted thread on either side. */
#include "target.h"
#include "account.h"

const volatile bool switch_has_state; /* the hook sched_switch passes the state of prev: since Linux 5.18 */
const volatile bool queues_known;     /* the kernel reports how long a thread has been queued */
const volatile bool follow;           /* what a wanted process starts is wanted */

/* The number of the interval, which each snapshot raises. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} epoch SEC(".maps");

#include "table.h"

#define START_SHIFT 10 /* of task_struct.start_time: about microseconds */

struct thread_info___sched {
	unsigned long flags;
	__u32 status;
} READ_AS_FOUND;

struct rq___sched {
	__u64 clock;
} READ_AS_FOUND;

struct cfs_rq___sched {
	struct rq___sched *rq;
} READ_AS_FOUND;

struct sched_entity___sched {
	struct cfs_rq___sched *cfs_rq;
} READ_AS_FOUND;

struct sched_info___sched {
	__u64 run_delay;
	__u64 last_queued;
} READ_AS_FOUND;

struct task_struct___sched {
	struct sched_entity___sched se;
	struct sched_info___sched sched_info;
	struct thread_info___sched thread_info;
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	int exit_state;
	int pid;
	int tgid;
	unsigned in_iowait : 1;
	__u64 start_time;
	unsigned long min_flt;
	unsigned long maj_flt;
	unsigned long nvcsw;
	unsigned long nivcsw;
	char comm[16];
} READ_AS_FOUND;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} READ_AS_FOUND;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} READ_AS_FOUND;

struct pt_regs___sched {
#if defined(__TARGET_ARCH_arm64)
	int syscallno;
#else
	unsigned long orig_ax;
#endif
} READ_AS_FOUND;

#define COMPAT_STATUS_X86 0x0002     /* TS_COMPAT: in a 32-bit system call, whose number means another call */
#define COMPAT_FLAG_ARM64 (1UL << 22) /* TIF_32BIT */

static __always_inline __u64 key_of(struct task_struct___sched *task)
{
	return thread_key(task->pid, (__u32)(task->start_time >> START_SHIFT));
}

static __always_inline struct thread_accounts *accounts_of(struct task_struct *p)
{
	return find(key_of((void *)p));
}

/* call_of is the number of the system call that a task is in, negative outside of one. */
static __always_inline int call_of(struct task_struct *task)
{
	struct task_struct___sched *p = (void *)task;
	struct pt_regs___sched *regs;

	if (p->flags & PF_KTHREAD)
		return CALL_OF_KERNEL;
	regs = (void *)bpf_task_pt_regs(task);
#if defined(__TARGET_ARCH_arm64)
	return p->thread_info.flags & COMPAT_FLAG_ARM64 ? -1 : regs->syscallno;
#else
	return p->thread_info.status & COMPAT_STATUS_X86 ? -1 : (int)regs->orig_ax;
#endif
}

static __always_inline enum thread_state sleeping(struct task_struct *task, unsigned state)
{
	struct task_struct___sched *it = (void *)task;

	return sleep_state(state, BPF_CORE_READ_BITFIELD(it, in_iowait), call_of(task));
}

static __always_inline __u32 this_epoch(void)
{
	__u32 zero = 0, *n = bpf_map_lookup_elem(&epoch, &zero);

	return n ? *n : 0;
}

/* ended keeps what only the task itself knows, which it takes with it. */
static __always_inline void ended(struct thread_accounts *t, struct task_struct___sched *task)
{
	t->minor = task->min_flt;
	t->major = task->maj_flt;
	__builtin_memcpy(t->comm, task->comm, sizeof t->comm);
}

/* queued_for is how long a task has waited for a processor since it was woken: what the kernel has counted since the
 * task was left, for a queue that it was taken from, and the time in its present queue, by that one's clock. */
static __always_inline __u64 queued_for(struct task_struct *task, struct thread_accounts *t)
{
	struct task_struct___sched *p = (void *)task;
	__u64 since = p->sched_info.last_queued, clock;

	if (!queues_known || !since)
		return UNKNOWN;
	clock = p->se.cfs_rq->rq->clock;
	return p->sched_info.run_delay - t->delay + (clock > since ? clock - since : 0);
}

SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	bool preempted = (bool)ctx[0];
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	struct thread_accounts *t;
	__u64 now = 0;

	if (prev->pid && (t = accounts_of(prev))) {
		unsigned state = switch_has_state ? (unsigned)ctx[3] : prev->__state;
		enum thread_state to = preempted || !state ? RUNNABLE : sleeping(prev, state);

		now = bpf_ktime_get_ns();
		if (to == GONE)
			ended(t, (void *)prev);
		thread_leave(t, now, to);
		if (queues_known)
			t->delay = ((struct task_struct___sched *)(void *)prev)->sched_info.run_delay;
	}
	if (next->pid && (t = accounts_of(next)))
		thread_run(t, now ? now : bpf_ktime_get_ns(), this_epoch(), queued_for(next, t));
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	struct thread_accounts *t = accounts_of(task);

	if (t)
		thread_wake(t, bpf_ktime_get_ns());
	return 0;
}

static __always_inline struct thread_accounts *begin_task(struct task_struct *task, __u64 now, enum thread_state state)
{
	struct task_struct___sched *p = (void *)task;
	struct thread_accounts *t = begin(key_of(p), p->tgid, now, state);

	if (t) {
		__builtin_memcpy(t->comm, p->comm, sizeof t->comm);
		t->minor_first = p->min_flt;
		t->major_first = p->maj_flt;
		if (queues_known)
			t->delay = p->sched_info.run_delay;
	}
	return t;
}

/* The current task is the new one's parent or, for a thread, one of its process. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_new, struct task_struct *task)
{
	if (follow && target_by_pid && task->pid == task->tgid && !target_follow(bpf_get_current_pid_tgid() >> 32, task->tgid))
		count_lost();
	if (wanted(task))
		begin_task(task, bpf_ktime_get_ns(), RUNNABLE);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	if (!accounts_of(task) && wanted(task))
		begin_task(task, bpf_ktime_get_ns(), ON_CPU);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	if (follow && target_by_pid)
		target_leave(task);
	return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(on_fault)
{
	struct thread_accounts *t = accounts_of(bpf_get_current_task_btf());

	if (t)
		t->faults++;
	return 0;
}

/* What each_task emits for a thread that is there. */
struct thread_record {
	__u64 key;
	__u32 tgid;
	__u32 reserved;
	__u64 queued; /* how long it has waited for a processor, ns; UNKNOWN if it does not, or on_wakeup is attached */
	__u64 minor, major;
	char comm[16];
};

/* The state of a task that is not the current one. */
static __always_inline enum thread_state present_state(struct task_struct *task)
{
	struct task_struct___sched *p = (void *)task;
	unsigned state = p->__state;

	if (p->on_cpu)
		return ON_CPU;
	return state ? sleeping(task, state) : RUNNABLE;
}

/* each_task is run by a reader at each snapshot. It emits the threads that are there, with the kernel's counts, and
 * opens the accounts of those that have none. One that changes its state between the look and the entry is looked at
 * again: from then on the other hooks see it. */
SEC("iter/task")
int each_task(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_struct___sched *p = (void *)task;
	struct thread_record record = {};
	struct thread_accounts *t;

	if (!task || p->exit_state || p->__state & STATE_NEW || !wanted(task)) /* a new one is on_new's */
		return 0;
	record.key = key_of(p);
	record.tgid = p->tgid;
	record.minor = p->min_flt;
	record.major = p->maj_flt;
	__builtin_memcpy(record.comm, p->comm, sizeof record.comm);
	t = accounts_of(task);
	if (!t) {
		__u64 now = bpf_ktime_get_ns();

		t = begin_task(task, now, present_state(task));
		if (t && t->mark >> STATE_BITS == now)
			thread_enter(t, now, present_state(task));
	}
	record.queued = t && present_state(task) == RUNNABLE ? queued_for(task, t) : UNKNOWN;
	bpf_seq_write(ctx->meta->seq, &record, sizeof record);
	return 0;
}

#include "plain.h"

char LICENSE[] SEC("license") = "GPL";
