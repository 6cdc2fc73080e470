//go:build llama

// tap_piece.c: tensors on their way to the pool: whole, by rows of tokens, or cut in blocks.
//
// Hot path: per wanted node one copy and three clock readings. No allocation.
#define _GNU_SOURCE
#include "tap_moved.h"
#include "tap_pool.h"
#include "tap_real.h"
#include "tap_sched.h"
#include "tap_team.h"

#include <stdlib.h>
#include <string.h>

// ---- copying --------------------------------------------------------------------------------------------------------

void tap_copy_bytes(uint8_t * dst, const struct ggml_tensor * t, bool host, size_t offset, size_t n) {
    if (host) {
        tap_team_copy(dst, (const uint8_t *) t->data + offset, n, tap_thread.team);
    } else {
        tap_moves_own(true);
        ggml_backend_tensor_get(t, dst, offset, n);
        tap_moves_own(false);
    }
}

// tap_copy copies count[0..3] elements from start[0..3] of t, in logical order, to dst. From a device whose backend is
// given the bytes arrive when that was synchronised.
static bool tap_copy(
    uint8_t * dst, const struct ggml_tensor * t, bool host, ggml_backend_t backend, const int64_t * start,
    const int64_t * count) {
    const size_t type_size = tap_real.ggml_type_size(t->type);
    const int64_t block = tap_real.ggml_blck_size(t->type);
    if (block != 1 && (t->nb[0] != type_size || start[0] % block != 0 || count[0] % block != 0)) {
        return false; // blocks that are cut, or lie apart
    }
    size_t chunk = type_size; // bytes that lie together, and the dimensions that they span
    int inner = 0;
    if (t->nb[0] == type_size) {
        chunk = type_size * (size_t) (count[0] / block);
        inner = 1;
        // The next dimension joins while everything below it is taken whole and it follows without a gap.
        while (inner < TAP_MAX_DIMS && count[inner - 1] == t->ne[inner - 1] && (t->nb[inner] == chunk ||
            count[inner] == 1)) {
            chunk *= (size_t) count[inner];
            inner++;
        }
    }
    size_t base = 0;
    for (int d = 0; d < TAP_MAX_DIMS; d++) {
        base += (size_t) (d == 0 ? start[0] / block : start[d]) * t->nb[d];
    }
    int64_t at[TAP_MAX_DIMS] = {0};
    for (;;) {
        size_t offset = base;
        for (int d = inner; d < TAP_MAX_DIMS; d++) {
            offset += (size_t) at[d] * t->nb[d];
        }
        if (backend != NULL) {
            tap_moves_own(true);
            ggml_backend_tensor_get_async(backend, t, dst, offset, chunk);
            tap_moves_own(false);
        } else {
            tap_copy_bytes(dst, t, host, offset, chunk);
        }
        dst += chunk;
        int d = inner;
        while (d < TAP_MAX_DIMS && ++at[d] == count[d]) {
            at[d++] = 0;
        }
        if (d >= TAP_MAX_DIMS) {
            return true;
        }
    }
}

// ---- publishing -----------------------------------------------------------------------------------------------------

// A piece of a tensor on its way to the pool.
struct tap_piece {
    const struct ggml_tensor * tensor;
    bool     host;
    int32_t  node;
    int64_t  start[TAP_MAX_DIMS];
    int64_t  count[TAP_MAX_DIMS];
    int32_t  row_first, row_count;
    uint32_t block, blocks;
    int64_t  block_start;
    uint32_t purpose; // enum tap_purpose
    bool     cut;     // the graph is stopped for it
    ggml_backend_t backend; // of a device, from which it comes asynchronously; NULL: it is there when it was copied
};

static int64_t tap_piece_elements(const struct tap_piece * p) {
    return p->count[0] * p->count[1] * p->count[2] * p->count[3];
}

static size_t tap_piece_bytes(const struct tap_piece * p) {
    const enum ggml_type type = p->tensor->type;
    return (size_t) (tap_piece_elements(p) / tap_real.ggml_blck_size(type)) * tap_real.ggml_type_size(type);
}

static void tap_piece_lost(struct tap_sched * s, const struct tap_piece * p, enum tap_loss cause) {
    tap_sched_lost(s, cause, 1, tap_piece_bytes(p));
}

