/* The system calls that are tracked, and how one is counted: pure logic, the same in BPF and in the user-space C of
 * tests. */
#pragma once

typedef unsigned int call_u32;
typedef unsigned long long call_u64;
typedef long long call_s64;

/* What a call's arguments and result mean. */
enum {
	CALL_BYTES = 1 << 0,    /* returns how many bytes it moved */
	CALL_LENGTH = 1 << 1,   /* its second argument is the length that it grants */
	CALL_LENGTH4 = 1 << 2,  /* its fourth argument is */
	CALL_MESSAGES = 1 << 3, /* returns how many messages it moved; the array of its second argument has their lengths */
	CALL_SAMPLED = 1 << 4,  /* a read or write: may be sampled */
	CALL_SOCKET = 1 << 5,   /* its first argument is a socket */
	CALL_FILE = 1 << 6,     /* its first argument may be one */
	CALL_OUT = 1 << 7,      /* of a socket: sends; else receives */
	CALL_WAITS = 1 << 8,    /* is for waiting: type sync */
	CALL_FLAGS3 = 1 << 9,   /* its third argument are the flags of a receive */
	CALL_FLAGS4 = 1 << 10,  /* its fourth argument are */
};

/* CALL(identifier, name, flags): the order is that of the numbers in maps, from 1 on. prof's table in Go has the
 * same. */
#define CALLS(CALL) \
	CALL(READ, "read", CALL_BYTES | CALL_SAMPLED | CALL_FILE) \
	CALL(WRITE, "write", CALL_BYTES | CALL_SAMPLED | CALL_FILE | CALL_OUT) \
	CALL(PREAD64, "pread64", CALL_BYTES | CALL_SAMPLED) \
	CALL(PWRITE64, "pwrite64", CALL_BYTES | CALL_SAMPLED) \
	CALL(READV, "readv", CALL_BYTES | CALL_SAMPLED | CALL_FILE) \
	CALL(WRITEV, "writev", CALL_BYTES | CALL_SAMPLED | CALL_FILE | CALL_OUT) \
	CALL(PREADV, "preadv", CALL_BYTES | CALL_SAMPLED) \
	CALL(PWRITEV, "pwritev", CALL_BYTES | CALL_SAMPLED) \
	CALL(PREADV2, "preadv2", CALL_BYTES | CALL_SAMPLED) \
	CALL(PWRITEV2, "pwritev2", CALL_BYTES | CALL_SAMPLED) \
	CALL(OPEN, "open", 0) \
	CALL(OPENAT, "openat", 0) \
	CALL(OPENAT2, "openat2", 0) \
	CALL(CLOSE, "close", 0) \
	CALL(FSYNC, "fsync", 0) \
	CALL(FDATASYNC, "fdatasync", 0) \
	CALL(FALLOCATE, "fallocate", CALL_LENGTH4) \
	CALL(MMAP, "mmap", CALL_LENGTH) \
	CALL(MUNMAP, "munmap", CALL_LENGTH) \
	CALL(MADVISE, "madvise", CALL_LENGTH) \
	CALL(SENDTO, "sendto", CALL_BYTES | CALL_SOCKET | CALL_OUT) \
	CALL(SENDMSG, "sendmsg", CALL_BYTES | CALL_SOCKET | CALL_OUT) \
	CALL(SENDMMSG, "sendmmsg", CALL_MESSAGES | CALL_SOCKET | CALL_OUT) \
	CALL(RECVFROM, "recvfrom", CALL_BYTES | CALL_SOCKET | CALL_FLAGS4) \
	CALL(RECVMSG, "recvmsg", CALL_BYTES | CALL_SOCKET | CALL_FLAGS3) \
	CALL(RECVMMSG, "recvmmsg", CALL_MESSAGES | CALL_SOCKET) \
	CALL(SENDFILE, "sendfile", CALL_BYTES | CALL_FILE | CALL_OUT) \
	CALL(CONNECT, "connect", 0) \
	CALL(ACCEPT, "accept", 0) \
	CALL(ACCEPT4, "accept4", 0) \
	CALL(IO_URING_ENTER, "io_uring_enter", 0) \
	CALL(FUTEX_WAIT, "futex", CALL_WAITS) \
	CALL(FUTEX_WAKE, "futex", CALL_WAITS) \
	CALL(FUTEX_OTHER, "futex", CALL_WAITS) \
	CALL(EPOLL_WAIT, "epoll_wait", CALL_WAITS) \
	CALL(EPOLL_PWAIT, "epoll_pwait", CALL_WAITS) \
	CALL(EPOLL_PWAIT2, "epoll_pwait2", CALL_WAITS) \
	CALL(POLL, "poll", CALL_WAITS) \
	CALL(PPOLL, "ppoll", CALL_WAITS) \
	CALL(SELECT, "select", CALL_WAITS) \
	CALL(PSELECT6, "pselect6", CALL_WAITS) \
	CALL(NANOSLEEP, "nanosleep", CALL_WAITS) \
	CALL(CLOCK_NANOSLEEP, "clock_nanosleep", CALL_WAITS)

