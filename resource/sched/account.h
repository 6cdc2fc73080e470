/* The accounts of a thread: where its time goes, from one change of its state to the next. Pure logic, the same in BPF
 * and in the user-space C of a test.
 *
 * At each moment a thread is in one state, and the times in the states add up to the time since it was first seen:
 *
 *     ns[0] + ... + ns[STATES - 1] == (mark >> STATE_BITS) - born
 *
 * A reader that finds it otherwise has read while the thread was written, and reads again. Only one processor writes a
 * thread's accounts at any time, because the scheduler moves a thread under its run queue's lock. */
#pragma once

#include "histogram.h"
#include "syscalls.h"

enum thread_state {
	ON_CPU,
	RUNNABLE,      /* pre-empted, or woken, and waiting for a processor */
	BLOCKED_DISK,
	BLOCKED_LOCK,  /* of a file, a semaphore, a real-time kernel */
	BLOCKED_OTHER,
	FUTEX,         /* a lock, or a condition that waits for work: the kernel does not know which */
	IDLE,
	GONE,          /* it ended */
	STATES = 8,
};

#define STATE_BITS 3
#define UNKNOWN (~0ULL)

struct thread_accounts {
	unsigned long long born;           /* when it was first seen, CLOCK_MONOTONIC in ns, as all times here */
	unsigned long long mark;           /* begin of its state << STATE_BITS | state: one word, to read both at once */
	unsigned long long ns[STATES];     /* closed gaps by state */
	unsigned long long voluntary;      /* switches away from it because it slept */
	unsigned long long involuntary;    /* and because it had to make room */
	unsigned long long faults;         /* page faults from user mode */
	unsigned long long minor, major;   /* the kernel's own counts of its faults, at its end */
	unsigned long long minor_first, major_first; /* and when it was first seen */
	unsigned long long wait_max;       /* longest wait for a processor, ns, among those that ended in wait_epoch */
	unsigned long long wait_max_before;/* the same of wait_epoch_before */
	unsigned wait_epoch, wait_epoch_before; /* numbers of intervals between snapshots */
	unsigned waits[HISTOGRAM_SLOTS];   /* waits for a processor, in microseconds, counted when they end */
	unsigned long long delay;          /* the kernel's sum of its waits for a processor when it was left, ns */
	unsigned tgid;
	int call;                          /* last system call that it entered; only where the kernel's types are unknown */
	char comm[16];                     /* its name at its end; until then, when it was first seen */
};

/* The kernel's task states, the same bits since Linux 4.14. */
#define STATE_INTERRUPTIBLE 0x0001
#define STATE_UNINTERRUPTIBLE 0x0002
#define STATE_STOPPED 0x0004
#define STATE_TRACED 0x0008
#define STATE_PARKED 0x0040
#define STATE_DEAD 0x0080
#define STATE_NOLOAD 0x0400
#define STATE_NEW 0x0800
#define STATE_RTLOCK_WAIT 0x1000
#define STATE_FROZEN 0x8000

/* What the tracepoint sched_switch makes of them. */
#define REPORTED_DEAD 0x0010
#define REPORTED_ZOMBIE 0x0020
#define REPORTED_PARKED 0x0040
#define REPORTED_IDLE 0x0080
#define REPORTED_PREEMPTED 0x0100

#if defined(__TARGET_ARCH_arm64) || (!defined(__TARGET_ARCH_x86) && defined(__aarch64__))
#define SYSCALL_NUMBER(amd64, arm64) arm64
#else
#define SYSCALL_NUMBER(amd64, arm64) amd64
#endif

#define SLEEPS_IDLE(name, amd64, arm64) [SYSCALL_NUMBER(amd64, arm64)] = IDLE,
#define SLEEPS_FUTEX(name, amd64, arm64) [SYSCALL_NUMBER(amd64, arm64)] = FUTEX,
#define SLEEPS_LOCK(name, amd64, arm64) [SYSCALL_NUMBER(amd64, arm64)] = BLOCKED_LOCK,
#define SLEEPS_DISK(name, amd64, arm64) [SYSCALL_NUMBER(amd64, arm64)] = BLOCKED_DISK,

/* sleeps says what a sleep in a system call is; 0 is unknown. Calls that a processor lacks share the last place, which
 * is not asked for. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const unsigned char sleeps[SYSCALL_NUMBERS] = {
	SYSCALLS_FUTEX(SLEEPS_FUTEX, SYSCALL_NONE)
	SYSCALLS_LOCK(SLEEPS_LOCK, SYSCALL_NONE)
	SYSCALLS_DISK(SLEEPS_DISK, SYSCALL_NONE)
	SYSCALLS_IDLE(SLEEPS_IDLE, SYSCALL_NONE)
};
#pragma GCC diagnostic pop

/* CALL_OF_KERNEL stands for the call of a kernel thread, which is in none: its interruptible sleep waits for work. */
#define CALL_OF_KERNEL (-2)

static inline enum thread_state sleep_in(int call)
{
	unsigned long long n = (unsigned)call; /* a negative one is large */

	if (call == CALL_OF_KERNEL)
		return IDLE;
	__asm__ volatile("" : "+r"(n)); /* for the kernel's verifier: the bound is asked of the very number that is used */
	if (n >= SYSCALL_NONE)
		return 0;
	return sleeps[n];
}

