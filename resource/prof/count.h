/* A system call from its entry, where it is noted under its thread, to its return, where it is counted. */
#pragma once

#include "net.h"

static const __u8 call_of_number[CALL_NUMBERS] = { NUMBERS(CALL_AT) };

/* call_at returns the tracked call of a number, CALL_NONE for others and for those that nobody asked for. A network
 * that is counted by system calls needs those that move bytes. */
static __always_inline __u32 call_at(long number, __u64 second)
{
	__u32 call;

	if (number < 0 || number >= CALL_NUMBERS)
		return CALL_NONE;
	call = call_of_number[number];
	if (number == FUTEX_NUMBER)
		call = call_of_futex(second);
	call &= CALL_SLOTS - 1;
	if (call == CALL_NONE)
		return CALL_NONE;
	if (call_flags[call] & CALL_WAITS ? count_waits : count_calls)
		return call;
	return net_by_calls && call_flags[call] & (CALL_SOCKET | CALL_FILE) ? call : CALL_NONE;
}

static __always_inline struct call_stat *stat_of(__u32 tgid, __u32 call, bool plain)
{
	struct caller key = { tgid, call };
	struct call_stat *s = bpf_map_lookup_elem(&calls, &key), *zeros;
	__u32 zero = 0;

	if (s)
		return s;
	zeros = bpf_map_lookup_elem(&blank, &zero);
	if (zeros)
		bpf_map_update_elem(&calls, &key, zeros, BPF_NOEXIST);
	s = bpf_map_lookup_elem(&calls, &key);
	if (s) {
		name_process(tgid, plain);
		return s;
	}
	lose(LOST_CALLER);
	return bpf_map_lookup_elem(&others, &call);
}

/* begin notes that the thread has entered a call. */
static __always_inline int begin(__u32 call, __s32 fd, __u64 second, __u64 third, __u64 fourth)
{
	__u64 ids = bpf_get_current_pid_tgid();
	__u32 tid = ids, flags = call_flags[call & (CALL_SLOTS - 1)];
	bool timed = sampled_one_of <= 1 || !(flags & CALL_SAMPLED) || bpf_get_prandom_u32() % sampled_one_of == 0;
	struct open now = {
		.word = open_word(bpf_ktime_get_ns(), timed, call), .argument = call_argument(flags, second, third, fourth),
		.tgid = ids >> 32, .fd = fd,
	};
	struct open *o = bpf_map_lookup_elem(&opens, &tid);

	if (o)
		*o = now;
	else if (bpf_map_update_elem(&opens, &tid, &now, BPF_ANY))
		lose(LOST_OPEN);
	return 0;
}

/* message_bytes adds the lengths up of the messages that sendmmsg or recvmmsg moved. A function of its own, so that its
 * loop is verified once. */
__u64 __noinline message_bytes(__u64 at, __u32 count)
{
	__u64 bytes = 0;

	for (__u32 i = 0; i < 1024 && i < count; i++) { /* the kernel takes 1024 at most */
		__u32 length = 0; /* mmsghdr: a msghdr of 56 bytes, then the length */

		bpf_probe_read_user(&length, sizeof length, (void *)(at + 64 * i + 56));
		bytes += length;
	}
	return bytes;
}

/* moved returns how many bytes a successful call moved or was granted. */
static __always_inline __u64 moved(__u32 flags, __s64 result, __u64 argument)
{
	if (flags & CALL_BYTES)
		return result;
	if (flags & (CALL_LENGTH | CALL_LENGTH4))
		return argument;
	return flags & CALL_MESSAGES ? message_bytes(argument, result) : 0;
}

/* A call that has returned. word is 0 where its entry was not seen. */
struct ended {
	__u32 tgid;
	__u32 call;
	__u64 word;
	__u64 argument;
	__s32 fd;
	__s64 result;
};

static __always_inline int end(struct ended *e, bool plain)
{
	__u32 call = e->call & (CALL_SLOTS - 1), flags = call_flags[call], zero = 0, *now;
	bool failed = call_failed(e->result), counted = flags & CALL_WAITS ? count_waits : count_calls;
	__u64 ns = e->word & OPEN_TIMED ? bpf_ktime_get_ns() - open_begin(e->word) : 0; /* first, for the rest takes time too */
	__u64 bytes = failed ? 0 : moved(flags, e->result, e->argument);
	bool peek = flags & (CALL_FLAGS3 | CALL_FLAGS4) && e->argument & PEEK;
	struct call_stat *s;

	if (net_by_calls && !peek && (flags & CALL_SOCKET || (!plain && flags & CALL_FILE && is_socket(e->fd))))
		net_count(e->tgid, 0, flags & CALL_OUT, e->result, bytes, flags & CALL_MESSAGES ? e->result : 1, plain);
	if (!counted)
		return 0;
	s = stat_of(e->tgid, call, plain);
	now = bpf_map_lookup_elem(&interval, &zero);
	if (!s || !now)
		return 0;
	call_count(s, e->result, bytes, !!(e->word & OPEN_TIMED), ns, *now);
	if (failed) {
		__u32 slot = errno_slot(e->result);
		struct errors *errors = bpf_map_lookup_elem(&errnos, &call);

		if (errors && slot < ERRNO_SLOTS)
			errors->by[slot]++;
	}
	return 0;
}

/* noted takes the call out that the thread has noted. */
static __always_inline bool noted(struct ended *e)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct open *o = bpf_map_lookup_elem(&opens, &tid);

	if (!o || !o->word)
		return false;
	e->word = o->word;
	e->argument = o->argument;
	e->fd = o->fd;
	e->call = open_call(o->word);
	o->word = 0;
	return true;
}

static __always_inline bool compat(void)
{
	struct task_struct___prof *task = (void *)bpf_get_current_task_btf();

	return COMPAT(task->thread_info);
}