#define CALL_NUMBER_OF(id, name, flags) CALL_OF_##id,
#define CALL_FLAGS_OF(id, name, flags) [CALL_OF_##id] = (flags),

enum { CALL_NONE, CALLS(CALL_NUMBER_OF) CALL_COUNT };

/* call_argument picks the argument that decides what a call did. */
static inline call_u64 call_argument(call_u32 flags, call_u64 second, call_u64 third, call_u64 fourth)
{
	if (flags & (CALL_LENGTH4 | CALL_FLAGS4))
		return fourth;
	return flags & CALL_FLAGS3 ? third : second;
}

#define CALL_SLOTS 64 /* more than CALL_COUNT, a power of two */

static const unsigned short call_flags[CALL_SLOTS] = { CALLS(CALL_FLAGS_OF) };

/* The kernel's numbers. What a processor lacks is not in its list. futex is entered as FUTEX_OTHER; its operation
 * decides, see call_of_futex. The tests compare both lists with golang.org/x/sys/unix. */
#define NUMBERS_ALIKE(NR) /* since 5.1 all processors have the same */ \
	NR(426, IO_URING_ENTER) NR(437, OPENAT2) NR(441, EPOLL_PWAIT2) NR(449, FUTEX_WAIT) NR(454, FUTEX_WAKE) \
	NR(455, FUTEX_WAIT) NR(456, FUTEX_OTHER)
#define NUMBERS_amd64(NR) NUMBERS_ALIKE(NR) \
	NR(0, READ) NR(1, WRITE) NR(2, OPEN) NR(3, CLOSE) NR(7, POLL) NR(9, MMAP) NR(11, MUNMAP) NR(17, PREAD64) \
	NR(18, PWRITE64) NR(19, READV) NR(20, WRITEV) NR(23, SELECT) NR(28, MADVISE) NR(35, NANOSLEEP) NR(40, SENDFILE) \
	NR(42, CONNECT) NR(43, ACCEPT) NR(44, SENDTO) NR(45, RECVFROM) NR(46, SENDMSG) NR(47, RECVMSG) NR(74, FSYNC) \
	NR(75, FDATASYNC) NR(202, FUTEX_OTHER) NR(230, CLOCK_NANOSLEEP) NR(232, EPOLL_WAIT) NR(257, OPENAT) \
	NR(270, PSELECT6) NR(271, PPOLL) NR(281, EPOLL_PWAIT) NR(285, FALLOCATE) NR(288, ACCEPT4) NR(295, PREADV) \
	NR(296, PWRITEV) NR(299, RECVMMSG) NR(307, SENDMMSG) NR(327, PREADV2) NR(328, PWRITEV2)
#define NUMBERS_arm64(NR) NUMBERS_ALIKE(NR) NR(22, EPOLL_PWAIT) NR(47, FALLOCATE) NR(56, OPENAT) NR(57, CLOSE) \
	NR(63, READ) NR(64, WRITE) NR(65, READV) NR(66, WRITEV) NR(67, PREAD64) NR(68, PWRITE64) NR(69, PREADV) \
	NR(70, PWRITEV) NR(71, SENDFILE) NR(72, PSELECT6) NR(73, PPOLL) NR(82, FSYNC) NR(83, FDATASYNC) \
	NR(98, FUTEX_OTHER) NR(101, NANOSLEEP) NR(115, CLOCK_NANOSLEEP) NR(202, ACCEPT) NR(203, CONNECT) NR(206, SENDTO) \
	NR(207, RECVFROM) NR(211, SENDMSG) NR(212, RECVMSG) NR(215, MUNMAP) NR(222, MMAP) NR(233, MADVISE) \
	NR(242, ACCEPT4) NR(243, RECVMMSG) NR(269, SENDMMSG) NR(286, PREADV2) NR(287, PWRITEV2)

#define CALL_AT(nr, id) [nr] = CALL_OF_##id,
#define CALL_NUMBERS 512 /* more than the largest number */

#define FUTEX_NUMBER_amd64 202
#define FUTEX_NUMBER_arm64 98

/* call_of_futex returns what a futex call is for, by its operation. */
static inline call_u32 call_of_futex(call_u64 operation)
{
	switch (operation & 0x7f) { /* without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME */
	case 0:  /* WAIT */
	case 6:  /* LOCK_PI */
	case 9:  /* WAIT_BITSET */
	case 11: /* WAIT_REQUEUE_PI */
	case 13: /* LOCK_PI2 */
		return CALL_OF_FUTEX_WAIT;
	case 1:  /* WAKE */
	case 5:  /* WAKE_OP */
	case 7:  /* UNLOCK_PI */
	case 10: /* WAKE_BITSET */
		return CALL_OF_FUTEX_WAKE;
	}
	return CALL_OF_FUTEX_OTHER;
}

