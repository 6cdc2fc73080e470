//go:build ignore

/* Counts the system calls of wanted processes and what they do on sockets: the hooks. */
#include "target.h"
#include "count.h"

SEC("tp_btf/sys_enter")
int BPF_PROG(on_enter, struct pt_regs *regs, long number)
{
	__u32 call = call_at(number, SECOND(regs));

	if (call == CALL_NONE || !wanted(bpf_get_current_task_btf()))
		return 0;
	if (compat()) {
		lose(LOST_COMPAT); /* its number means another call */
		return 0;
	}
	return begin(call, FIRST(regs), SECOND(regs), THIRD(regs), FOURTH(regs));
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_exit, struct pt_regs *regs, long result)
{
	struct ended e = { .call = call_at(NUMBER(regs), SECOND(regs)), .result = result };

	if (e.call == CALL_NONE)
		return 0;
	if (!noted(&e)) { /* it began before the program did, or is not wanted */
		if (!wanted(bpf_get_current_task_btf()) || compat())
			return 0;
		e.fd = FIRST(regs);
		e.argument = call_argument(call_flags[e.call & (CALL_SLOTS - 1)], SECOND(regs), THIRD(regs), FOURTH(regs));
	}
	e.tgid = bpf_get_current_pid_tgid() >> 32;
	return end(&e, false);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	if (follow && !target_follow(parent->tgid, child->tgid))
		lose(LOST_CHILD);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_thread_exit, struct task_struct *task)
{
	__u32 tid = task->pid;

	bpf_map_delete_elem(&opens, &tid);
	if (follow)
		target_leave(task);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *task, const char *comm)
{
	__u32 tgid = task->tgid;
	struct process p = {};

	if (task->pid != task->tgid || !bpf_map_lookup_elem(&processes, &tgid))
		return 0;
	bpf_probe_read_kernel_str(p.comm, sizeof p.comm, comm);
	bpf_map_update_elem(&processes, &tgid, &p, BPF_EXIST);
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_send, struct sock *sk, int result, int flags)
{
	if (!wanted(bpf_get_current_task_btf()))
		return 0;
	return transferred((__u64)sk, sk->__sk_common.skc_family, sk->sk_protocol, true, result, false);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_receive, struct sock *sk, int result, int flags)
{
	if (flags & PEEK || !wanted(bpf_get_current_task_btf()))
		return 0;
	return transferred((__u64)sk, sk->__sk_common.skc_family, sk->sk_protocol, false, result, false);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(on_state, const struct sock *sk, int before, int after)
{
	return sk->sk_protocol == TCP ? changed((__u64)sk, after, wanted(bpf_get_current_task_btf()), false) : 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_retransmit, const struct sock *sk)
{
	/* Of some it is found that their first copy has not left yet. */
	if (retransmit_tells && (int)*(volatile unsigned long long *)&ctx[2])
		return 0;
	return retransmitted((__u64)sk, sk->__sk_common.skc_family);
}

SEC("tp_btf/tcp_retransmit_synack")
int BPF_PROG(on_retransmit_synack, const struct sock *sk)
{
	return retransmitted((__u64)sk, sk->__sk_common.skc_family);
}

/* The same without knowledge of the kernel's types: what the tracepoints themselves report. Calls of 32-bit programs
 * are taken for those of 64-bit ones there, and whether a read or write goes to a socket is not known. */
struct entered_plain {
	__u64 common;
	long number;
	__u64 arguments[6];
};

struct exited_plain {
	__u64 common;
	long number;
	long result;
};

struct length_plain {
	__u64 common;
	__u64 sk;
	__u16 family, protocol;
	int result, flags;
};

struct state_plain {
	__u64 common;
	__u64 sk;
	int before, after;
	__u16 ports[2], family, protocol;
};

struct retransmit_plain {
	__u64 common;
	__u64 skb, sk;
	int state;
	__u16 ports[2], family;
};

struct synack_plain {
	__u64 common;
	__u64 sk, request;
	__u16 ports[2], family;
};

SEC("tracepoint/raw_syscalls/sys_enter")
int on_enter_plain(struct entered_plain *t)
{
	__u32 call = call_at(t->number, t->arguments[1]);

	if (call == CALL_NONE || !wanted_current())
		return FOR_OTHERS_TOO;
	begin(call, t->arguments[0], t->arguments[1], t->arguments[2], t->arguments[3]);
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/raw_syscalls/sys_exit")
int on_exit_plain(struct exited_plain *t)
{
	struct ended e = { .call = call_at(t->number, ~0ull), .result = t->result };

	if (e.call == CALL_NONE)
		return FOR_OTHERS_TOO;
	if (!noted(&e)) {
		if (!wanted_current() || e.call == CALL_OF_FUTEX_OTHER ||
		    call_flags[e.call & (CALL_SLOTS - 1)] & (CALL_LENGTH | CALL_LENGTH4 | CALL_MESSAGES))
			return FOR_OTHERS_TOO; /* the arguments of one that began before the program are not known */
	}
	e.tgid = bpf_get_current_pid_tgid() >> 32;
	end(&e, true);
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/sched/sched_process_exit")
int on_thread_exit_plain(void *t)
{
	__u32 tid = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&opens, &tid);
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/sched/sched_process_exec")
int on_exec_plain(void *t)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct process p = {};

	bpf_get_current_comm(p.comm, sizeof p.comm);
	bpf_map_update_elem(&processes, &tgid, &p, BPF_EXIST);
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/sock/sock_send_length")
int on_send_plain(struct length_plain *t)
{
	if (wanted_current())
		transferred(t->sk, t->family, t->protocol, true, t->result, true);
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/sock/sock_recv_length")
int on_receive_plain(struct length_plain *t)
{
	if (!(t->flags & PEEK) && wanted_current())
		transferred(t->sk, t->family, t->protocol, false, t->result, true);
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/sock/inet_sock_set_state")
int on_state_plain(struct state_plain *t)
{
	if (t->protocol == TCP)
		changed(t->sk, t->after, wanted_current(), true);
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/tcp/tcp_retransmit_skb")
int on_retransmit_plain(struct retransmit_plain *t)
{
	int error = 0;

	if (retransmit_error)
		bpf_probe_read_kernel(&error, sizeof error, (void *)t + retransmit_error);
	if (!error)
		retransmitted(t->sk, t->family);
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/tcp/tcp_retransmit_synack")
int on_retransmit_synack_plain(struct synack_plain *t)
{
	retransmitted(t->sk, t->family);
	return FOR_OTHERS_TOO;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
