//go:build ignore

/* The least program that uses the headers: it counts the switches away from wanted tasks. */
#include "target.h"
#include "histogram.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HISTOGRAM_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} switches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} threads SEC(".maps");

static __always_inline int count(__u32 thread)
{
	__u32 slot = histogram_slot(thread);
	__u64 one = 1, *n = bpf_map_lookup_elem(&switches, &slot);

	if (n)
		*n += 1;
	n = bpf_map_lookup_elem(&threads, &thread);
	if (n)
		__sync_fetch_and_add(n, 1);
	else
		bpf_map_update_elem(&threads, &thread, &one, BPF_NOEXIST);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev)
{
	return wanted(prev) ? count(prev->pid) : 0;
}

SEC("tracepoint/sched/sched_switch")
int on_switch_plain(void *ctx)
{
	return wanted_current() ? count((__u32)bpf_get_current_pid_tgid()) : 0;
}

SEC("tp_btf/no_such_hook")
int BPF_PROG(on_nothing)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
