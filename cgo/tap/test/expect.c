// expect.c: expectations worked out element by element; nothing here is shared with the tap's own copying.
#define _GNU_SOURCE
#include "expect.h"

#include <stdlib.h>
#include <string.h>

// ---- descriptions ---------------------------------------------------------------------------------------------------

static const uint8_t * seen_node_read(struct seen_node * n, const uint8_t * at) {
    memcpy(&n->head, at, sizeof(n->head));
    const uint8_t * p = at + sizeof(n->head);
    MUST(n->head.n_src <= GGML_MAX_SRC && n->head.name_bytes <= TAP_NAME_SIZE && n->head.op_bytes <= 32);
    memcpy(n->src, p, n->head.n_src * sizeof(int32_t));
    p += n->head.n_src * sizeof(int32_t);
    memcpy(&n->alias, p, sizeof(n->alias));
    p += sizeof(n->alias);
    memcpy(n->name, p, n->head.name_bytes);
    memcpy(n->op, p + n->head.name_bytes, n->head.op_bytes);
    return at + n->head.bytes;
}

static const uint8_t * seen_leaf_read(struct seen_leaf * l, const uint8_t * at) {
    memcpy(&l->head, at, sizeof(l->head));
    MUST(l->head.name_bytes <= TAP_NAME_SIZE);
    memcpy(l->name, at + sizeof(l->head), l->head.name_bytes);
    return at + l->head.bytes;
}

// seen_change puts what has changed of a node or leaf into the description.
static const uint8_t * seen_change(struct seen * s, const uint8_t * at) {
    struct tap_change c;
    memcpy(&c, at, sizeof(c));
    const uint8_t * p = at + sizeof(c);
    MUST(c.which < s->n_nodes && -1 - c.which < s->n_leafs);
    struct tap_node * n = c.which >= 0 ? &s->nodes[c.which].head : NULL;
    struct tap_leaf * l = c.which >= 0 ? NULL : &s->leafs[-1 - c.which].head;
    if (n != NULL) {
        n->rows = c.rows;
        n->row_dim = c.row_dim;
    }
    if (c.of & TAP_CHANGE_PLACE) {
        memcpy(n != NULL ? &n->buffer : &l->buffer, p, sizeof(uint64_t));
        memcpy(n != NULL ? &n->offset : &l->offset, p + sizeof(uint64_t), sizeof(uint64_t));
        p += 2 * sizeof(uint64_t);
    }
    if (c.of & TAP_CHANGE_SHAPE) {
        memcpy(n != NULL ? n->ne : l->ne, p, sizeof(n->ne));
        memcpy(n != NULL ? n->nb : l->nb, p + sizeof(n->ne), sizeof(n->nb));
        if (n != NULL) {
            memcpy(n->op_params, p + sizeof(n->ne) + sizeof(n->nb), sizeof(n->op_params));
        }
    }
    return at + c.bytes;
}

// seen_entries reads what a record holds.
static void seen_entries(struct seen * s, const struct event * e) {
    const struct tap_rec_nodes * r = (const struct tap_rec_nodes *) e->record;
    const uint8_t * at = (const uint8_t *) (r + 1);
    for (uint32_t i = 0; i < r->count; i++) {
        if (e->type == TAP_REC_CHANGES) {
            at = seen_change(s, at);
            s->n_changes++;
        } else if (e->type == TAP_REC_NODES && s->n_nodes < (int) s->head.n_nodes) {
            at = seen_node_read(&s->nodes[s->n_nodes++], at);
        } else if (e->type == TAP_REC_LEAFS && s->n_leafs < (int) s->head.n_leafs) {
            at = seen_leaf_read(&s->leafs[s->n_leafs++], at);
        }
    }
}

// seen_base reads the description that another one is like.
static bool seen_base(struct seen * s, const struct log * l, uint64_t graph) {
    const struct event * e;
    for (size_t i = 0; (e = log_find(l, TAP_REC_GRAPH, i)) != NULL; i++) {
        if (((const struct tap_rec_graph *) e->record)->graph == graph) {
            return seen_read(s, l, i);
        }
    }
    return false;
}

