/* What is known of block requests, and the pure logic on it: the same in BPF and in the user-space C of
 * requests_test.go. It uses no helper of the kernel. Whoever includes it has __u32, __u64 and bool.
 *
 * A request is known by its address from its start (or its issue) to its completion. Its slot lies in a bucket of one
 * cache line, and, where that is full, in one of a few others; the first slot of a bucket counts those that lie
 * elsewhere. A row is what requests have in common: device, operation, process and control group; each processor counts
 * for itself in counts of that row. Nothing here is ever set back by a reader: snapshots are differences.
 *
 * What a request costs are mostly cache lines, for it comes from an idle processor: its slot, its disk, two of its
 * counts; and, of who made it, the line that remembers what the same task was found to be last. */
#pragma once

#include "histogram.h"

#define BLOCK_WAYS 2            /* slots of a bucket: one cache line */
#define BLOCK_BUCKETS 8192      /* at most; a power of two */
#define BLOCK_OTHERS 16         /* buckets that are looked at where the first is full */
#define BLOCK_SLOTS (BLOCK_BUCKETS * BLOCK_WAYS)
#define BLOCK_DISKS 32          /* disk 0 stands for those that found no room */
#define BLOCK_FIXED 256         /* rows that are there from the start: one for each disk and operation */
#define BLOCK_ROWS (BLOCK_FIXED + 2048)
#define BLOCK_PROBES 16         /* rows that are looked at before there is no room */

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#define BLOCK_APART __attribute__((noinline))

enum block_op { BLOCK_READ, BLOCK_WRITE, BLOCK_DISCARD, BLOCK_FLUSH, BLOCK_OTHER, BLOCK_OPS };

/* Sizes of requests: no data, up to 4, 16, 64, 128, 256 and 1024 KiB, and larger. */
#define BLOCK_SIZES 8

enum block_state { BLOCK_FREE, BLOCK_CLAIMED, BLOCK_READY, BLOCK_RETIRED };

/* What was lost or is odd, each with its cause; the order is that of the Go side. */
enum block_lost {
	BLOCK_LOST_SLOT,      /* no room for a request: it is not seen */
	BLOCK_LOST_ROW,       /* no room for a row: counted in its disk's row without process */
	BLOCK_LOST_DISK,      /* no room for a disk: counted in disk 0 */
	BLOCK_UNMATCHED,      /* completed, but neither start nor issue were seen */
	BLOCK_ORPHAN,         /* its end was not seen: found when its address was used again */
	BLOCK_AGED,           /* its end was not seen: found by looking at old requests */
	BLOCK_LOST_CHILD,     /* no room for a process that the target started: its requests are not seen */
	BLOCK_LOSTS,
};

struct block_slot {
	__u64 key;      /* 0 is free */
	__u64 issue_ns; /* 0 until it is issued, and after it was taken back */
	__u32 bytes;    /* the most that it was issued with */
	__u16 row;
	__u16 disk;     /* index of its row's disk */
	__u32 spilled;  /* of a bucket's first slot: how many requests of this bucket lie in others */
	__u32 pad;
};

struct block_row {
	__u32 state; /* enum block_state */
	__u32 op;
	__u32 device; /* major << 20 | minor; of the partition where there is one */
	__u32 disk;   /* index of its disk */
	__u32 tgid;   /* 0 with no name: all processes that found no room */
	__u32 pad;
	__u64 cgroup;
	__u64 comm[2];
};

struct block_disk {
	__u32 state; /* enum block_state */
	__u32 id;    /* major << 20 | minor */
	__u64 inflight;
	__u64 deepest[2]; /* largest inflight, by the parity of the epoch */
	__u64 pad[4];
};

/* counts are one processor's of one row. What a usual request counts lies in the first line and in its size's
 * latencies. */
struct block_counts {
	__u64 events; /* changes whenever something else does */
	__u64 bytes;
	__u64 service_ns; /* issue to completion */
	__u64 queue_ns;   /* start to issue, of those whose start is known */
	__u64 queued;     /* how many those are */
	__u32 queue[HISTOGRAM_SLOTS]; /* microseconds from start to issue */
	__u64 merges;     /* requests and bios that became part of another one */
	__u64 requeues;
	__u64 errors;
	__u64 unissued;    /* ended without being issued: empty flushes, which wait for the device's own */
	__u64 unissued_ns; /* start to end of those */
	__u64 untimed;     /* have bytes but no latency: their issue or their end was not seen */
	__u64 pad[5];
	__u32 latency[BLOCK_SIZES][HISTOGRAM_SLOTS]; /* microseconds from issue to completion */
};

/* known is what a task's request was found to be. It holds as long as nothing has changed that it was found by: the
 * processes that are wanted, the interval, and the groups that processes are in, of which none is looked up while it is
 * the same set, as the kernel calls it. One processor's, and one cache line. */
