//go:build llama

// tap_capture.c: one execution of a graph: its token rows at entry, the wanted tensors in their data phase.
//
// Hot path: budget at graph entry 2 µs for a graph seen before; per unwanted node one comparison and a bit; per
// wanted node one copy and three clock readings. No allocation in steady state.
#define _GNU_SOURCE
#include "tap_aside.h"
#include "tap_pool.h"
#include "tap_real.h"
#include "tap_sched.h"
#include "tap_team.h"

#include <stdlib.h>
#include <string.h>

// ---- the eval callback ----------------------------------------------------------------------------------------------

// tap_cuts says whether node n is copied in its data phase.
static inline bool tap_cuts(const struct tap_sched * s, const struct tap_graph_node * n) {
    return ((s->capturing && n->wanted) || (s->routed && n->routing)) && !(s->keeps && n->kept);
}

// tap_ask answers whether ggml shall stop behind node t.
static inline bool tap_ask(struct tap_sched * s, struct ggml_tensor * t) {
    const struct tap_graph * g = &s->graph;
    int i = s->cursor;
    if (__builtin_expect(i >= g->n_nodes || g->nodes[i].tensor != t, 0)) {
        i = tap_graph_find(g, t); // ggml went on elsewhere
        if (i < 0) {
            if (t != s->plan.pad) {
                tap_sched_lost(s, TAP_LOSS_GRAPH_MISMATCH, 1, 0);
            }
            i = -1;
        }
    }
    if (s->stops && i >= g->end) { // another device would compute it
        s->at = -1;
        s->user_wants = false;
        return false;
    }
    s->at = i;
    s->cursor = i + 1;
    const bool wanted = i >= 0 && ((s->timing && g->nodes[i].timed) || tap_cuts(s, &g->nodes[i]) ||
                                   (s->stops && i == g->end - 1));
    s->user_wants = s->user_callback != NULL && s->user_callback(t, true, s->user_data);
    return wanted || s->user_wants;
}

// tap_ask_off answers once recording has ended, in a forked child too: the callback stays with the scheduler for a
// while, and the graph that it is asked for need not be the one that was described.
static bool tap_ask_off(struct tap_sched * s, struct ggml_tensor * t) {
    s->at = -1;
    s->user_wants = s->user_callback != NULL && s->user_callback(t, true, s->user_data);
    return s->user_wants;
}

// tap_data is the data phase of node i.
static inline void tap_data(struct tap_sched * s, int i) {
    const struct tap_graph_node * n = &s->graph.nodes[i];
    const bool timed = s->timing && n->timed, copies = tap_cuts(s, n);
    const int64_t done = timed ? tap_now() : 0;
    if (copies) {
        tap_capture_node(s, i);
    }
    if (timed) {
        tap_time_note(s, i, done, copies ? tap_now() : done);
    }
}

static bool tap_eval(struct ggml_tensor * t, bool ask, void * user_data) {
    struct tap_sched * s = user_data;
    if (ask) {
        return tap_on() ? tap_ask(s, t) : tap_ask_off(s, t);
    }
    const bool last = s->stops && s->at == s->graph.end - 1;
    if (s->at >= 0 && tap.header != NULL) {
        s->n_cuts += !s->user_wants && !last && s->at + 1 < s->graph.n_nodes;
        tap_data(s, s->at);
    }
    if (last) {
        return false; // ggml computes no further
    }
    return s->user_wants ? s->user_callback(t, false, s->user_data) : true;
}

// A clock reading costs more than an ask, so asks are timed together, once per graph: this asks for every node, as
// ggml will.
void tap_time_asks(struct tap_sched * s) {
    const ggml_backend_sched_eval_callback user = s->user_callback;
    s->user_callback = NULL; // what the program's own callback does is not the tap's
    s->cursor = 0;
    const int64_t began = tap_now();
    for (int i = 0; i < s->graph.n_nodes; i++) {
        tap_eval((struct ggml_tensor *) s->graph.nodes[i].tensor, true, s);
    }
    s->asks_ns = (uint64_t) (tap_now() - began);
    s->user_callback = user;
}