// tap_publish hands a tensor that lies in its slots to the collector.
static void tap_publish(struct tap_sched * s, struct tap_rec_capture * rec) {
    rec->mono_ns = (uint64_t) tap_now();
    if (!tap_queue_put(&rec->h, sizeof(*rec), NULL, 0)) {
        tap_pool_cancel(rec->slot, rec->n_slots);
        tap_sched_lost(s, tap_queue_loss(), 1, rec->bytes);
        return;
    }
    if (rec->purpose & TAP_FOR_STREAM) {
        s->selected_packets++;
        s->selected_bytes += rec->bytes;
    }
    tap_add(&tap.header->stats.copies, 1);
    tap_add(&tap.header->stats.copied_bytes, rec->bytes);
}

void tap_transfers_end(struct tap_sched * s) {
    struct tap_transfers * t = &s->transfers;
    for (int i = 0; i < t->n_backends; i++) {
        ggml_backend_synchronize(t->backends[i]);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        tap_publish(s, &t->records[i]);
    }
    t->n = 0;
    t->n_slots = 0;
    t->n_backends = 0;
}

void tap_transfers_release(struct tap_sched * s) {
    free(s->transfers.records);
    memset(&s->transfers, 0, sizeof(s->transfers));
}

// tap_transfers_await publishes what is under way where it would, with n slots more, hold over a sixteenth of the pool:
// slots come back only when they were published, and a thread that waits for some must not hold those that others
// wait for.
static void tap_transfers_await(struct tap_sched * s, uint64_t n) {
    if (s->transfers.n > 0 && s->transfers.n_slots + n > tap.header->n_slots / 16) {
        tap_transfers_end(s);
    }
}

// tap_transfer_add notes a tensor that is on its way.
static void tap_transfer_add(struct tap_sched * s, struct tap_rec_capture * rec, ggml_backend_t backend) {
    struct tap_transfers * t = &s->transfers;
    int known = 0;
    while (known < t->n_backends && t->backends[known] != backend) {
        known++;
    }
    if (known == TAP_MAX_BACKENDS || !tap_array_grow(&t->records, &t->cap, t->n + 1, sizeof(t->records[0]))) {
        ggml_backend_synchronize(backend);
        tap_publish(s, rec);
        return;
    }
    if (known == t->n_backends) {
        t->backends[t->n_backends++] = backend;
    }
    t->records[t->n++] = *rec;
    t->n_slots += rec->n_slots;
}

static void tap_piece_publish(struct tap_sched * s, const struct tap_piece * p) {
    const size_t bytes = tap_piece_bytes(p);
    if (bytes == 0) {
        return;
    }
    if (s->untold) {
        tap_piece_lost(s, p, s->untold_cause);
        return;
    }
    const uint64_t n = (bytes + tap.header->slot_bytes - 1) / tap.header->slot_bytes;
    enum tap_loss cause = TAP_LOSS_POOL_FULL;
    if (p->backend != NULL) {
        tap_pool_pin();
    }
    tap_transfers_await(s, n);
    const int64_t slot = tap_pool_reserve(n, &s->waited_ns, &cause);
    if (slot < 0) {
        tap_piece_lost(s, p, cause);
        return;
    }
    if (!tap_copy(tap_slot((uint64_t) slot), p->tensor, p->host, p->backend, p->start, p->count)) {
        tap_pool_cancel((uint64_t) slot, n);
        tap_piece_lost(s, p, TAP_LOSS_STRIDES);
        return;
    }
    struct tap_rec_capture rec = {
        .h.type = TAP_REC_CAPTURE, .exec = s->exec, .graph = s->graph.id, .node = p->node,
        .slot = (uint32_t) slot, .n_slots = (uint32_t) n, .type = (uint32_t) p->tensor->type, .bytes = bytes,
        .ne = {p->count[0], p->count[1], p->count[2], p->count[3]}, .row_first = p->row_first,
        .row_count = p->row_count,
        .block = p->block, .blocks = p->blocks, .block_start = p->block_start, .purpose = p->purpose,
        .cut = p->cut,
    };
    if (p->backend != NULL) {
        tap_transfer_add(s, &rec, p->backend);
    } else {
        tap_publish(s, &rec);
    }
}

// TAP_PIECE_MAX bounds a packet in bytes, so that a reader needs no more memory for it, and can refuse what claims
// to be larger.
#define TAP_PIECE_MAX ((size_t) 64 << 20)