struct block_known {
	__u64 turn;    /* of the table */
	__u64 groups;  /* address of the task's set of control groups */
	__u64 comm[2]; /* of its process */
	__u32 tgid;
	__u32 device;
	__u32 op;
	__u16 row;
	__u16 disk;
	__u64 wanted;
	__u64 pad;
};

struct block_table {
	struct block_slot slots[BLOCK_SLOTS]; /* first, so that a bucket is one cache line */
	struct block_row rows[BLOCK_ROWS];
	struct block_disk disks[BLOCK_DISKS];
	__u32 epoch; /* counted up by the reader at each snapshot; by two where processes were added that are wanted */
	__u32 moves; /* counted up when a process came into another control group */
	__u64 pad[7];
	__u64 lost[BLOCK_LOSTS];
};

/* block_op_of sorts an operation (the low byte of cmd_flags) as the kernel's own statistics do: odd ones write. */
static __always_inline unsigned block_op_of(unsigned cmd_flags)
{
	unsigned op = cmd_flags & 0xff;

	switch (op) {
	case 0: return BLOCK_READ;
	case 2: return BLOCK_FLUSH;
	case 3: return BLOCK_DISCARD;
	case 1: case 5: case 7: case 9: return BLOCK_WRITE; /* write, secure erase, zone append, write zeroes */
	}
	return BLOCK_OTHER; /* zone management, passthrough */
}

/* block_op_of_text reads the same from the text of a tracepoint, such as WS, FF or DE. */
static __always_inline unsigned block_op_of_text(char first, char second)
{
	char c = first == 'F' && (second == 'W' || second == 'F' || second == 'D' || second == 'R' || second == 'N') ? second : first;

	return c == 'R' ? BLOCK_READ : c == 'W' ? BLOCK_WRITE : c == 'D' ? BLOCK_DISCARD : c == 'F' ? BLOCK_FLUSH : BLOCK_OTHER;
}

static __always_inline unsigned block_size_of(__u32 bytes)
{
	return bytes == 0 ? 0 : bytes <= 4096 ? 1 : bytes <= 16384 ? 2 : bytes <= 65536 ? 3 :
		bytes <= 131072 ? 4 : bytes <= 262144 ? 5 : bytes <= 1048576 ? 6 : 7;
}

static __always_inline __u64 block_mix(__u64 v)
{
	v *= 0x9e3779b97f4a7c15ull;
	return v ^ v >> 32;
}

/* block_key_of makes a key where the address of a request is not known. */
static __always_inline __u64 block_key_of(__u32 device, __u64 sector, unsigned op)
{
	__u64 key = block_mix(sector ^ (__u64)device << 40) ^ op;

	return key ? key : 1;
}

/* block_turn is what a block_known holds for. */
static __always_inline __u64 block_turn(const struct block_table *t)
{
	return (__u64)*(volatile const __u32 *)&t->moves << 32 | *(volatile const __u32 *)&t->epoch;
}

/* The buckets of a key, as the index of their first slot: other 0 is where it lies unless that is full. buckets is a
 * power of two, less one. */
static __always_inline __u32 block_bucket(__u64 key, __u32 other, __u32 buckets)
{
	__u64 hash = block_mix(key);

	if (other)
		hash = (hash >> 32) + other;
	return (hash & buckets & (BLOCK_BUCKETS - 1)) * BLOCK_WAYS;
}

static __always_inline int block_find_in(const struct block_table *t, __u64 key, __u32 first)
{
	if (t->slots[first].key == key)
		return first;
	return t->slots[first + 1].key == key ? (int)first + 1 : -1;
}

/* block_find_other looks where requests lie whose bucket was full. */
static BLOCK_APART int block_find_other(const struct block_table *t, __u64 key, __u32 buckets)
{
#pragma clang loop unroll(disable)
	for (int i = 1; i <= BLOCK_OTHERS; i++) {
		int at = block_find_in(t, key, block_bucket(key, i, buckets));

		if (at >= 0)
			return at;
	}
	return -1;
}

/* block_find returns the slot of a request, or -1. */
static __always_inline int block_find(const struct block_table *t, __u64 key, __u32 buckets)
{
	__u32 first = block_bucket(key, 0, buckets);
	int at = block_find_in(t, key, first);

	return at < 0 && t->slots[first].spilled ? block_find_other(t, key, buckets) : at;
}

static __always_inline int block_insert_in(struct block_table *t, __u64 key, __u32 first)
{
	if (!t->slots[first].key && __sync_val_compare_and_swap(&t->slots[first].key, 0, key) == 0)
		return first;
	if (!t->slots[first + 1].key && __sync_val_compare_and_swap(&t->slots[first + 1].key, 0, key) == 0)
		return first + 1;
	return -1;
}

