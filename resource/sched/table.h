/* The table of threads: an array that the reader maps into its memory. A thread's place is its number, modulo the size,
 * or one of a few others where that is taken, which neighbours do not share; to find it takes one look, mostly, and as
 * much to find that it has none. The reader frees the places of threads that ended. */
#pragma once

#include "kernel.h"
#include "account.h"

#define PLACES 8

const volatile __u32 threads_mask; /* the size, a power of two, less one */

struct thread_slot {
	__u64 key;         /* 0 is free */
	__u8 reached[PLACES]; /* [i]: a thread whose first place this is lies in its i-th other one, or has lain there */
	struct thread_accounts accounts;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8192);
	__uint(map_flags, 1 << 10); /* BPF_F_MMAPABLE */
	__type(key, __u32);
	__type(value, struct thread_slot);
} threads SEC(".maps");

/* Who puts something here first may write: under a thread's key who gives it a place, under slot_claim who takes the
 * place. The number of threads is no key's lower half, so that these are apart. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * 8192 + 256);
	__type(key, __u64);
	__type(value, __u8);
} claims SEC(".maps");

/* Threads that found no place. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static __always_inline void count_lost(void)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&lost, &zero);

	if (n)
		*n += 1;
}

/* thread_key names a thread. tid alone is used again; with the time of its start it is not. Where the kernel's types
 * are unknown start is 0. */
static __always_inline __u64 thread_key(__u32 tid, __u32 start)
{
	return (__u64)start << 32 | tid;
}

/* place_of is the i-th place of a thread. */
static __always_inline __u32 place_of(__u32 tid, __u32 i)
{
	return i ? tid * 2654435769u * (2 * i + 1) >> 16 : tid;
}

static __always_inline __u64 slot_claim(__u32 index)
{
	return (__u64)(index & threads_mask) << 32;
}

static __always_inline struct thread_slot *slot_at(__u32 index)
{
	index &= threads_mask;
	return bpf_map_lookup_elem(&threads, &index);
}

/* accounts_in returns the accounts in a slot, if they are those of the key and have begun. */
static __always_inline struct thread_accounts *accounts_in(struct thread_slot *slot, __u64 key)
{
	return slot && slot->key == key && slot->accounts.born ? &slot->accounts : NULL;
}

static __always_inline struct thread_accounts *find(__u64 key)
{
	struct thread_slot *home = slot_at((__u32)key);
	struct thread_accounts *t = accounts_in(home, key);

	if (t || !home || !*(__u64 *)home->reached)
		return t;
#pragma unroll
	for (int i = 1; i < PLACES; i++) {
		if (home->reached[i] && (t = accounts_in(slot_at(place_of((__u32)key, i)), key)))
			return t;
	}
	return NULL;
}

/* begin opens the accounts of a thread, unless it has some. */
static __always_inline struct thread_accounts *begin(__u64 key, __u32 tgid, __u64 now, enum thread_state state)
{
	struct thread_slot *home = slot_at((__u32)key), *slot;
	struct thread_accounts *t;
	__u8 yes = 1;

	if (!home || find(key) || bpf_map_update_elem(&claims, &key, &yes, BPF_NOEXIST))
		return NULL; /* it has, or another processor is about to */
#pragma unroll
	for (int i = 0; i < PLACES; i++) {
		__u64 claim = slot_claim(place_of((__u32)key, i));

		if (bpf_map_update_elem(&claims, &claim, &yes, BPF_NOEXIST))
			continue;
		slot = slot_at(place_of((__u32)key, i));
		if (!slot)
			return NULL;
		if (i > 0)
			home->reached[i] = 1;
		t = &slot->accounts;
		t->tgid = tgid;
		t->call = -1;
		slot->key = key;
		thread_begin(t, now, state);
		return t;
	}
	bpf_map_delete_elem(&claims, &key);
	count_lost();
	return NULL;
}