bool seen_read(struct seen * s, const struct log * l, size_t nth) {
    memset(s, 0, sizeof(*s));
    const struct event * e = log_find(l, TAP_REC_GRAPH, nth);
    if (e == NULL) {
        return false;
    }
    const struct tap_rec_graph * head = (const struct tap_rec_graph *) e->record;
    if (head->like == 0) {
        s->nodes = calloc(head->n_nodes + 1u, sizeof(s->nodes[0]));
        s->leafs = calloc(head->n_leafs + 1u, sizeof(s->leafs[0]));
    } else if (!seen_base(s, l, head->like) || s->head.ctx != head->ctx || s->head.n_nodes != head->n_nodes ||
               s->head.n_leafs != head->n_leafs) {
        return false;
    }
    s->head = *head;
    s->n_changes = 0;
    for (e = e->next; e != NULL; e = e->next) {
        if (e->type == TAP_REC_BUFFER) {
            continue; // one that the tap first sees where a tensor lies in it
        }
        if (e->type != TAP_REC_CHANGES && e->type != TAP_REC_NODES && e->type != TAP_REC_LEAFS) {
            break;
        }
        if (((const struct tap_rec_nodes *) e->record)->graph != s->head.graph) {
            return false;
        }
        seen_entries(s, e);
    }
    return s->n_nodes == (int) s->head.n_nodes && s->n_leafs == (int) s->head.n_leafs &&
        s->n_changes == (int) s->head.n_changes;
}

void seen_free(struct seen * s) {
    free(s->nodes);
    free(s->leafs);
    memset(s, 0, sizeof(*s));
}

void expect_places(const struct graph * g, const struct seen * s) {
    CHECK(s->n_nodes == g->cgraph.n_nodes, "%d nodes described, the graph has %d", s->n_nodes, g->cgraph.n_nodes);
    for (int i = 0; i < s->n_nodes && i < g->cgraph.n_nodes; i++) {
        const struct ggml_tensor * t = g->nodes[i];
        const struct seen_node * n = &s->nodes[i];
        const struct known * k = &g->known[t - g->tensors];
        CHECK(strcmp(n->name, t->name) == 0, "node %d is called %s, not %s", i, n->name, t->name);
        CHECK(memcmp(n->head.ne, t->ne, sizeof(t->ne)) == 0 && n->head.type == t->type, "shape or type of %s", t->name);
        CHECK(!(n->head.flags & 4) || n->head.component != TAP_OTHER || s->head.n_tokens == 0, "%s is of no component",
              t->name);
        if (!k->set) {
            continue;
        }
        CHECK(n->head.layer == k->layer, "%s (node %d): layer %d, not %d", t->name, i, n->head.layer, k->layer);
        CHECK(n->head.component == k->component, "%s (node %d): component %d, not %d", t->name, i, n->head.component,
              k->component);
        if (g->n_tokens > 1) { // of a single row, every dimension of size one may be called the row dimension
            CHECK(n->head.rows == k->rows, "%s (node %d): rows %d, not %d", t->name, i, n->head.rows, k->rows);
            CHECK(k->rows == TAP_ROWS_NONE || n->head.row_dim == k->row_dim, "%s (node %d): row dimension %d, not %d",
                  t->name, i,
                  n->head.row_dim, k->row_dim);
        }
    }
}

// ---- selected rows --------------------------------------------------------------------------------------------------

static bool is_output(const struct graph * g, int row) {
    if (g->n_outputs < 0) {
        return row == g->n_tokens - 1;
    }
    for (int i = 0; i < g->n_outputs; i++) {
        if (g->out_ids[i] == row) {
            return true;
        }
    }
    return false;
}

static bool row_selected(const struct graph * g, const struct tap_selection * c, int64_t token_first, int row) {
    const int64_t number = token_first + row;
    switch (c->token_kind) {
        case TAP_TOKENS_ALL:   return true;
        case TAP_TOKENS_LAST:  return is_output(g, row);
        case TAP_TOKENS_RANGE: return number >= c->token_first && (c->token_end < 0 || number < c->token_end);
        case TAP_TOKENS_EVERY: return number % c->token_step == 0;
        default: MUST(!"a token rule that the test does not know"); return false;
    }
}

// ---- elements -------------------------------------------------------------------------------------------------------

// One tensor that is expected, with a count of how often each of its units (elements, or blocks of a quantised
// type) came.
struct cover {
    const struct ggml_tensor * t;
    int64_t   n[4];      // units per dimension
    size_t    unit;      // bytes
    uint8_t * times;
    int       rows, row_dim;
};