/* block_insert_other makes a slot where the request's own bucket is full. */
static BLOCK_APART int block_insert_other(struct block_table *t, __u64 key, __u32 buckets)
{
#pragma clang loop unroll(disable)
	for (int i = 1; i <= BLOCK_OTHERS; i++) {
		__u32 own = block_bucket(key, 0, buckets), first = block_bucket(key, i, buckets);
		int at = first == own ? -1 : block_insert_in(t, key, first);

		if (at >= 0) {
			__sync_fetch_and_add(&t->slots[own].spilled, 1);
			return at;
		}
	}
	__sync_fetch_and_add(&t->lost[BLOCK_LOST_SLOT], 1);
	return -1;
}

/* block_insert makes a slot for a request that has none; -1 is no room, and counted. */
static __always_inline int block_insert(struct block_table *t, __u64 key, __u32 buckets)
{
	int at = block_insert_in(t, key, block_bucket(key, 0, buckets));

	if (at < 0)
		at = block_insert_other(t, key, buckets);
	if (at < 0)
		return -1;
	t->slots[at & (BLOCK_SLOTS - 1)].issue_ns = 0;
	t->slots[at & (BLOCK_SLOTS - 1)].bytes = 0;
	return at;
}

/* block_remove gives a slot back; false says that somebody else did. */
static __always_inline bool block_remove(struct block_table *t, int at, __u64 key, __u32 buckets)
{
	__u32 first = block_bucket(key, 0, buckets);

	at &= BLOCK_SLOTS - 1;
	if (__sync_val_compare_and_swap(&t->slots[at].key, key, 0) != key)
		return false;
	if ((at & ~(BLOCK_WAYS - 1)) != (int)first)
		__sync_fetch_and_add(&t->slots[first].spilled, -1);
	return true;
}

/* block_disk_of returns the index of a disk, and makes it known; 0 is no room. */
static BLOCK_APART __u32 block_disk_of(struct block_table *t, __u32 id)
{
	__u32 start = block_mix(id);

#pragma clang loop unroll(disable)
	for (int i = 0; i < BLOCK_DISKS; i++) {
		__u32 at = (start + i) & (BLOCK_DISKS - 1);
		struct block_disk *d = &t->disks[at];

		if (at == 0)
			continue;
		if (d->state == BLOCK_FREE && __sync_val_compare_and_swap(&d->state, BLOCK_FREE, BLOCK_CLAIMED) == BLOCK_FREE) {
			d->id = id;
			__sync_lock_test_and_set(&d->state, BLOCK_READY);
			return at;
		}
		if (d->state == BLOCK_READY && d->id == id)
			return at;
	}
	__sync_fetch_and_add(&t->lost[BLOCK_LOST_DISK], 1);
	return 0;
}

static __always_inline bool block_same(const struct block_row *a, const struct block_row *b)
{
	/* One branch for all: the verifier follows each way through a program. */
	return !((a->device ^ b->device) | (a->op ^ b->op) | (a->tgid ^ b->tgid) | (a->cgroup ^ b->cgroup) |
		(a->comm[0] ^ b->comm[0]) | (a->comm[1] ^ b->comm[1]));
}

static __always_inline void block_fill(struct block_row *to, const struct block_row *from, __u32 disk)
{
	to->op = from->op;
	to->device = from->device;
	to->disk = disk;
	to->tgid = from->tgid;
	to->cgroup = from->cgroup;
	to->comm[0] = from->comm[0];
	to->comm[1] = from->comm[1];
	__sync_lock_test_and_set(&to->state, BLOCK_READY);
}

/* block_fixed returns the row of a disk and an operation without process, which is always there. */
static __always_inline __u32 block_fixed(struct block_table *t, const struct block_row *want, __u32 disk, __u32 disk_id)
{
	__u32 at = ((disk & (BLOCK_DISKS - 1)) * BLOCK_OPS + want->op) & (BLOCK_FIXED - 1);
	struct block_row *row = &t->rows[at];

	if (row->state == BLOCK_FREE && __sync_val_compare_and_swap(&row->state, BLOCK_FREE, BLOCK_CLAIMED) == BLOCK_FREE) {
		struct block_row bare = { .op = want->op, .device = disk ? disk_id : 0 };

		block_fill(row, &bare, disk);
	}
	return at;
}

