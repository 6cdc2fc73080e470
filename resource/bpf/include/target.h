/* Which tasks are wanted. Target of resource/bpf sets the constants before a program is loaded, so that what is not
 * asked for costs nothing, and fills the map, to which process ids may be added later. All set conditions must hold. */
#pragma once

#include "kernel.h"

/* What a program on a tracepoint returns: with 0 the kernel drops the event for all who sample it with perf, too. */
#define FOR_OTHERS_TOO 1

const volatile bool target_by_pid;        /* the process stands in target_pids */
const volatile bool target_by_comm;       /* the thread's name equals target_comm */
const volatile bool target_by_cgroup;     /* the process is in the cgroup or below it */
const volatile __u64 target_comm[2];      /* 16 bytes, filled up with zeros */
const volatile __u64 target_cgroup;       /* number of its folder in cgroupfs */
const volatile int target_cgroup_level;   /* how deep it lies in its hierarchy: 0 is the root */
const volatile int target_cgroup_subsys;  /* cgroup v1: index of the controller in css_set.subsys; -1 is cgroup v2 */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* tgid */
	__type(value, __u8);
} target_pids SEC(".maps");

static __always_inline bool target_has_pid(__u32 tgid)
{
	return !target_by_pid || bpf_map_lookup_elem(&target_pids, &tgid);
}

/* target_follow takes what a process of the target starts into the target; false says that there was no room. */
static __always_inline bool target_follow(__u32 parent, __u32 child)
{
	__u8 yes = 1;

	return parent == child || !bpf_map_lookup_elem(&target_pids, &parent) || !bpf_map_update_elem(&target_pids, &child, &yes, BPF_ANY);
}

struct signal_struct___target {
	struct {
		int counter;
	} live;
} READ_AS_FOUND;

struct task_struct___target {
	struct signal_struct___target *signal;
} READ_AS_FOUND;

/* target_leave is for the end of a thread: a process is forgotten with its last one, since its number is used again. */
static __always_inline void target_leave(struct task_struct *task)
{
	struct task_struct___target *p = (void *)task;
	__u32 tgid = task->tgid;

	if (BPF_CORE_READ(p, signal, live.counter) == 0)
		bpf_map_delete_elem(&target_pids, &tgid);
}

static __always_inline bool target_has_comm(const char comm[16])
{
	__u64 name[2];

	__builtin_memcpy(name, comm, sizeof name);
	return name[0] == target_comm[0] && name[1] == target_comm[1];
}

/* target_has_cgroup_of follows pointers that the verifier need not trust, so that any task pointer will do. */
static __always_inline bool target_has_cgroup_of(struct task_struct *task)
{
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	struct cgroup *group = NULL;

	if (target_cgroup_subsys < 0) {
		group = BPF_CORE_READ(set, dfl_cgrp);
	} else {
		struct cgroup_subsys_state *state = NULL;

		bpf_core_read(&state, sizeof state, &set->subsys[target_cgroup_subsys & 31]);
		group = BPF_CORE_READ(state, cgroup);
	}
	if (BPF_CORE_READ(group, level) < target_cgroup_level)
		return false;
	if (bpf_core_field_exists(group->ancestors)) {
		struct cgroup *above = NULL;

		bpf_core_read(&above, sizeof above, &group->ancestors[target_cgroup_level & 127]);
		group = above;
	}
	return BPF_CORE_READ(group, kn, id) == target_cgroup;
}

/* wanted reports whether a task is in the target: a task from a tp_btf hook or from bpf_get_current_task_btf. */
static __always_inline bool wanted(struct task_struct *task)
{
	if (!target_has_pid(task->tgid))
		return false;
	if (target_by_comm) {
		char comm[16];

		BPF_CORE_READ_INTO(&comm, task, comm);
		if (!target_has_comm(comm))
			return false;
	}
	return !target_by_cgroup || target_has_cgroup_of(task);
}

/* wanted_current is for programs that know nothing of the kernel's types: plain tracepoints, where there is no BTF. A
 * cgroup v1 cannot be asked for there; Target says so. */
static __always_inline bool wanted_current(void)
{
	if (!target_has_pid(bpf_get_current_pid_tgid() >> 32))
		return false;
	if (target_by_comm) {
		char comm[16] = {};

		bpf_get_current_comm(comm, sizeof comm);
		if (!target_has_comm(comm))
			return false;
	}
	return !target_by_cgroup || (target_cgroup_subsys < 0 &&
		bpf_get_current_ancestor_cgroup_id(target_cgroup_level) == target_cgroup);
}

/* target_has_cgroup reports whether a group of the target's hierarchy is the wanted one or below it. */
static __always_inline bool target_has_cgroup(struct cgroup *group)
{
	struct cgroup *above = group;

	if (BPF_CORE_READ(group, level) < target_cgroup_level)
		return false;
	if (bpf_core_field_exists(group->ancestors))
		bpf_core_read(&above, sizeof above, &group->ancestors[target_cgroup_level & 127]);
	return BPF_CORE_READ(above, kn, id) == target_cgroup;
}
