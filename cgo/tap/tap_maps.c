//go:build llama

// tap_maps.c: which file a piece of this process's memory is mapped from.
//
// Asked once per buffer of mapped weights, when a model is loaded.
#define _GNU_SOURCE
#include "tap_buffer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// tap_maps_line takes a line of /proc/self/maps apart. It returns where the path of the file begins that address
// lies in, or NULL.
static const char * tap_maps_line(const char * line, uint64_t address, uint64_t * offset) {
    uint64_t start, end, first;
    int      path = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*4s %" SCNx64 " %*s %*s %n", &start, &end, &first, &path) < 3 ||
        path == 0 || address < start ||
        address >= end || line[path] != '/') {
        return NULL;
    }
    *offset = first + (address - start);
    return line + path;
}

char * tap_mapped_file(const void * at, uint64_t * offset) {
    char   buffer[16 * 1024]; // lines are at most PATH_MAX and some
    size_t n = 0;
    char * found = NULL;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && found == NULL) {
        const ssize_t got = read(fd, buffer + n, sizeof(buffer) - 1 - n);
        if (got <= 0) {
            break;
        }
        n += (size_t) got;
        buffer[n] = 0;
        char * line = buffer;
        for (char * end; found == NULL && (end = strchr(line, '\n')) != NULL; line = end + 1) {
            *end = 0;
            const char * path = tap_maps_line(line, (uint64_t) (uintptr_t) at, offset);
            found = path != NULL ? strdup(path) : NULL;
        }
        n -= (size_t) (line - buffer);
        memmove(buffer, line, n);
    }
    if (fd >= 0) {
        close(fd);
    }
    return found;
}