static struct ggml_tensor * shown_of(const struct graph * g, int node) {
    struct ggml_tensor * t = g->nodes[node];
    if (t->op == GGML_OP_SET_ROWS) {
        return t->src[0];
    }
    if (t->op == GGML_OP_FLASH_ATTN_EXT) {
        return g->nodes[node + 1]; // the named reshape behind it
    }
    return t;
}

static void cover_init(struct cover * c, const struct graph * g, int node) {
    struct ggml_tensor * t = shown_of(g, node);
    const struct known * k = &g->known[(g->nodes[node]->op == GGML_OP_SET_ROWS ? g->nodes[node] : t) - g->tensors];
    MUST(k->set);
    c->t = t;
    const int64_t per = t->type == GGML_TYPE_Q4_K ? 256 : t->type == GGML_TYPE_Q8_0 ||
        t->type == GGML_TYPE_Q4_0 ? 32 : 1;
    c->unit = type_bytes(t->type, per);
    for (int d = 0; d < 4; d++) {
        c->n[d] = d == 0 ? t->ne[0] / per : t->ne[d];
    }
    c->rows = k->rows;
    c->row_dim = k->row_dim;
    c->times = calloc((size_t) (c->n[0] * c->n[1] * c->n[2] * c->n[3]) + 1, 1);
    MUST(c->times != NULL);
}

static bool unit_equal(const struct cover * c, const int64_t * at, uint64_t run, const uint8_t * got) {
    const struct ggml_tensor * root = c->t->view_src != NULL ? c->t->view_src : c->t;
    size_t offset = (size_t) ((const uint8_t *) c->t->data - (const uint8_t *) root->data);
    for (int d = 0; d < 4; d++) {
        offset += (size_t) at[d] * c->t->nb[d];
    }
    for (size_t k = 0; k < c->unit; k++) {
        if (got[k] != fake_byte(run, (uintptr_t) root->extra, offset + k)) {
            return false;
        }
    }
    return true;
}

// packet_rows finds the rows of the tensor that the packet's run covers: packets name token rows, tensors behind
// the output selection have one row per output. Runs are as long as rows and tokens both go on by one.
static bool run_of(const struct expected * e, const struct cover * c, int64_t token_first, int token, int * row,
                   int * count) {
    const bool outputs = c->rows == TAP_ROWS_OUTPUTS;
    const int n = outputs ? e->graph->n_outputs : e->graph->n_tokens;
    for (int r = 0; r < n; ) {
        const int start = r;
        #define TOKEN(i) (outputs ? e->graph->out_ids[i] : (i))
        if (!row_selected(e->graph, e->config, token_first, TOKEN(r))) {
            r++;
            continue;
        }
        do {
            r++;
        } while (r < n && TOKEN(r) == TOKEN(r - 1) + 1 && row_selected(e->graph, e->config, token_first, TOKEN(r)));
        if (token >= TOKEN(start) && token < TOKEN(start) + r - start) {
            *row = start;
            *count = r - start;
            return true;
        }
        #undef TOKEN
    }
    return false;
}

