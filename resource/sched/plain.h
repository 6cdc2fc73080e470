/* The programs of sched.bpf.c for kernels without BTF. The events' own fields are all there is, threads are known by
 * tid alone, and system calls by having been entered. each_task's part is done by the reader, from /proc. */
#pragma once

struct switch_event {
	__u64 common;
	char prev_comm[16];
	int prev_pid;
	int prev_prio;
	long prev_state;
	char next_comm[16];
	int next_pid;
	int next_prio;
};

struct wakeup_event {
	__u64 common;
	char comm[16];
	int pid;
};

struct newtask_event {
	__u64 common;
	int pid;
	char comm[16];
	unsigned long clone_flags;
};

struct call_event {
	__u64 common;
	long id;
};

#define CLONE_THREAD 0x00010000
#define KTHREADD 2 /* the process that starts kernel threads */

static __always_inline struct thread_accounts *accounts_by(__u32 tid)
{
	return find(thread_key(tid, 0));
}

SEC("tracepoint/sched/sched_switch")
int on_switch_plain(struct switch_event *e)
{
	struct thread_accounts *t;
	__u64 now = 0;

	if (e->prev_pid && (t = accounts_by(e->prev_pid))) {
		unsigned long state = e->prev_state;
		enum thread_state to = !state || state & REPORTED_PREEMPTED ? RUNNABLE : reported_state(state, t->call);

		now = bpf_ktime_get_ns();
		if (to == GONE)
			__builtin_memcpy(t->comm, e->prev_comm, sizeof t->comm);
		thread_leave(t, now, to);
	}
	if (e->next_pid && (t = accounts_by(e->next_pid)))
		thread_run(t, now ? now : bpf_ktime_get_ns(), this_epoch(), UNKNOWN);
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/sched/sched_wakeup")
int on_wakeup_plain(struct wakeup_event *e)
{
	struct thread_accounts *t = accounts_by(e->pid);

	if (t)
		thread_wake(t, bpf_ktime_get_ns());
	return FOR_OTHERS_TOO;
}

/* begin_plain begins the accounts of a task whose number may have been that of one that ended since the last snapshot:
 * that one's are overwritten, and counted as lost. */
static __always_inline struct thread_accounts *begin_plain(__u32 tid, __u32 tgid, enum thread_state state)
{
	struct thread_accounts *t = accounts_by(tid);

	if (!t)
		return begin(thread_key(tid, 0), tgid, bpf_ktime_get_ns(), state);
	if (thread_state(t) != GONE)
		return NULL;
	count_lost();
	__builtin_memset(t, 0, sizeof *t);
	t->tgid = tgid;
	t->call = -1;
	thread_begin(t, bpf_ktime_get_ns(), state);
	return t;
}

SEC("tracepoint/task/task_newtask")
int on_new_plain(struct newtask_event *e)
{
	__u32 parent = bpf_get_current_pid_tgid() >> 32, child = e->pid;
	struct thread_accounts *t;
	__u8 yes = 1;

	if (!wanted_current())
		return FOR_OTHERS_TOO;
	if (!(e->clone_flags & CLONE_THREAD) && target_by_pid) {
		if (!follow)
			return FOR_OTHERS_TOO;
		if (bpf_map_update_elem(&target_pids, &child, &yes, BPF_ANY))
			count_lost();
	}
	t = begin_plain(child, e->clone_flags & CLONE_THREAD ? parent : child, RUNNABLE);
	if (!t)
		return FOR_OTHERS_TOO;
	__builtin_memcpy(t->comm, e->comm, sizeof t->comm);
	if (parent == KTHREADD)
		t->call = CALL_OF_KERNEL;
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/sched/sched_process_exec")
int on_exec_plain(void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();

	if (!accounts_by((__u32)id) && wanted_current())
		begin_plain((__u32)id, id >> 32, ON_CPU);
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/sched/sched_process_exit")
int on_exit_plain(void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32;

	if (follow && target_by_pid && tgid == (__u32)id) /* its first thread, mostly the last to end */
		bpf_map_delete_elem(&target_pids, &tgid);
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/exceptions/page_fault_user")
int on_fault_plain(void *ctx)
{
	struct thread_accounts *t = accounts_by((__u32)bpf_get_current_pid_tgid());

	if (t)
		t->faults++;
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/raw_syscalls/sys_enter")
int on_call_plain(struct call_event *e)
{
	struct thread_accounts *t = accounts_by((__u32)bpf_get_current_pid_tgid());

	if (t)
		t->call = (int)e->id;
	return FOR_OTHERS_TOO;
}