/* sleep_state decides what a thread waits for that went to sleep, in this order:
 *
 *     the task is dead                                  GONE
 *     the kernel counts it as waiting for I/O           BLOCKED_DISK   (in_iowait)
 *     it waits for a lock of a real-time kernel         BLOCKED_LOCK
 *     it was stopped, parked or frozen                  IDLE
 *     it sleeps without counting as load (idle kernel threads)  IDLE
 *     it sleeps uninterruptibly                         BLOCKED_DISK in a call of SYSCALLS_DISK, else BLOCKED_OTHER
 *     it sleeps interruptibly                           as the system call that it is in says, else BLOCKED_OTHER
 *
 * call is negative outside of a system call, such as in a page fault; CALL_OF_KERNEL in a kernel thread. */
static inline enum thread_state sleep_state(unsigned state, int iowait, int call)
{
	enum thread_state in;

	if (state & STATE_DEAD)
		return GONE;
	if (iowait)
		return BLOCKED_DISK;
	if (state & STATE_RTLOCK_WAIT)
		return BLOCKED_LOCK;
	if (state & (STATE_STOPPED | STATE_PARKED | STATE_FROZEN | STATE_NOLOAD))
		return IDLE;
	if (state & STATE_TRACED)
		return BLOCKED_OTHER;
	in = sleep_in(call);
	if (state & STATE_UNINTERRUPTIBLE)
		return in == BLOCKED_DISK ? BLOCKED_DISK : BLOCKED_OTHER;
	return in ? in : BLOCKED_OTHER;
}

/* reported_state is sleep_state for the tracepoint's state, where in_iowait is unknown: an uninterruptible sleep is
 * taken for one that waits for a disk, which most are. */
static inline enum thread_state reported_state(unsigned long long state, int call)
{
	if (state & (REPORTED_DEAD | REPORTED_ZOMBIE))
		return GONE;
	if (state & (REPORTED_PARKED | REPORTED_IDLE))
		return IDLE;
	return sleep_state(state & (STATE_INTERRUPTIBLE | STATE_UNINTERRUPTIBLE | STATE_STOPPED | STATE_TRACED),
		!!(state & STATE_UNINTERRUPTIBLE), call);
}

static inline enum thread_state thread_state(const struct thread_accounts *t)
{
	return (enum thread_state)(t->mark & (STATES - 1));
}

static inline void thread_begin(struct thread_accounts *t, unsigned long long now, enum thread_state state)
{
	t->mark = now << STATE_BITS | state;
	__asm__ volatile("" : : : "memory"); /* born is last: without it these are no accounts */
	t->born = now;
}

/* thread_enter closes a thread's gap, begins the next and returns the closed one's length, 0 if a clock went back. */
static inline unsigned long long thread_enter(struct thread_accounts *t, unsigned long long now,
					      enum thread_state state)
{
	unsigned long long since = t->mark >> STATE_BITS, gap;

	if (now < since)
		now = since;
	gap = now - since;
	t->ns[t->mark & (STATES - 1)] += gap;
	t->mark = now << STATE_BITS | state;
	return gap;
}

/* thread_leave is a switch away from the thread; RUNNABLE says that it had to make room. */
static inline void thread_leave(struct thread_accounts *t, unsigned long long now, enum thread_state state)
{
	thread_enter(t, now, state);
	if (state == RUNNABLE)
		t->involuntary++;
	else
		t->voluntary++;
}

/* thread_wake is its waking: one that never slept, for it was woken before it could, stays as it is. */
static inline void thread_wake(struct thread_accounts *t, unsigned long long now)
{
	if (thread_state(t) >= BLOCKED_DISK)
		thread_enter(t, now, RUNNABLE);
}

/* thread_waited counts a wait for a processor that has ended. */
static inline void thread_waited(struct thread_accounts *t, unsigned long long wait, unsigned epoch)
{
	unsigned long long slot = histogram_slot(wait / 1000);

	__asm__ volatile("" : "+r"(slot)); /* or the compiler, which knows its bound, drops the mask, by which the kernel's verifier knows it */
	t->waits[slot & (HISTOGRAM_SLOTS - 1)]++;
	if (t->wait_epoch != epoch) {
		t->wait_max_before = t->wait_max;
		t->wait_epoch_before = t->wait_epoch;
		t->wait_max = 0;
		t->wait_epoch = epoch;
	}
	if (wait > t->wait_max)
		t->wait_max = wait;
}

/* thread_run is a switch to it. queued: since its waking, in ns; UNKNOWN if the kernel does not report it. */
static inline void thread_run(struct thread_accounts *t, unsigned long long now, unsigned epoch,
			      unsigned long long queued)
{
	enum thread_state from = thread_state(t);
	unsigned long long gap = thread_enter(t, now, ON_CPU);

	if (from >= BLOCKED_DISK && from != GONE && queued != UNKNOWN) {
		if (queued > gap)
			queued = gap;
		t->ns[from] -= queued;
		t->ns[RUNNABLE] += queued;
		thread_waited(t, queued, epoch);
	} else if (from == RUNNABLE) {
		thread_waited(t, gap, epoch);
	}
}