// ---- one execution --------------------------------------------------------------------------------------------------

static bool tap_is_i32(const struct ggml_tensor * t, int64_t n) {
    return t != NULL && t->type == GGML_TYPE_I32 && t->ne[0] >= n && (t->data != NULL || t->buffer != NULL);
}

static bool tap_grow(void ** p, size_t * have, size_t want) {
    if (want <= *have) {
        return true;
    }
    void * q = realloc(*p, want * 2);
    if (q == NULL) {
        return false;
    }
    *p = q;
    *have = want * 2;
    return true;
}

// tap_token_selected applies the token rule and the window to the token with number index in the run.
static bool tap_token_selected(const struct tap_sched * s, int64_t index, bool last) {
    const struct tap_token_rule * rule = &s->tokens;
    if (index < s->window_first || index >= s->window_end) {
        return false;
    }
    switch (rule->kind) {
        case TAP_TOKENS_LAST:  return last;
        case TAP_TOKENS_RANGE: return index >= rule->first && (rule->end < 0 || index < rule->end);
        case TAP_TOKENS_EVERY: return rule->step > 0 && index % rule->step == 0;
        default:               return true;
    }
}

// tap_window_left is how many tokens the window has left behind token number next.
static uint32_t tap_window_left(const struct tap_sched * s, int64_t next) {
    if (s->tokens.window <= 0) {
        return UINT32_MAX;
    }
    const int64_t left = s->window_end - next;
    return left <= 0 ? 0 : left < UINT32_MAX ? (uint32_t) left : UINT32_MAX - 1;
}

static void tap_run_add(struct tap_run * runs, int * n, int32_t row, int32_t token) {
    if (*n > 0) {
        struct tap_run * last = &runs[*n - 1];
        if (last->row + last->count == row && last->token + last->count == token) {
            last->count++;
            return;
        }
    }
    runs[(*n)++] = (struct tap_run) {row, token, 1};
}

static bool tap_is_output(const int32_t * out, int32_t n_outputs, int32_t row, int32_t n_tokens) {
    if (n_outputs < 0) {
        return row == n_tokens - 1; // a graph without output ids: the last token stands for the batch
    }
    for (int32_t i = 0; i < n_outputs; i++) {
        if (out[i] == row) {
            return true;
        }
    }
    return false;
}

// tap_make_runs turns the token rule into runs of rows: first those of token rows, behind them those of output rows.
static TAP_RARE bool tap_make_runs(struct tap_sched * s, const int32_t * out, int64_t token_first) {
    const struct tap_graph * g = &s->graph;
    const int32_t n_outputs = g->n_outputs > 0 ? g->n_outputs : 0;
    size_t bytes = s->cap_runs;
    if (!tap_grow((void **) &s->runs, &bytes, (size_t) (g->n_tokens + n_outputs) * sizeof(s->runs[0]))) {
        tap_sched_lost(s, TAP_LOSS_NO_MEMORY, (uint64_t) g->n_wanted, 0);
        return false;
    }
    s->cap_runs = bytes;
    s->n_token_runs = s->n_output_runs = 0;
    if (s->tokens.kind == TAP_TOKENS_ALL && token_first >= s->window_first &&
        token_first + g->n_tokens <= s->window_end) {
        s->runs[s->n_token_runs++] = (struct tap_run) {0, 0, g->n_tokens};
    } else {
        for (int32_t r = 0; r < g->n_tokens; r++) {
            const bool last = s->tokens.kind == TAP_TOKENS_LAST && tap_is_output(out, g->n_outputs, r, g->n_tokens);
            if (tap_token_selected(s, token_first + r, last)) {
                tap_run_add(s->runs, &s->n_token_runs, r, r);
            }
        }
    }
    struct tap_run * runs = s->runs + s->n_token_runs;
    for (int32_t i = 0; i < n_outputs; i++) {
        if (tap_token_selected(s, token_first + out[i], true)) {
            tap_run_add(runs, &s->n_output_runs, i, out[i]);
        }
    }
    return true;
}

