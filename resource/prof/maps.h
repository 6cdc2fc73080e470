/* What prof counts, and the constants set before it is loaded. Counters are per processor and only grow. Room is taken
 * when the maps are made: what is allocated later, the kernel refuses now and then when many processes begin at once.
 * prof sets the sizes. */
#pragma once

#include "kernel.h"
#include "calls.h"

const volatile bool count_calls;          /* events of type syscall are wanted */
const volatile bool count_waits;          /* of type sync */
const volatile bool net_by_calls;         /* the kernel lacks the hooks of sockets: system calls give their traffic */
const volatile bool follow;               /* what a process of the target starts belongs to it */
const volatile bool retransmit_tells;     /* the hook of retransmitted segments reports if they were sent, since 6.16 */
const volatile __u32 retransmit_error;    /* where it does without BTF; 0 is nowhere */
const volatile __u32 sampled_one_of = 1;  /* of reads and writes */

/* What the programs could not do, by cause; Go has the same list. */
enum { LOST_COMPAT, LOST_OPEN, LOST_CALLER, LOST_NET, LOST_OWNER, LOST_CHILD, LOST_COUNT };

struct caller {
	__u32 tgid;
	__u32 call;
};

struct open {
	__u64 word; /* see open_word */
	__u64 argument;
	__u32 tgid;
	__s32 fd;
};

struct net_key {
	__u32 tgid; /* 0: no wanted process has used the socket */
	__u32 family;
};

struct net_stat {
	__u64 out_bytes, in_bytes, out_calls, in_calls, out_errors, in_errors, retransmits;
};

struct errors {
	__u64 by[ERRNO_SLOTS];
};

struct process {
	char comm[16];
};

#define MAP(name, kind, entries, k, v)             \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_##kind); \
		__uint(max_entries, entries);      \
		__type(key, k);                    \
		__type(value, v);                  \
	} name SEC(".maps")

MAP(opens, HASH, 32768, __u32, struct open); /* by thread */
MAP(calls, PERCPU_HASH, 8192, struct caller, struct call_stat);
MAP(others, PERCPU_ARRAY, CALL_SLOTS, __u32, struct call_stat); /* of processes that found no room in calls */
MAP(errnos, PERCPU_ARRAY, CALL_SLOTS, __u32, struct errors);
MAP(nets, PERCPU_HASH, 8192, struct net_key, struct net_stat);
MAP(owners, HASH, 16384, __u64, __u32); /* TCP socket to the process that used it last */
MAP(processes, HASH, 8192, __u32, struct process);
MAP(lost, PERCPU_ARRAY, LOST_COUNT, __u32, __u64);
MAP(interval, ARRAY, 1, __u32, __u32); /* number of the one that goes on */
MAP(blank, PERCPU_ARRAY, 1, __u32, struct call_stat); /* zeros: a new value is too large for the stack */
