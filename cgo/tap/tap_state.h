// tap_state.h: the state of the tap in this process, and what every module of the tap uses.
#ifndef LLAMATAP_TAP_STATE_H
#define LLAMATAP_TAP_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tap_atomic.h"
#include "tap_shm.h"

enum { TAP_MAX_SCHEDS = 64 };

struct tap_sched;

// The tap of this process. header is NULL while nothing is recorded; every interposed function looks at that first.
struct tap {
    struct tap_header * header;
    uint8_t *           base; // start of the shared memory
    // see tap_lock: of queue_head, of the pool's bit map and of the tables of contexts and schedulers
    _Atomic uint32_t    lock;
    uint64_t *          used; // bit map of slots in use, one bit per slot
    size_t              used_words;
    size_t              first_free_word; // no free slot stands before this word
    bool                starved;  // policy drop: the pool was full, and too little of it has come back since
    int64_t             woken_ns; // when the collector was woken for want of room
    uint64_t            none_of; // of so many slots or more no run is free …
    size_t              none_in; // … in this many words, until slots come back
    uint64_t            n_used;
    _Atomic uint64_t    n_ready;    // slots whose pages were touched
    _Atomic uint32_t    pool_waiting; // threads of the model that wait for slots
    uint64_t            reserved;   // reservations so far
    uint32_t            window_of;    // newest window of tokens that has begun: guarded by lock, as is …
    int64_t             window_first; // … the token that the window begins with
    uint8_t *           queue;      // queue_bytes of the shared memory
    uint64_t            queue_bytes;
    _Atomic uint64_t    opened;     // where what is being written begins, or was
    uint64_t            queue_tail; // the collector's place in the queue, when last looked at
    _Atomic bool        recording; // set while this process is recorded
    _Atomic bool        given;     // the memory is mapped, and nothing of llama.cpp was called yet
    bool                joined;    // this process is, or was, the one that is recorded
    bool                aside;     // the tap's own threads were started
    bool                touched;   // … and that which touches the pool
    bool                cut_off;   // there is a collector, whose memory this process was not handed
    _Atomic bool        turning;   // recording in alternation
    _Atomic bool        judged;    // the collector has dealt with the first graph of tokens
    bool                watched;   // a thread of its own notices that the collector is gone
    int                 life_fd;   // pipe whose other end the collector holds; -1: none
    uint32_t            layouts;   // enum tap_layout
    _Atomic bool        counting;  // the collector writes no more: see TAP_COUNTS
    _Atomic int64_t     told_own_ns, told_wait_ns; // of stats, what the ends of executions have reported
    _Atomic uint64_t    next_exec;
    int64_t             next_token; // number of the next token in the run: guarded by lock, as are …
    struct tap_sched *  scheds[TAP_MAX_SCHEDS]; // … these
};

extern struct tap tap;
extern const uint32_t tap_build[2];

// TAP_HOT is what runs for every graph, and lies together; TAP_RARE what does not, and is kept out of its way.
// While a model computes, its weights drive everything else out of the caches: what is run once a token costs as
// much as the lines that its code and data lie in.
#define TAP_HOT __attribute__((section("tap_hot"), noinline))
#define TAP_RARE __attribute__((cold, noinline))

// tap_say writes one line about the recording to stderr. Never in the course of a graph.
void tap_say(const char * text, const char * name, const char * rest);

// tap_collector_lives reports whether the collector still runs.
bool tap_collector_lives(void);

int64_t tap_now(void); // CLOCK_MONOTONIC in nanoseconds

static inline bool tap_on(void) {
    return __builtin_expect(tap.header != NULL && tap_peek(&tap.recording), 0);
}

// TAP_OWN is what each thread has one of, at a place that is known when the program starts: to find it takes no call.
#define TAP_OWN _Thread_local __attribute__((tls_model("initial-exec")))

// What this thread spent inside of the tap that is not the work of the function that measures itself: waiting for
// room, reading new graphs. Both are counted for themselves.
struct tap_thread {
    uint64_t waited_ns, described_ns;
    unsigned team; // threads that copy large tensors of the graph that it computes, see tap_team.h
};
extern TAP_OWN struct tap_thread tap_thread;

// tap_own_until returns the time from began to ended without what the thread has waited and described since before;
// tap_own_since that until now.
static inline uint64_t tap_own_until(int64_t began, int64_t ended, const struct tap_thread * before) {
    const uint64_t other = tap_thread.waited_ns - before->waited_ns + tap_thread.described_ns - before->described_ns;
    const uint64_t all = (uint64_t) (ended - began);
    return all > other ? all - other : 0;
}

static inline uint64_t tap_own_since(int64_t began, const struct tap_thread * before) {
    return tap_own_until(began, tap_now(), before);
}

static inline void tap_add(_Atomic uint64_t * counter, uint64_t n) { tap_count(counter, n); }

void tap_loss_add(enum tap_loss cause, uint64_t packets, uint64_t bytes);
static inline uint8_t * tap_slot(uint64_t number) {
    return tap.base + tap.header->slots_offset + number * tap.header->slot_bytes;
}

#endif