static void tap_install(struct tap_sched * s, bool want) {
    if (want) {
        if (!s->installed) {
            tap_real.ggml_backend_sched_set_eval_callback(s->ptr, tap_eval, s);
            s->installed = true;
        }
    } else if (s->installed) {
        tap_real.ggml_backend_sched_set_eval_callback(s->ptr, s->user_callback, s->user_data);
        s->installed = false;
    }
}

// tap_exec_lost counts every packet of an execution none of which will be recorded.
static TAP_RARE void tap_exec_lost(struct tap_sched * s, enum tap_loss cause) {
    s->untold = true;
    s->untold_cause = cause;
    for (int i = 0; i < s->graph.n_nodes; i++) {
        if (s->graph.nodes[i].wanted) {
            tap_capture_wanted(s, i);
        }
    }
    tap_capture_inputs(s);
    s->untold = false;
}

// tap_exec_rows reads the tokens, positions and output rows of an execution and fills its record with them. Returns
// false where it is unknown which rows the tensors of the graph have.
static TAP_HOT bool tap_exec_rows(struct tap_sched * s, struct tap_rec_exec * rec) {
    const struct tap_graph * g = &s->graph;
    const int32_t n = g->n_tokens, n_out = g->n_outputs > 0 ? g->n_outputs : 0;
    const int64_t first = tap_take_tokens(s, n);
    const size_t n_rows = 2 * (size_t) n + (size_t) n_out;
    if (n_rows > TAP_FEW_ROWS && !tap_grow((void **) &s->scratch, &s->scratch_size, n_rows * sizeof(int32_t))) {
        tap_sched_lost(s, TAP_LOSS_NO_MEMORY, (uint64_t) g->n_wanted, 0);
        return false;
    }
    if (n == 0) {
        return true;
    }
    s->rows = n_rows > TAP_FEW_ROWS ? s->scratch : s->few_rows;
    rec->token_first = first;
    rec->left = tap_window_left(s, rec->token_first + n);
    rec->provisional = tap_get(&s->context->provisional);
    rec->n_tokens = (uint32_t) n;
    int32_t * at = s->rows;
    if (tap_is_i32(g->tokens, n)) {
        tap_copy_bytes((uint8_t *) at, g->tokens, g->host_inputs, 0, (size_t) n * sizeof(at[0]));
    } else {
        memset(at, 0xff, (size_t) n * sizeof(at[0])); // embeddings: no ids
    }
    at += n;
    if (tap_is_i32(g->pos, n)) {
        tap_copy_bytes((uint8_t *) at, g->pos, g->host_inputs, 0, (size_t) n * sizeof(at[0]));
        at += n;
        rec->n_pos = (uint32_t) n;
    }
    if (n_out > 0 && tap_is_i32(g->out_ids, n_out)) {
        tap_copy_bytes((uint8_t *) at, g->out_ids, g->host_inputs, 0, (size_t) n_out * sizeof(at[0]));
        rec->n_outputs = (uint32_t) n_out;
    } else if (n_out > 0) { // output rows whose tokens cannot be read
        tap_sched_lost(s, TAP_LOSS_GRAPH_MISMATCH, (uint64_t) g->n_wanted, 0);
        return false;
    }
    if (g->n_wanted == 0 && g->n_inputs_wanted == 0) {
        return true;
    }
    return tap_make_runs(s, at, rec->token_first);
}

// tap_exec_tell reports an execution and the contents of its inputs. Returns false where the collector will not hear
// of it.
static TAP_HOT bool tap_exec_tell(struct tap_sched * s, struct tap_rec_exec * rec) {
    const size_t rows = (size_t) (rec->n_tokens + rec->n_pos + rec->n_outputs) * sizeof(s->rows[0]);
    const size_t bytes = (sizeof(*rec) + rows + 7) & ~(size_t) 7;
    struct tap_out * out = &s->out;
    const bool large = bytes > sizeof(out->bytes);
    out->n = 0;
    out->lost = false;
    if (large) {
        const struct tap_part part = {s->rows, rows};
        if (!tap_queue_put(&rec->h, sizeof(*rec), &part, 1)) {
            return false;
        }
    } else {
        rec->h.bytes = (uint32_t) bytes;
        uint8_t * at = tap_out_room(out, bytes);
        memcpy(at, rec, sizeof(*rec));
        if (rows != 0) {
            memcpy(at + sizeof(*rec), s->rows, rows);
        }
    }
    if (s->graph.n_told > 0 && !tap_get(&tap.counting)) {
        tap_inputs_send(s, out);
    }
    return tap_out_flush(out) || large;
}

