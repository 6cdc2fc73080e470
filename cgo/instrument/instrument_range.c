// instrument_range.c: layers and components that are open, of each thread.
#define _GNU_SOURCE
#include "instrument.h"

#include <ctype.h>
#include <stdlib.h>

struct instr_thread * instr_thread(struct llama_resource_instr * s, bool claim) {
    pthread_t self = pthread_self();
    struct instr_thread * unused = NULL;
    for (uint32_t i = 0; i < s->threads_used; i++) {
        struct instr_thread * t = &s->threads[i];
        if (t->depth > 0 && pthread_equal(t->id, self)) {
            return t;
        }
        if (t->depth == 0 && unused == NULL) {
            unused = t;
        }
    }
    if (!claim) {
        return NULL;
    }
    if (unused == NULL && s->threads_used < INSTR_THREADS) {
        unused = &s->threads[s->threads_used++];
    }
    if (unused != NULL) {
        unused->id = self;
        unused->looking_ns = 0;
    }
    return unused;
}

void instr_forget_ranges(struct llama_resource_instr * s) {
    for (uint32_t i = 0; i < s->threads_used; i++) {
        s->left_open += (uint64_t) s->threads[i].depth;
        s->threads[i].depth = 0;
    }
    s->threads_used = 0;
}

// by_name returns the layer in a tensor's name, as llama.cpp gives names: blk.12.attn_q.weight, Qcur-12,
// cache_k_l12; or -1.
static int by_name(const char * name) {
    const char * digits = NULL;
    char * end;
    if (name == NULL) {
        return -1;
    }
    const char * dash = strrchr(name, '-');
    if (strncmp(name, "blk.", 4) == 0) {
        digits = name + 4;
    } else if (strncmp(name, "cache_", 6) == 0 && strstr(name, "_l") != NULL) {
        digits = strstr(name, "_l") + 2;
    } else if (dash != NULL) {
        digits = dash + 1;
    }
    if (digits == NULL || !isdigit((unsigned char) digits[0])) {
        return -1;
    }
    long layer = strtol(digits, &end, 10);
    bool whole = *end == 0 || *end == ' ' || (digits == name + 4 && *end == '.');
    return whole && layer <= 65535 ? (int) layer : -1;
}

int instr_layer(struct llama_resource_instr * s, const char * tensor_name) {
    struct instr_thread * t = instr_thread(s, false);
    for (int i = t != NULL ? t->depth - 1 : -1; i >= 0; i--) {
        if (t->open[i].layer) {
            return t->open[i].layer_id;
        }
    }
    return by_name(tensor_name);
}

static void add(struct instr_work * to, const struct instr_work * more) {
    to->flops += more->flops;
    to->memory_bytes += more->memory_bytes;
    to->memory_operations += more->memory_operations;
    to->compute_operations += more->compute_operations;
    to->without_flops += more->without_flops;
}

void instr_work(struct llama_resource_instr * s, const struct instr_work * more) {
    struct instr_thread * t = instr_thread(s, false);
    add(&s->total, more);
    for (int i = 0; t != NULL && i < t->depth; i++) {
        add(&t->open[i].work, more);
    }
}

// push opens a range in this thread, from now on. NULL where there is no room: then it is not timed.
static struct instr_range * push(struct instr_call * c) {
    struct llama_resource_instr * s = c->instr;
    struct instr_thread * t = instr_thread(s, true);
    if (t == NULL || t->depth == INSTR_DEPTH) {
        s->left_open++;
        return NULL;
    }
    struct instr_range * r = &t->open[t->depth++];
    memset(r, 0, sizeof(*r));
    r->start_ns = instr_now(); // writing its beginning is not in it
    r->looking_ns = t->looking_ns + (r->start_ns - c->mono_ns);
    return r;
}

// pop takes the newest range that is wanted out, and what was opened behind it and left open.
static bool pop(struct llama_resource_instr * s, bool layer, int layer_id, const char * name,
                struct instr_range * out) {
    struct instr_thread * t = instr_thread(s, false);
    char kept[INSTR_NAME];
    instr_copy(kept, sizeof(kept), name);
    for (int i = t != NULL ? t->depth - 1 : -1; i >= 0; i--) {
        struct instr_range * r = &t->open[i];
        if (r->layer == layer && (layer ? r->layer_id == layer_id : strcmp(r->name, kept) == 0)) {
            *out = *r;
            out->looking_ns = t->looking_ns - r->looking_ns;
            s->left_open += (uint64_t) (t->depth - 1 - i);
            t->depth = i;
            return true;
        }
    }
    s->unmatched_ends++;
    return false;
}

