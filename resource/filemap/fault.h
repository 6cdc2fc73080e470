/* What a thread waits for, the same in BPF and in the user-space C of tests: one page fault from its entry to its
 * return, with the time off the processor inside it; one wait for the disk inside a system call; and runs of file pages
 * that it reads into the page cache. Pure logic: no helpers of BPF, and types that both have. All times are in
 * nanoseconds of CLOCK_MONOTONIC. */
#pragma once

typedef unsigned long long wait_u64;
typedef unsigned int wait_u32;

enum wait_kind {
	WAIT_FAULT = 1,   /* a page fault, entry to return */
	WAIT_CALL = 2,    /* a wait for the disk in a system call */
	WAIT_READ = 3,    /* pages that were read into the page cache */
	WAIT_REQUEST = 4, /* a block request, issue to completion */
};

enum wait_flag {
	WAIT_MAJOR = 1,   /* fault: the kernel counts it as major */
	WAIT_KERNEL = 2,  /* fault: the kernel touched the memory, in a system call */
	WAIT_SLOW = 4,    /* fault: the page was looked up by itself; else it was found among those around it */
	WAIT_AROUND = 8,  /* fault: pages of the file around it were mapped */
	WAIT_WITHIN = 16, /* read: in a page fault */
	WAIT_FAILED = 32, /* request: with an error */
	WAIT_PARTLY = 64, /* request: holds bytes behind those of the file's range */
	WAIT_UNSEEN = 128, /* request: its end was not seen; end_ns is when that was noticed */
};

/* wait_place is where in a file a thread was seen last. */
struct wait_place {
	wait_u64 ino;
	wait_u64 first, last; /* pages */
	wait_u32 dev;         /* major << 20 | minor; 0: nowhere */
	wait_u32 how;         /* WAIT_SLOW, WAIT_AROUND, or neither: in a system call */
};

/* wait_run is a run of neighbouring pages. */
struct wait_run {
	wait_u64 ino, first, pages; /* pages 0: none */
	wait_u64 begin_ns, end_ns;
	wait_u32 dev, flags;
};

struct wait_thread {
	wait_u64 begin_ns; /* of the fault; 0: none is open */
	wait_u64 address;
	wait_u64 off_ns; /* when it left the processor; 0: it is on one */
	wait_u64 blocked_ns, preempted_ns;
	struct wait_place place;
	struct wait_run run;
	wait_u32 flags;  /* of the fault */
	wait_u32 asleep; /* it left the processor to wait, not to make room */
	wait_u32 call;   /* number of the system call that it waits in, +1; 0: none that is looked at */
	wait_u32 tgid;
};

#define WAIT_RUN_PAGES 512

#define WAIT_INLINE static inline __attribute__((always_inline))

/* wait_fault_begin opens a fault. It reports whether one was open: that never returned, or returned by a signal. */
WAIT_INLINE int wait_fault_begin(struct wait_thread *t, wait_u64 now, wait_u64 address, wait_u32 flags)
{
	int open = t->begin_ns != 0;

	t->begin_ns = now;
	t->address = address;
	t->flags = flags;
	t->off_ns = t->blocked_ns = t->preempted_ns = 0;
	t->place.dev = 0;
	return open;
}

/* wait_at notes where in a file the thread is. In a fault a page that was looked up by itself says more than those
 * around it. */
WAIT_INLINE void wait_at(struct wait_thread *t, wait_u32 dev, wait_u64 ino, wait_u64 first, wait_u64 last, wait_u32 how)
{
	if (!how && t->begin_ns)
		t->begin_ns = 0; /* files are not read by calls within a fault: it ended by a signal, or was none */
	if (t->begin_ns) {
		if (how == WAIT_AROUND && (t->flags & WAIT_SLOW))
			return;
		t->flags |= how;
	}
	t->place.dev = dev;
	t->place.ino = ino;
	t->place.first = first;
	t->place.last = last;
	t->place.how = how;
}

/* wait_off: the thread leaves the processor, inside a fault or waiting in a system call. */
WAIT_INLINE void wait_off(struct wait_thread *t, wait_u64 now, int asleep, wait_u32 call)
{
	t->off_ns = 0;
	if (!t->begin_ns && !call)
		return;
	t->off_ns = now;
	t->asleep = asleep;
	t->call = t->begin_ns ? 0 : call;
}

/* wait_on: the thread is on a processor again. It reports whether a wait in a system call ended, which is then from
 * *since to now. */
WAIT_INLINE int wait_on(struct wait_thread *t, wait_u64 now, wait_u64 *since)
{
	wait_u64 gap;

	*since = t->off_ns;
	if (!t->off_ns)
		return 0;
	gap = now > t->off_ns ? now - t->off_ns : 0;
	t->off_ns = 0;
	if (!t->begin_ns)
		return t->call != 0;
	if (t->asleep)
		t->blocked_ns += gap;
	else
		t->preempted_ns += gap;
	return 0;
}

/* wait_run_takes adds pages to a run, or returns 0: they are not of it, and it is to be emitted and begun with them. */
WAIT_INLINE int wait_run_takes(struct wait_run *r, wait_u64 now, wait_u32 dev, wait_u64 ino, wait_u64 first,
			       wait_u64 pages)
{
	if (!r->pages || r->dev != dev || r->ino != ino || r->first + r->pages != first || r->pages >= WAIT_RUN_PAGES)
		return 0;
	r->pages += pages;
	r->end_ns = now;
	return 1;
}

WAIT_INLINE void wait_run_begin(struct wait_run *r, wait_u64 now, wait_u32 dev, wait_u64 ino, wait_u64 first, wait_u64 pages)
{
	r->dev = dev;
	r->ino = ino;
	r->first = first;
	r->pages = pages;
	r->begin_ns = r->end_ns = now;
	r->flags = 0;
}

/* wait_event is what is sent to user space; resource/filemap/event.go knows its layout. */
struct wait_event {
	wait_u64 begin_ns, end_ns;
	wait_u64 at;    /* fault: the address; request: the sector on its device, of 512 bytes */
	wait_u64 ino;   /* with dev the file; dev 0: not known */
	wait_u64 first; /* page in the file */
	wait_u64 last;  /* last page; fault: of those around it; request: of the range that follows first without a gap */
	wait_u64 blocked_ns, preempted_ns;
	wait_u64 bytes; /* request */
	wait_u32 dev, bdev;
	wait_u32 tid, tgid; /* 0: not that of a wanted process */
	wait_u32 call;      /* number of the system call */
	wait_u32 kind_flags; /* kind << 16 | flags */
};