// tap_piece_split publishes a piece, cut in blocks where it is larger than a quarter of the pool or than
// TAP_PIECE_MAX. Cut along rows, each block is a packet with fewer rows; cut along another dimension, blocks are
// numbered.
static void tap_piece_split(struct tap_sched * s, struct tap_piece * p, int row_dim) {
    const size_t quarter = tap.header->n_slots * tap.header->slot_bytes / 4;
    const size_t most = quarter < TAP_PIECE_MAX ? quarter : TAP_PIECE_MAX;
    if (tap_piece_bytes(p) <= most) {
        tap_piece_publish(s, p);
        return;
    }
    const enum ggml_type type = p->tensor->type;
    const int64_t unit = tap_real.ggml_blck_size(type);
    int64_t slice = 1; // elements of one step along dim
    int dim = 0;
    while (dim < TAP_MAX_DIMS - 1 && (size_t) (slice * p->count[dim] / unit) * tap_real.ggml_type_size(type) <= most) {
        slice *= p->count[dim++];
    }
    const size_t slice_bytes = dim == 0 ? tap_real.ggml_type_size(type)
        : (size_t) (slice / unit) * tap_real.ggml_type_size(type);
    const int64_t per = (int64_t) (most / slice_bytes) * (dim == 0 ? unit : 1);
    int64_t outer = 1;
    for (int d = dim + 1; d < TAP_MAX_DIMS; d++) {
        outer *= p->count[d];
    }
    const int64_t cuts = (p->count[dim] + per - 1) / per;
    const bool by_rows = dim == row_dim && outer == 1;
    const struct tap_piece whole = *p;
    for (int64_t o = 0; o < outer; o++) {
        int64_t rest = o;
        for (int d = dim + 1; d < TAP_MAX_DIMS; d++) {
            p->start[d] = whole.start[d] + rest % whole.count[d];
            rest /= whole.count[d];
            p->count[d] = 1;
        }
        for (int64_t c = 0; c < cuts; c++) {
            p->start[dim] = whole.start[dim] + c * per;
            p->count[dim] = whole.count[dim] - c * per < per ? whole.count[dim] - c * per : per;
            if (by_rows) {
                p->row_first = whole.row_first + (int32_t) (c * per);
                p->row_count = (int32_t) p->count[dim];
            } else {
                p->block = (uint32_t) (o * cuts + c);
                p->blocks = (uint32_t) (outer * cuts);
                p->block_start = (o * whole.count[dim] + c * per) * slice;
            }
            tap_piece_publish(s, p);
        }
    }
}

// tap_capture_tensor publishes the selected rows of one tensor.
static void tap_capture_tensor(struct tap_sched * s, struct tap_piece * p, uint8_t rows, uint8_t row_dim) {
    const struct tap_graph * g = &s->graph;
    const struct ggml_tensor * t = p->tensor;
    for (int d = 0; d < TAP_MAX_DIMS; d++) {
        p->start[d] = 0;
        p->count[d] = t->ne[d];
    }
    p->blocks = 1;
    const int64_t all = rows == TAP_ROWS_OUTPUTS ? g->n_outputs : g->n_tokens;
    const struct tap_run * runs = rows == TAP_ROWS_OUTPUTS ? s->runs + s->n_token_runs : s->runs;
    const int n_runs = rows == TAP_ROWS_OUTPUTS ? s->n_output_runs : s->n_token_runs;
    if (rows == TAP_ROWS_NONE || t->ne[row_dim] != all) {
        if (s->n_token_runs == 0) {
            return;
        }
        p->row_first = 0;
        p->row_count = g->n_tokens;
        tap_piece_split(s, p, -1);
        return;
    }
    for (int i = 0; i < n_runs; i++) {
        struct tap_piece piece = *p;
        piece.start[row_dim] = runs[i].row;
        piece.count[row_dim] = runs[i].count;
        piece.row_first = runs[i].token;
        piece.row_count = runs[i].count;
        tap_piece_split(s, &piece, row_dim);
    }
}

// tap_piece_of is the beginning of a piece of what is captured for node i. kept: it is copied when the graph is
// computed, from where it was computed and not from a copy that the scheduler made of it for another backend.
static struct tap_piece tap_piece_of(struct tap_sched * s, int i, bool kept) {
    const struct tap_graph * g = &s->graph;
    const struct tap_graph_node * n = &g->nodes[i];
    struct tap_piece piece = {.tensor = tap_shown(g, n)->tensor, .host = n->host, .node = i, .cut = !kept};
    if (n->written_rows) {
        piece.tensor = kept ? g->nodes[n->src[0]].tensor : n->tensor->src[0];
        piece.host = kept ? tap_is_here(piece.tensor) : n->host;
    }
    if (kept && !piece.host && tap_real.ggml_backend_tensor_get_async != NULL &&
        tap_real.ggml_backend_sched_get_tensor_backend != NULL && tap_real.ggml_backend_synchronize != NULL) {
        piece.backend =
            tap_real.ggml_backend_sched_get_tensor_backend(s->ptr, (struct ggml_tensor *) piece.tensor);
    }
    return piece;
}