static void take_packet(const struct expected * e, struct cover * c, const struct tap_rec_capture * p,
                        const uint8_t * data, int64_t token_first) {
    const char * name = c->t->name;
    int64_t size[4] = {c->n[0], c->n[1], c->n[2], c->n[3]}, start[4] = {0};
    int64_t first = 0;
    const int64_t per = c->t->ne[0] == 0 || c->n[0] == 0 ? 1 : c->t->ne[0] / c->n[0];
    if (c->rows != TAP_ROWS_NONE) {
        int row, count;
        if (!run_of(e, c, token_first, p->row_first, &row, &count)) {
            CHECK(false, "%s: a packet of token row %d, which was not selected", name, p->row_first);
            return;
        }
        start[c->row_dim] = row;
        size[c->row_dim] = count;
        const int64_t run_token = c->rows == TAP_ROWS_OUTPUTS ? e->graph->out_ids[row] : row;
        if (p->blocks == 1 && p->row_count != count) { // cut along its rows
            int64_t slice = 1;
            for (int d = 0; d < c->row_dim; d++) {
                slice *= size[d];
            }
            first = (p->row_first - run_token) * slice;
            CHECK(p->ne[c->row_dim] == p->row_count, "%s: %d rows in a packet whose shape has %ld", name, p->row_count,
                  (long) p->ne[c->row_dim]);
        } else {
            CHECK(p->row_first == run_token && p->row_count == count, "%s: rows %d+%d, not %ld+%d", name, p->row_first,
                  p->row_count, (long) run_token, count);
        }
    } else {
        CHECK(p->row_first == 0 && p->row_count == e->graph->n_tokens, "%s: rows %d+%d", name, p->row_first,
              p->row_count);
    }
    if (p->blocks > 1) {
        CHECK(p->block < p->blocks, "%s: block %u of %u", name, p->block, p->blocks);
        CHECK(p->block_start % per == 0, "%s: a block starts inside a quantised block", name);
        first = p->block_start / per;
    }
    const int64_t n = p->ne[0] / per * p->ne[1] * p->ne[2] * p->ne[3];
    CHECK((uint64_t) n * c->unit == p->bytes, "%s: %lu bytes for %ld units of %zu", name, (unsigned long) p->bytes,
          (long) n, c->unit);
    CHECK(first + n <= size[0] * size[1] * size[2] * size[3], "%s: a packet beyond the end", name);
    const uint64_t quarter = e->log->shm->h->n_slots * e->log->shm->h->slot_bytes / 4;
    CHECK(p->bytes <= quarter, "%s: %lu bytes in one packet, more than a quarter of the pool", name,
          (unsigned long) p->bytes);
    for (int64_t i = 0; i < n && first + i < size[0] * size[1] * size[2] * size[3]; i++) {
        int64_t at[4], rest = first + i;
        for (int d = 0; d < 4; d++) {
            at[d] = start[d] + rest % size[d];
            rest /= size[d];
        }
        CHECK(unit_equal(c, at, e->run, data + (size_t) i * c->unit), "%s: element %ld,%ld,%ld,%ld differs", name,
              (long) at[0], (long) at[1],
              (long) at[2], (long) at[3]);
        c->times[((at[3] * c->n[2] + at[2]) * c->n[1] + at[1]) * c->n[0] + at[0]]++;
    }
}

static void cover_check(const struct expected * e, const struct cover * c, bool wanted, int64_t token_first) {
    bool any = false;
    for (int r = 0; r < e->graph->n_tokens; r++) {
        any |= row_selected(e->graph, e->config, token_first, r);
    }
    for (int64_t i = 0; i < c->n[0] * c->n[1] * c->n[2] * c->n[3]; i++) {
        int want = wanted && any;
        if (want && c->rows != TAP_ROWS_NONE) {
            int64_t row = i;
            for (int d = 0; d < c->row_dim; d++) {
                row /= c->n[d];
            }
            row %= c->n[c->row_dim];
            want = row_selected(e->graph, e->config, token_first, c->rows == TAP_ROWS_OUTPUTS ? e->graph->out_ids[row]
                : (int) row);
        }
        CHECK(c->times[i] == want, "%s: unit %ld came %d times, not %d", c->t->name, (long) i, c->times[i], want);
        if (c->times[i] != want) {
            return;
        }
    }
}

size_t expect_exec(const struct expected * e) {
    const struct event * x = log_find(e->log, TAP_REC_EXEC, e->exec);
    CHECK(x != NULL, "execution %zu was not reported", e->exec);
    if (x == NULL) {
        return 0;
    }
    const struct tap_rec_exec * exec = (const struct tap_rec_exec *) x->record;
    size_t packets = 0;
    for (int i = 0; i < e->graph->cgraph.n_nodes; i++) {
        const bool wanted = e->wanted(e->graph, i, e->arg);
        struct cover c = {0};
        for (const struct event * v = x->next; v != NULL && v->type != TAP_REC_EXEC; v = v->next) {
            const struct tap_rec_capture * p = (const struct tap_rec_capture *) v->record;
            if (v->type != TAP_REC_CAPTURE || p->exec != exec->exec || p->node != i) {
                continue;
            }
            CHECK(wanted, "%s (node %d) was captured", e->graph->nodes[i]->name, i);
            CHECK(p->graph == exec->graph, "a packet of graph %lu in an execution of %lu", (unsigned long) p->graph,
                  (unsigned long) exec->graph);
            packets++;
            if (!wanted) {
                break;
            }
            if (c.times == NULL) {
                cover_init(&c, e->graph, i);
            }
            take_packet(e, &c, p, v->data, exec->token_first);
        }
        if (wanted && c.times == NULL) {
            cover_init(&c, e->graph, i);
        }
        if (c.times != NULL) {
            cover_check(e, &c, wanted, exec->token_first);
            free(c.times);
        }
    }
    return packets;
}
