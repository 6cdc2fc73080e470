// test_pin.c: the slot pool is pinned once, by the driver of a GPU that the model's thread uses.
//
//   test_pin LIBRARY [refuses]
#define _GNU_SOURCE
#include "../tap_state.h"
#include "bed.h"
#include "driver.h"

#include <dlfcn.h>
#include <stdlib.h>

static const int32_t outs[2] = {1, 5};

static void check_capture(struct bed * b) {
    bed_run(b, false);
    log_drain(&b->log);
    struct expected e = bed_expect(b, 0, want_computed, NULL);
    e.run = b->sched->run;
    CHECK(expect_exec(&e) > 0, "nothing was captured: the test does not test");
    log_clear(&b->log);
}

int main(int argc, char ** argv) {
    void * library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    struct driver * driver = library != NULL ? dlsym(library, "driver") : NULL;
    CHECK(driver != NULL, "give the library of driver.c");
    if (driver == NULL) {
        return test_done();
    }
    const bool refuses = argc > 2;
    test_case("pool %s", refuses ? "that a driver does not pin" : "that a driver pins");
    driver->error = refuses ? 2 : 0;
    struct bed b;
    const struct model_options o = {.n_layer = 4, .n_tokens = 6, .n_outputs = 2, .n_kv = 32, .device = true};
    bed_make(&b, &(struct shm_options) {.slots = 1 << 12, .slot_bytes = 1024, .queue_bytes = 1 << 22});
    b.shm.h->config.keep_bytes = 1 << 30;
    b.sched->plans = true;
    model_graph(&b.graph, &o, tokens, positions, outs);
    bed_join(&b);

    check_capture(&b);
    CHECK(driver->calls == 0, "pinned for a thread that has not used the device");
    driver->used = true;
    for (int i = 0; i < 3; i++) {
        check_capture(&b);
    }
    CHECK(driver->calls == 1, "asked the driver %d times", driver->calls);
    const size_t bytes = (size_t) (1 << 12) * 1024;
    CHECK(driver->memory == tap_slot(0) && driver->bytes == bytes && driver->flags == 1,
          "pinned %zu bytes at %p, flags %u", driver->bytes, driver->memory, driver->flags);
    CHECK(b.shm.h->stats.pinned_bytes == (refuses ? 0 : bytes) && b.shm.h->stats.pin_error == (refuses ? 2 : 0),
          "reported %lu bytes and error %lu", (unsigned long) b.shm.h->stats.pinned_bytes,
          (unsigned long) b.shm.h->stats.pin_error);
    no_losses(&b);
    bed_end(&b);
    return test_done();
}