// tap_capture_routing publishes a tensor whole, whatever tokens the selection wants.
static void tap_capture_routing(struct tap_sched * s, int i, bool kept) {
    struct tap_piece piece = tap_piece_of(s, i, kept);
    piece.tensor = s->graph.nodes[i].tensor;
    piece.row_count = s->graph.n_tokens;
    piece.blocks = 1;
    piece.purpose = TAP_FOR_ROUTING;
    for (int d = 0; d < TAP_MAX_DIMS; d++) {
        piece.count[d] = piece.tensor->ne[d];
    }
    tap_piece_split(s, &piece, -1);
}

static void tap_capture_selected(struct tap_sched * s, int i, bool kept) {
    struct tap_piece piece = tap_piece_of(s, i, kept);
    const struct tap_graph_node * shown = tap_shown(&s->graph, &s->graph.nodes[i]);
    piece.purpose = TAP_FOR_STREAM;
    tap_capture_tensor(s, &piece, tap_whole_rows(shown), shown->row_dim);
}

void tap_capture_wanted(struct tap_sched * s, int i) { tap_capture_selected(s, i, false); }

// tap_capture_for copies node i for whatever purpose it is wanted.
static void tap_capture_for(struct tap_sched * s, int i, bool kept) {
    const struct tap_graph_node * n = &s->graph.nodes[i];
    if (n->wanted && s->capturing) {
        tap_capture_selected(s, i, kept);
    }
    if (n->routing && s->routed) {
        tap_capture_routing(s, i, kept);
    }
}

void tap_capture_node(struct tap_sched * s, int i) {
    const int64_t began = tap_now();
    const struct tap_thread before = tap_thread;
    tap_capture_for(s, i, false);
    tap_add(&tap.header->stats.copy_ns, tap_own_since(began, &before));
}

// tap_await_kept waits until devices have computed what is kept of them. That is the model's time: without it, the
// first copy would wait for it as long.
static void tap_await_kept(struct tap_sched * s) {
    const struct tap_graph * g = &s->graph;
    int i = 0;
    while (i < g->n_nodes && (!g->nodes[i].kept || g->nodes[i].host)) {
        i++;
    }
    if (i < g->n_nodes && tap_real.ggml_backend_sched_synchronize != NULL) {
        TAP_REAL(ggml_backend_sched_synchronize)(s->ptr);
    }
}

void tap_capture_kept(struct tap_sched * s) {
    tap_await_kept(s);
    const int64_t began = tap_now();
    const struct tap_thread before = tap_thread;
    const struct tap_graph * g = &s->graph;
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].kept) {
            tap_capture_for(s, i, true);
        }
    }
    tap_transfers_end(s);
    tap_add(&tap.header->stats.copy_ns, tap_own_since(began, &before));
}

void tap_capture_inputs(struct tap_sched * s) {
    const struct tap_graph * g = &s->graph;
    for (int i = 0; i < g->n_leafs; i++) {
        const struct tap_graph_leaf * l = &g->leafs[i];
        if (!l->wanted) {
            continue;
        }
        const struct ggml_tensor * t = l->tensor;
        ggml_backend_buffer_t buffer = t->view_src != NULL ? t->view_src->buffer : t->buffer;
        struct tap_piece piece = {
            .tensor = t, .host = buffer == NULL || tap_real.ggml_backend_buffer_is_host(buffer), .node = -1 - i,
            .purpose = TAP_FOR_STREAM,
        };
        tap_capture_tensor(s, &piece, l->rows, l->row_dim);
    }
}

void tap_sched_lost(struct tap_sched * s, enum tap_loss cause, uint64_t packets, uint64_t bytes) {
    if (!s->lossy) {
        memset(&s->losses, 0, sizeof(s->losses));
        s->lossy = true;
    }
    s->losses.loss[cause].packets += packets;
    s->losses.loss[cause].bytes += bytes;
    s->selected_packets += packets;
    s->selected_bytes += bytes;
    tap_loss_add(cause, packets, bytes);
}
