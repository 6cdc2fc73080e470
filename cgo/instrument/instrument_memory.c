// instrument_memory.c: allocations that the program reported, so that a deallocation has a size and the session a
// peak; and ids.
#define _GNU_SOURCE
#include "instrument.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t bucket(uint64_t key) { return (uint32_t) ((key * 0x9e3779b97f4a7c15ull) >> 52) % INSTR_BUCKETS; }

// grow makes room for one more entry, false where there is none.
static bool grow(struct instr_memory * m) {
    if (m->free != 0 || m->used < m->cap) {
        return true;
    }
    uint32_t cap = m->cap == 0 ? 256 : m->cap * 2;
    struct instr_live * live = m->cap < INSTR_LIVE ? realloc(m->live, cap * sizeof(*live)) : NULL;
    if (live == NULL) {
        return false;
    }
    m->live = live;
    m->cap = cap;
    return true;
}

static uint32_t * next_of(struct instr_live * a, bool by_address) {
    return by_address ? &a->next_address : &a->next_number;
}

static void unlink_from(struct instr_memory * m, uint32_t * heads, bool by_address, uint64_t key, uint32_t index) {
    uint32_t * at = &heads[bucket(key)];
    while (*at != 0 && *at != index + 1) {
        at = next_of(&m->live[*at - 1], by_address);
    }
    if (*at != 0) {
        *at = *next_of(&m->live[index], by_address);
    }
}

static void remove_entry(struct instr_memory * m, uint32_t index) {
    struct instr_live * a = &m->live[index];
    unlink_from(m, m->by_number, false, a->number, index);
    unlink_from(m, m->by_address, true, a->address, index);
    m->live_bytes -= a->bytes;
    a->next_number = m->free;
    m->free = index + 1;
}

// find returns index + 1, or 0.
static uint32_t find(const struct instr_memory * m, uint64_t key, bool by_address) {
    uint32_t at = (by_address ? m->by_address : m->by_number)[bucket(key)];
    while (at != 0) {
        const struct instr_live * a = &m->live[at - 1];
        if ((by_address ? a->address : a->number) == key) {
            break;
        }
        at = by_address ? a->next_address : a->next_number;
    }
    return at;
}

bool instr_memory_add(struct instr_memory * m, const struct instr_live * a) {
    uint32_t old = find(m, a->address, true);
    if (old != 0) { // reported again: what was there is there no more, or it is the same
        m->freed_bytes += m->live[old - 1].bytes;
        remove_entry(m, old - 1);
    }
    if (!grow(m)) {
        m->untracked++;
        return false;
    }
    uint32_t index = m->free != 0 ? m->free - 1 : m->used++;
    if (m->free != 0) {
        m->free = m->live[index].next_number;
    }
    struct instr_live * to = &m->live[index];
    *to = *a;
    to->next_number = m->by_number[bucket(a->number)];
    to->next_address = m->by_address[bucket(a->address)];
    m->by_number[bucket(a->number)] = m->by_address[bucket(a->address)] = index + 1;
    m->live_bytes += a->bytes;
    m->allocated_bytes += a->bytes;
    m->peak_bytes = m->live_bytes > m->peak_bytes ? m->live_bytes : m->peak_bytes;
    return true;
}

static int format_id(char * to, const char * device, const char * type, int layer, const char * component,
                     uint64_t number) {
    return snprintf(to, LLAMA_RESOURCE_ID_SIZE, "%s_%s_layer_%d_%s_%" PRIu64, device, type, layer, component, number);
}

bool instr_memory_take(struct instr_memory * m, const char * resource_id, struct instr_live * a) {
    char id[LLAMA_RESOURCE_ID_SIZE];
    const char * digits = resource_id != NULL ? strrchr(resource_id, '_') : NULL;
    errno = 0;
    uint64_t number = digits != NULL && isdigit((unsigned char) digits[1]) ? strtoull(digits + 1, NULL, 10) : 0;
    uint32_t at = number != 0 && errno == 0 ? find(m, number, false) : 0;
    if (at != 0) {
        *a = m->live[at - 1];
        format_id(id, a->device, "memory", a->layer_id, a->component, a->number);
    }
    if (at == 0 || strcmp(id, resource_id) != 0) {
        m->unmatched++;
        return false;
    }
    remove_entry(m, at - 1);
    m->freed_bytes += a->bytes;
    return true;
}

void instr_memory_free(struct instr_memory * m) {
    free(m->live);
    memset(m, 0, sizeof(*m));
}

void instr_device(char * to, size_t size, const char * name, bool host) {
    instr_copy(to, size, name != NULL ? name : host ? "cpu" : "none");
    for (char * c = to; *c != 0; c++) {
        *c = (char) tolower((unsigned char) *c);
    }
}

void instr_id(struct instr_call * c, char * to, const char * device, const char * type, int layer,
              const char * component) {
    struct llama_resource_instr * s = c->instr;
    char kept[INSTR_TEXT + 1];
    uint64_t us = (uint64_t) ((int64_t) c->mono_ns + s->unix_offset_ns) / 1000;
    s->last_id_us = us > s->last_id_us ? us : s->last_id_us + 1;
    instr_copy(kept, sizeof(kept), component);
    format_id(to, device, type, layer, kept, s->last_id_us);
}
