/* What BPF programs here know of the kernel: the few fields that they read, found in each kernel by name (CO-RE), and
 * the numbers of bpf(2). A program that reads more declares it in its own file, under a name that ends in ___ and a
 * word of its own where the type is here. For -target bpf; user-space tests include headers of pure logic only. */
#pragma once

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define READ_AS_FOUND __attribute__((preserve_access_index))

struct kernfs_node {
	__u64 id;
} READ_AS_FOUND;

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[];
} READ_AS_FOUND;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
} READ_AS_FOUND;

struct css_set {
	struct cgroup_subsys_state *subsys[32];
	struct cgroup *dfl_cgrp;
} READ_AS_FOUND;

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int pid;  /* of the thread: what user space calls tid */
	int tgid; /* of the process: what user space calls pid */
	char comm[16];
	unsigned in_iowait : 1;
	struct css_set *cgroups;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
} READ_AS_FOUND;

#define PF_KTHREAD 0x00200000
