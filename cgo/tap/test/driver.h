// driver.h: what a GPU's driver was asked to pin.
#ifndef LLAMATAP_TEST_DRIVER_H
#define LLAMATAP_TEST_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

struct driver {
    bool     used;  // the thread has used the device
    int      error; // what pinning returns
    int      calls;
    void *   memory;
    size_t   bytes;
    unsigned flags;
};

#endif