static void duration(struct instr_call * c, const struct instr_range * r) {
    uint64_t ns = c->mono_ns > r->start_ns ? c->mono_ns - r->start_ns : 0;
    instr_uint(c->instr, "duration_us", ns / 1000);
    instr_uint(c->instr, "duration_ns", ns);
    instr_uint(c->instr, "looking_ns", r->looking_ns);
}

// ---- layers ---------------------------------------------------------------------------------------------------------

INSTR_API void llama_resource_instr_begin_layer(struct llama_resource_instr * instr, int layer_id) {
    struct instr_call c;
    if (!instr_enter(&c, instr)) {
        return;
    }
    struct instr_thread * t = instr_thread(instr, false);
    for (int i = 0; t != NULL && i < t->depth; i++) { // a layer is in no other layer
        if (t->open[i].layer) {
            instr->left_open += (uint64_t) (t->depth - i);
            t->depth = i;
        }
    }
    bool report = instr->level >= INSTR_LEVEL_DETAILED;
    if (report) {
        instr_begin(&c, INSTR_LAYER_BEGIN, "measured");
        instr_int(instr, "layer_id", layer_id);
        instr_end(&c);
    }
    struct instr_range * r = push(&c);
    if (r != NULL) {
        r->layer = true;
        r->reported = report;
        r->layer_id = layer_id;
    }
    instr_leave(&c);
}

INSTR_API void llama_resource_instr_end_layer(struct llama_resource_instr * instr, int layer_id) {
    struct instr_call c;
    struct instr_range r;
    if (!instr_enter(&c, instr)) {
        return;
    }
    if (pop(instr, true, layer_id, NULL, &r) && r.reported) {
        instr_begin(&c, INSTR_LAYER_END, "computed");
        instr_raw(instr, ",\"sources\":{\"duration_us\":\"measured\",\"duration_ns\":\"measured\","
                         "\"looking_ns\":\"measured\",\"memory_operations\":\"measured\","
                         "\"compute_operations\":\"measured\"}");
        instr_int(instr, "layer_id", layer_id);
        duration(&c, &r);
        instr_mib(instr, "layer_memory_mb", r.work.memory_bytes);
        if (r.work.compute_operations > r.work.without_flops || r.work.compute_operations == 0) {
            instr_ratio(instr, "layer_compute_gflops", r.work.flops, 1000000000);
        }
        instr_uint(instr, "memory_operations", r.work.memory_operations);
        instr_uint(instr, "compute_operations", r.work.compute_operations);
        if (r.work.without_flops > 0) {
            instr_uint(instr, "ops_without_flops", r.work.without_flops);
        }
        instr_end(&c);
    }
    instr_leave(&c);
}

// ---- components -----------------------------------------------------------------------------------------------------

INSTR_API void llama_resource_instr_begin_component(struct llama_resource_instr * instr, const char * component_type) {
    struct instr_call c;
    if (!instr_enter(&c, instr)) {
        return;
    }
    int layer = instr_layer(instr, NULL);
    bool report = instr->level >= INSTR_LEVEL_DETAILED;
    if (report) {
        instr_begin(&c, INSTR_COMPONENT_BEGIN, "measured");
        instr_text(instr, "component_type", component_type);
        instr_int(instr, "layer_id", layer);
        instr_end(&c);
    }
    struct instr_range * r = push(&c);
    if (r != NULL) {
        r->reported = report;
        r->layer_id = layer;
        instr_copy(r->name, sizeof(r->name), component_type);
    }
    instr_leave(&c);
}

INSTR_API void llama_resource_instr_end_component(struct llama_resource_instr * instr, const char * component_type) {
    struct instr_call c;
    struct instr_range r;
    if (!instr_enter(&c, instr)) {
        return;
    }
    if (pop(instr, false, 0, component_type, &r) && r.reported) {
        instr_begin(&c, INSTR_COMPONENT_END, "measured");
        instr_text(instr, "component_type", component_type);
        instr_int(instr, "layer_id", r.layer_id);
        duration(&c, &r);
        instr_uint(instr, "compute_operations", r.work.compute_operations);
        instr_end(&c);
    }
    instr_leave(&c);
}
