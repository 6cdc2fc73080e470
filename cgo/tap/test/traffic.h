// traffic.h: producers that publish captures through pool and queue, and a consumer that checks them.
#ifndef LLAMATAP_TEST_TRAFFIC_H
#define LLAMATAP_TEST_TRAFFIC_H

#include "harness.h"

// A producer publishes captures whose bytes follow from its name and their number.
struct producer {
    struct shm * s;
    uint64_t     name, seed;
    uint64_t     count;     // captures to publish; 0: until killed
    uint64_t     published, refused, refused_bytes;
    pthread_t    thread;
};

// The consumer checks each capture and gives the slots back later and in another order, as codec workers do.
struct consumer {
    struct shm * s;
    uint64_t     seed, next[8], taken, keep; // keep: captures that it holds at most
    bool         gaps;                       // numbers may be missing (policy drop)
    struct { uint64_t slot, n; } held[64];
    int          n_held;
};

// produce publishes one capture, and reports whether there was room for it. producer_main publishes as many as its
// producer is to.
bool   produce(struct producer * p, uint64_t number);
void * producer_main(void * producer);

// consumer_drain takes what there is in the queue and returns how many records that were. consumer_idle gives all
// slots back and sleeps for a moment.
uint64_t consumer_drain(struct consumer * c);
void     consumer_idle(struct consumer * c);

#endif