// tap_judge_await waits, once, until the collector has seen the first graph of tokens: it may refuse the selection,
// and then ends the program before anything was computed.
static void tap_judge_await(const struct tap_graph * g) {
    if (tap.header->config.judge && g->n_tokens > 0 && !tap_swap(&tap.judged, true)) {
        tap_queue_settle();
    }
}

void tap_described(uint64_t took, bool rebuilt) {
    tap_thread.described_ns += took;
    tap_add(&tap.header->stats.describe_ns, took);
    if (rebuilt) {
        tap_add(&tap.header->stats.rebuilt_ns, took);
    }
}

// tap_exec_new reports a graph that the collector does not know. That is part of describing it.
static TAP_RARE bool tap_exec_new(struct tap_sched * s) {
    const struct tap_thread before = tap_thread;
    const int64_t began = tap_now();
    const bool rebuilt = s->graph.like != 0;
    const bool sent = tap_graph_send(&s->graph, s->context);
    tap_judge_await(&s->graph);
    tap_described(tap_own_since(began, &before), rebuilt);
    return sent;
}

// tap_untold returns what a sum of stats has grown since it was reported last.
static int64_t tap_untold(_Atomic int64_t * reported, uint64_t now) {
    return (int64_t) now - tap_swap(reported, (int64_t) now);
}

static TAP_RARE void tap_losses_send(struct tap_sched * s) {
    s->losses.h = (struct tap_record) {.type = TAP_REC_LOSSES};
    s->losses.exec = s->exec;
    tap_queue_put(&s->losses.h, sizeof(s->losses), NULL, 0);
}

TAP_HOT void tap_exec_begin(struct tap_sched * s, int64_t entered) {
    struct tap_graph * g = &s->graph;
    struct tap_context * c = s->context;
    struct tap_header * h = tap.header;
    if (s->user_callback != NULL && tap_get(&c->provisional)) {
        tap_context_resolve(c, false); // the program looks at what is computed while it is, as llama-imatrix does
        tap_set(&c->provisional, false);
    }
    const uint64_t waited = tap_get(&h->stats.wait_ns);
    const bool reused = g->sent, wants = g->n_tokens > 0 && (g->n_wanted > 0 || g->n_inputs_wanted > 0);
    if (wants && h->config.overflow == TAP_OVERFLOW_DROP && tap_peek(&h->stats.executions) == 0) {
        tap_touch_await();
    }
    s->exec = 1 + tap_count(&tap.next_exec, 1);
    s->wait_before_ns = tap_untold(&tap.told_wait_ns, waited);
    s->lossy = false;
    s->selected_packets = s->selected_bytes = 0;
    s->cursor = 0;
    s->at = -1;
    s->n_times = 0;
    s->n_cuts = 0;
    s->capturing = s->routed = false;
    s->n_token_runs = s->n_output_runs = 0;
    tap_set(&c->last_exec, s->exec);
    struct tap_rec_exec rec = {
        .h.type = TAP_REC_EXEC, .exec = s->exec, .graph = g->id, .call = tap_current_call.number,
        .mono_ns = (uint64_t) entered,
        .token_first = -1, .ctx = tap_get(&c->number), .reused = reused, .left = UINT32_MAX,
        .steer = c->steered != NULL ? c->steer : UINT32_MAX,
    };
    const bool ok = tap_exec_rows(s, &rec);
    bool capture = ok && wants && s->n_token_runs + s->n_output_runs > 0;
    rec.captured = capture;
    const bool reported = (reused || tap_exec_new(s)) && tap_exec_tell(s, &rec);
    if (!reported) {
        if (capture) {
            tap_exec_lost(s, tap_queue_loss());
        }
        capture = false;
    }
    const bool counting = tap_get(&tap.counting);
    if (capture && (counting || tap_pool_passes())) {
        tap_exec_lost(s, counting ? TAP_LOSS_STOPPED : TAP_LOSS_POOL_FULL);
        capture = false;
    }
    if (capture && g->n_inputs_wanted > 0) {
        tap_capture_inputs(s);
    }
    s->capturing = capture && g->n_wanted > 0;
    tap_thread.team = s->capturing ? tap_team_of(c->ptr, g->n_tokens) : 1;
    const bool looks = reported && !counting;
    s->timing = looks && g->n_timed > 0 && tap_budget_times(s, (int64_t) entered) && tap_times_room(s);
    s->routed = looks && g->n_routing > 0;
    // A program that looks at the values while they are computed may change them: what it leaves is not what was
    // computed.
    s->keeps = s->user_callback == NULL;
    s->stops = g->end < g->n_nodes;
    tap_install(s, s->stops || s->timing || ((s->capturing || s->routed) && (g->n_cut > 0 || !s->keeps)));
    if (s->installed && s->asks_of != g->id) {
        s->asks_of = g->id;
        tap_time_asks(s);
        s->cursor = 0;
        s->at = -1;
    }
    if (s->installed) {
        tap_add(&h->stats.asks, (uint64_t) g->n_nodes);
        tap_add(&h->stats.ask_ns, s->asks_ns);
    }
    if (h->config.in_step && !counting) {
        tap_queue_settle();
    }
    s->begin_ns = tap_now();
}