/* Errors: 0 is a number that is not known, 1 to 133 are those of user space, from 134 on those by which the kernel
 * restarts a call that a signal interrupted (512 ERESTARTSYS to 517). */
enum { ERRNO_LAST = 133, ERRNO_RESTART = 512, ERRNO_RESTARTS = 6, ERRNO_SLOTS = ERRNO_LAST + 1 + ERRNO_RESTARTS };

static inline int call_failed(call_s64 result) { return result < 0 && result >= -4095; }

static inline call_u32 errno_slot(call_s64 result)
{
	call_u64 number = -result;

	if (number <= ERRNO_LAST)
		return number;
	if (number >= ERRNO_RESTART && number < ERRNO_RESTART + ERRNO_RESTARTS)
		return ERRNO_LAST + 1 + (number - ERRNO_RESTART);
	return 0;
}

/* Latencies are counted in units of 64 ns: four slots for each power of two, so that a slot is at most a quarter of its
 * value wide. Slots 0 to 3 hold one unit each; the last holds everything from 7/4 of 2^30 units on, two minutes. */
enum { LATENCY_UNIT = 6, LATENCY_SLOTS = 120 };

static inline call_u32 latency_slot(call_u64 ns)
{
	call_u64 units = ns >> LATENCY_UNIT, rest = units;
	call_u32 power = 0, slot;

	if (units < 4)
		return units;
	/* By halves: BPF has no instruction that counts leading zeros. */
	if (rest >> 32) { power += 32; rest >>= 32; }
	if (rest >> 16) { power += 16; rest >>= 16; }
	if (rest >> 8) { power += 8; rest >>= 8; }
	if (rest >> 4) { power += 4; rest >>= 4; }
	if (rest >> 2) { power += 2; rest >>= 2; }
	if (rest >> 1) { power += 1; }
	slot = (power - 1) * 4 + ((units >> (power - 2)) & 3);
	return slot < LATENCY_SLOTS ? slot : LATENCY_SLOTS - 1;
}

/* What is known of one call of one process, on one processor. Counters only grow. The longest call is kept for the
 * interval that goes on and for the one before, because whoever reads begins a new interval first and reads then.
 * Nobody else writes meanwhile, but somebody may read, from the first field to the last: what is read is whole if
 * count, read first and written last, equals begun. */
struct call_stat {
	call_u64 count;
	call_u64 errors;
	call_u64 bytes;
	call_u64 timed;
	call_u64 ns; /* sum of the timed */
	call_u64 longest;
	call_u64 longest_before;
	call_u32 interval;        /* that longest is of */
	call_u32 interval_before; /* that longest_before is of */
	call_u32 latency[LATENCY_SLOTS];
	call_u64 begun;
};

#define CALL_IN_ORDER() __asm__ volatile("" : : : "memory")

static inline void call_result(struct call_stat *s, call_s64 result, call_u64 bytes)
{
	if (call_failed(result))
		s->errors++;
	else
		s->bytes += bytes;
}

static inline void call_time(struct call_stat *s, call_u64 ns, call_u32 interval)
{
	call_u32 slot = latency_slot(ns);

	s->timed++;
	s->ns += ns;
	if (s->interval != interval) {
		s->longest_before = s->longest;
		s->interval_before = s->interval;
		s->longest = 0;
		s->interval = interval;
	}
	if (ns > s->longest)
		s->longest = ns;
	if (slot < LATENCY_SLOTS) /* always true, but the verifier needs the check */
		s->latency[slot]++;
}

/* call_count counts a call; ns is its time if it was timed. */
static inline void call_count(struct call_stat *s, call_s64 result, call_u64 bytes, int timed, call_u64 ns, call_u32 interval)
{
	s->begun++;
	CALL_IN_ORDER();
	call_result(s, result, bytes);
	if (timed)
		call_time(s, ns, interval);
	CALL_IN_ORDER();
	s->count++;
}

/* A call that has begun: when, whether it is timed, and which, in one word, so that whoever reads it while it is
 * written sees both or neither. 57 bits of nanoseconds are four years since the machine was started. 0 is no call. */
#define OPEN_TIMED 64ull

static inline call_u64 open_word(call_u64 ns, int timed, call_u32 call)
{
	return ns << 7 | (timed ? OPEN_TIMED : 0) | (call & (CALL_SLOTS - 1));
}

static inline call_u64 open_begin(call_u64 word) { return word >> 7; }
static inline call_u32 open_call(call_u64 word) { return word & (CALL_SLOTS - 1); }