/* block_row_of finds or makes the row of want. rows is a power of two less one. The reader adds up rows made twice. */
static __always_inline __u32 block_row_of(struct block_table *t, const struct block_row *want, __u32 disk_id,
					  __u32 rows)
{
	__u64 hash = block_mix(want->device ^ (__u64)want->tgid << 32 ^ want->cgroup * 0xff51afd7ed558ccdull ^ (__u64)want->op << 28);
	__u32 disk;

#pragma clang loop unroll(disable)
	for (int i = 0; i < BLOCK_PROBES; i++) {
		__u32 at = BLOCK_FIXED + ((hash + i) & rows & (BLOCK_ROWS - BLOCK_FIXED - 1));
		struct block_row *row = &t->rows[at];

		if (row->state == BLOCK_READY && block_same(row, want))
			return at;
		if (row->state != BLOCK_FREE)
			continue;
		if (__sync_val_compare_and_swap(&row->state, BLOCK_FREE, BLOCK_CLAIMED) == BLOCK_FREE) {
			block_fill(row, want, block_disk_of(t, disk_id));
			return at;
		}
	}
	__sync_fetch_and_add(&t->lost[BLOCK_LOST_ROW], 1);
	disk = block_disk_of(t, disk_id);
	return block_fixed(t, want, disk, disk_id);
}

/* block_issued notes that a request was given to the device. */
static __always_inline void block_issued(struct block_table *t, int at, __u64 now, __u32 bytes)
{
	struct block_slot *slot = &t->slots[at & (BLOCK_SLOTS - 1)];
	struct block_disk *disk;
	__u64 depth, *deepest;
	bool again = slot->issue_ns != 0;

	slot->issue_ns = now;
	if (slot->bytes < bytes)
		slot->bytes = bytes;
	if (again)
		return;
	disk = &t->disks[slot->disk & (BLOCK_DISKS - 1)];
	depth = __sync_fetch_and_add(&disk->inflight, 1) + 1;
	deepest = &disk->deepest[t->epoch & 1];
	for (int i = 0; i < 4; i++) {
		__u64 was = *deepest;

		if (was >= depth || __sync_val_compare_and_swap(deepest, was, depth) == was)
			break;
	}
}

/* block_withdrawn notes that a request is no longer the device's: completed, taken back, or its end was missed. */
static __always_inline void block_withdrawn(struct block_table *t, const struct block_slot *slot)
{
	if (slot->issue_ns)
		__sync_fetch_and_add(&t->disks[slot->disk & (BLOCK_DISKS - 1)].inflight, -1);
}

/* block_restored takes that back: the request had ended before. */
static __always_inline void block_restored(struct block_table *t, const struct block_slot *slot)
{
	if (slot->issue_ns)
		__sync_fetch_and_add(&t->disks[slot->disk & (BLOCK_DISKS - 1)].inflight, 1);
}

/* block_us is a time in microseconds as a histogram counts it: 1 at least, as A does. A processor takes ten times as
 * long to divide as to multiply, and the compiler for BPF does not know how to divide by a constant without: below 2^32
 * the product is exact. */
static __always_inline __u64 block_us(__u64 ns)
{
	if (ns < 2000)
		return 1;
	return ns >> 32 ? ns / 1000 : ns * 274877907 >> 38;
}

/* What became of a request, for BLOCK_COUNT. */
struct block_end {
	__u64 now;
	__u64 start_ns; /* 0 where the kernel keeps none */
	__u32 bytes;    /* as its completion reported */
	bool error;
};

/* BLOCK_COUNT counts a completed request. add is how a counter is added to: counts that only one program of one
 * processor writes are added to plainly, shared ones atomically. */
#define BLOCK_COUNT(counts, slot, end, add)                                                                        \
	do {                                                                                                          \
		__u64 service = (end)->now > (slot)->issue_ns ? (end)->now - (slot)->issue_ns : 0;                    \
		if ((slot)->issue_ns) {                                                                               \
			add(&(counts)->latency[block_size_of((slot)->bytes)][histogram_slot(block_us(service))], 1); \
			add(&(counts)->service_ns, service);                                                          \
			add(&(counts)->bytes, (slot)->bytes);                                                         \
			if ((end)->start_ns && (end)->start_ns <= (slot)->issue_ns) {                                 \
				__u64 queue = (slot)->issue_ns - (end)->start_ns;                                     \
				add(&(counts)->queue[histogram_slot(block_us(queue))], 1);                            \
				add(&(counts)->queue_ns, queue);                                                      \
				add(&(counts)->queued, 1);                                                            \
			}                                                                                             \
		} else if ((end)->bytes) {                                                                            \
			add(&(counts)->bytes, (end)->bytes);                                                          \
			add(&(counts)->untimed, 1);                                                                   \
		} else {                                                                                              \
			add(&(counts)->unissued, 1);                                                                  \
			if ((end)->start_ns && (end)->start_ns <= (end)->now)                                         \
				add(&(counts)->unissued_ns, (end)->now - (end)->start_ns);                            \
		}                                                                                                     \
		if ((end)->error)                                                                                     \
			add(&(counts)->errors, 1);                                                                    \
		add(&(counts)->events, 1);                                                                            \
	} while (0)

#define BLOCK_PLAINLY(p, n) (*(p) += (n))
#define BLOCK_ATOMICALLY(p, n) __sync_fetch_and_add((p), (n))