TAP_HOT void tap_exec_end(struct tap_sched * s, enum ggml_status status, int64_t left) {
    const uint64_t cut_ns = tap_cut_probe(s);
    struct tap_stats * st = &tap.header->stats;
    struct tap_rec_exec_end rec = {
        .h.type = TAP_REC_EXEC_END, .exec = s->exec, .mono_ns = (uint64_t) left, .status = (int32_t) status,
        .begin_ns = (uint64_t) s->begin_ns, .async = s->graph.device,
        .selected_packets = s->selected_packets, .selected_bytes = s->selected_bytes,
        .own_ns = tap_untold(&tap.told_own_ns,
                             tap_get(&st->describe_ns) + tap_get(&st->hook_ns) + tap_get(&st->copy_ns) +
                                 tap_get(&st->ask_ns) + tap_get(&st->api_ns)),
        .wait_ns = s->wait_before_ns + tap_untold(&tap.told_wait_ns, tap_get(&st->wait_ns)),
        .wait_before_ns = s->wait_before_ns,
        .cuts = s->n_cuts, .cut_ns = cut_ns,
    };
    if (s->graph.n_timed > 0) {
        tap_budget_done(s, left, cut_ns);
    }
    if (s->n_times > 0) {
        tap_times_send(s);
    }
    if (s->lossy) {
        tap_losses_send(s);
    }
    if (status != GGML_STATUS_SUCCESS) {
        tap_give_back_tokens(s);
    }
    rec.h.bytes = sizeof(rec);
    enum tap_loss cause = TAP_LOSS_QUEUE_FULL;
    struct tap_rec_exec_end * at = tap_queue_open(sizeof(rec), false, &cause);
    if (at != NULL) {
        *at = rec;
        tap_queue_shut(sizeof(rec));
    } else {
        tap_loss_add(cause, 0, sizeof(rec));
    }
    if (at != NULL && s->graph.device && status == GGML_STATUS_SUCCESS) {
        s->running++;
        s->running_exec = s->exec;
    }
    if (tap.header->config.in_step && !tap_get(&tap.counting)) {
        tap_queue_settle();
    }
}

void tap_sync_end(struct tap_sched * s, int64_t began) {
    const int64_t now = tap_now();
    struct tap_rec_sync rec = {
        .h.type = TAP_REC_SYNC, .exec = s->running_exec, .mono_ns = (uint64_t) now, .wait_ns = (uint64_t) (now - began),
        .graphs = s->running,
    };
    s->running = 0;
    tap_queue_put(&rec.h, sizeof(rec), NULL, 0);
}
