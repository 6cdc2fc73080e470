//go:build llama

// tap_select.c: which nodes and inputs of a graph are wanted, and how that changes while the model computes.
//
// Runs once per new graph, and once per known graph when the collector has changed its mind. Else graph entry pays
// one load.
#define _GNU_SOURCE
#include "tap_aside.h"
#include "tap_real.h"
#include "tap_sched.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

_Atomic bool tap_samples_wanted;

// ---- names ----------------------------------------------------------------------------------------------------------

static bool tap_set_match(const char ** pattern, char c) {
    const char * p = *pattern + 1;
    const bool not = *p == '!' || *p == '^';
    p += not;
    bool hit = false;
    for (bool first = true; *p != 0 && (first || *p != ']'); first = false) {
        if (p[1] == '-' && p[2] != 0 && p[2] != ']') {
            hit |= p[0] <= c && c <= p[2];
            p += 3;
        } else {
            hit |= *p++ == c;
        }
    }
    *pattern = *p == ']' ? p + 1 : p;
    return hit != not;
}

bool tap_glob_match(const char * pattern, const char * text, size_t n) {
    const char * star = NULL;
    size_t at = 0, star_at = 0;
    for (;;) {
        const char * p = pattern;
        bool ok = false;
        if (*p == '*') {
            star = ++pattern;
            star_at = at;
            continue;
        }
        if (at == n) {
            if (*p == 0) {
                return true;
            }
        } else if (*p == '[') {
            ok = tap_set_match(&p, text[at]);
        } else {
            ok = *p != 0 && (*p == '?' || *p == text[at]);
            p += *p != 0;
        }
        if (ok) {
            pattern = p;
            at++;
        } else if (star != NULL && star_at < n) {
            pattern = star;
            at = ++star_at;
        } else {
            return false;
        }
    }
}

// tap_name_base returns how long a name of n bytes is without its layer suffix.
static size_t tap_name_base(const char * name, size_t n) {
    const char * dash = tap_name_layer(name, n) >= 0 ? strrchr(name, '-') : NULL;
    return dash != NULL ? (size_t) (dash - name) : n;
}

static bool tap_name_match(const char * glob, const char * name, size_t n, size_t base) {
    return tap_glob_match(glob, name, n) || (base != n && tap_glob_match(glob, name, base));
}

// tap_number_match matches a glob with the name that a node's packets bear, always with its number: Qcur-0#2, or
// Qcur#2.
static bool tap_number_match(const char * glob, const struct tap_graph * g, const struct tap_graph_node * node) {
    const char * name = tap_shown(g, node)->tensor->name;
    const size_t n = strlen(name), base = tap_name_base(name, n);
    char text[TAP_NAME_SIZE + 8];
    const int full = snprintf(text, sizeof(text), "%s#%u", name, node->number);
    if (tap_glob_match(glob, text, (size_t) full)) {
        return true;
    }
    const int general = snprintf(text, sizeof(text), "%.*s#%u", (int) base, name, node->number);
    return base != n && tap_glob_match(glob, text, (size_t) general);
}

// tap_first_glob returns the first glob that matches node i, or -1. A glob with a # means one of the nodes of a
// name; every other glob means all nodes whose own name, with its layer suffix or without, it matches.
static int tap_first_glob(
    const struct tap_graph * g, const struct tap_selection * wish, int i, _Atomic uint32_t * hits) {
    const struct tap_graph_node * node = &g->nodes[i];
    const char * name = node->tensor->name;
    const size_t n = strlen(name), base = tap_name_base(name, n);
    int first = -1;
    for (uint32_t k = 0; k < wish->n_globs; k++) {
        const char * glob = wish->globs[k];
        if (tap_name_match(glob, name, n, base) || (strchr(glob, '#') != NULL && tap_number_match(glob, g, node))) {
            if (hits != NULL) {
                tap_count(&hits[k], 1);
            }
            first = first < 0 ? (int) k : first;
        }
    }
    return first;
}

static bool tap_layer_wanted(const struct tap_selection * wish, int32_t layer) {
    if (!wish->layers_set) {
        return true;
    }
    return layer >= 0 && layer < TAP_LAYER_WORDS * 64 && (wish->layers[layer / 64] >> (layer % 64) & 1);
}

static bool tap_component_wanted(const struct tap_selection * wish, uint8_t component) {
    switch (wish->granularity) {
        case TAP_ATTENTION_ONLY: return component == TAP_ATTENTION;
        case TAP_MLP_ONLY:       return component == TAP_MLP;
        default:                 return true;
    }
}

// tap_graph_end is behind the node that the logits are computed from, where nobody wants logits. A graph without such
// a node is computed to its end.
static int tap_graph_end(const struct tap_graph * g) {
    for (int i = tap.header->config.no_logits && g->n_tokens > 0 ? g->n_nodes : 0; i > 0; i--) {
        if (strcmp(g->nodes[i - 1].tensor->name, "result_norm") == 0) {
            return i;
        }
    }
    return INT_MAX;
}

// tap_want marks node i, if it is computed.
static void tap_want(struct tap_graph * g, int i) {
    struct tap_graph_node * n = &g->nodes[i];
    if (!n->wanted && i < g->end) {
        n->wanted = true;
        g->n_wanted++;
    }
}

static void tap_select_attention(struct tap_graph * g, const struct tap_selection * wish, int i) {
    struct tap_graph_node * n = &g->nodes[i];
    if (!tap_layer_wanted(wish, n->layer)) {
        return;
    }
    const enum ggml_op op = n->tensor->op;
    if (op == GGML_OP_SOFT_MAX && n->component == TAP_ATTENTION) {
        tap_want(g, i); // no flash attention: the run's own soft-max
        return;
    }
    if (wish->attention != TAP_ATTENTION_KEEP) {
        return;
    }
    if (op == GGML_OP_FLASH_ATTN_EXT) {
        const int32_t q = tap_view_root(g, n->src[0]);
        if (q >= 0) {
            tap_want(g, q);
        }
        const int32_t mask = tap_view_root(g, n->src[3]);
        if (mask >= 0) {
            tap_want(g, mask); // a mask that the graph computes (a cast)
        } else if (mask != INT32_MIN) {
            g->leafs[-1 - mask].wanted = true;
        }
        const int32_t sinks = n->src[4];
        if (sinks < 0 && sinks != INT32_MIN) {
            g->leafs[-1 - sinks].wanted = true;
        }
    } else if (op == GGML_OP_SET_ROWS && g->flash && strncmp(n->tensor->name, "cache_k_l", 9) == 0) {
        tap_want(g, i);
        const int32_t rows = n->src[1];
        if (rows < 0 && rows != INT32_MIN) {
            g->leafs[-1 - rows].wanted = true;
        }
    }
}

// tap_graph_unselect takes the marks of the selection before away.
static void tap_graph_unselect(struct tap_graph * g) {
    for (int i = 0; i < g->n_nodes; i++) {
        g->nodes[i].wanted = false;
        g->nodes[i].glob = -1;
    }
    for (int i = 0; i < g->n_leafs; i++) {
        g->leafs[i].wanted = false;
    }
    g->n_wanted = g->n_inputs_wanted = 0;
}

// tap_select_tensors marks the nodes and inputs whose tensors a selection wants.
static void tap_select_tensors(
    struct tap_graph * g, const struct tap_selection * wish, _Atomic uint32_t * hits) {
    const bool only_attention = (wish->record & TAP_RECORD_MAPS_ALONE) != 0;
    for (int i = 0; i < g->n_nodes; i++) {
        struct tap_graph_node * n = &g->nodes[i];
        if (wish->attention != TAP_ATTENTION_NONE) {
            tap_select_attention(g, wish, i);
        }
        if (wish->points && n->point) {
            tap_want(g, i);
        }
        if (only_attention || (wish->points && wish->n_globs == 0)) {
            continue;
        }
        const bool allowed = tap_layer_wanted(wish, n->layer) && tap_component_wanted(wish, n->component);
        if (wish->n_globs == 0) {
            if (n->computed && allowed) {
                tap_want(g, i);
            }
            continue;
        }
        n->glob = (int8_t) tap_first_glob(g, wish, i, i < g->end ? hits : NULL);
        if (n->glob < 0 || !allowed) {
            continue;
        }
        if (n->computed) {
            tap_want(g, i);
        } else if (n->view && n->src[0] != INT32_MIN) {
            const int32_t root = tap_view_root(g, i);
            if (root >= 0 && g->nodes[root].computed && !g->nodes[root].written_rows) {
                tap_want(g, g->nodes[root].alias == i ? root : i);
            }
        }
    }
    for (int i = 0; i < g->n_leafs; i++) {
        g->n_inputs_wanted += g->leafs[i].wanted;
    }
}

void tap_graph_select(struct tap_graph * g, const struct tap_selection * wish, _Atomic uint32_t * hits) {
    tap_graph_unselect(g);
    g->end = tap_graph_end(g);
    g->attention = wish->attention;
    g->captures = (wish->record & TAP_RECORD_ACTIVATIONS) != 0;
    tap_look(g, wish);
    tap_mark_inputs(g, wish);
    if ((wish->record & TAP_RECORD_ACTIVATIONS) && g->n_tokens > 0) {
        tap_select_tensors(g, wish, hits);
    }
    tap_graph_count(g);
}

// ---- the collector's newest selection -------------------------------------------------------------------------------

// The newest selection that a graph was marked by. Guarded by tap_selecting; the words are those of tap_selection.
static pthread_mutex_t tap_selecting = PTHREAD_MUTEX_INITIALIZER;
static union {
    struct tap_selection wish;
    uint64_t             words[TAP_SELECTION_WORDS];
} tap_newest;
static uint32_t tap_newest_number; // 0: tap_newest was not filled yet

void tap_select_init(void) { tap_newest_number = 0; }

// tap_select_read copies selection number, and goes on to a newer one that overtook it: the collector writes number + 2
// to the same place, but only after it has counted number + 1.
static void tap_select_read(uint32_t number) {
    for (uint32_t read = 0; read != number;) {
        read = number;
        for (size_t i = 0; i < TAP_SELECTION_WORDS; i++) {
            tap_newest.words[i] = tap_get(&tap.header->selections[number % 2][i]);
        }
        number = tap_get(&tap.header->selection);
    }
    tap_newest_number = number;
}

// tap_select_points has the collector name the points of a graph, where a selection has any.
static void tap_select_points(struct tap_graph * g, const struct tap_selection * wish, uint32_t number) {
    if (wish->points && (wish->record & TAP_RECORD_ACTIVATIONS) && g->n_tokens > 0) {
        tap_points_ask(g, number);
    }
}

// tap_select_first marks a graph by selection 0, whose hits are counted.
static void tap_select_first(struct tap_graph * g) {
    struct tap_header * h = tap.header;
    tap_select_points(g, &h->config.start, 0);
    tap_graph_select(g, &h->config.start, h->glob_hits);
    tap_count(&h->matched, (uint32_t) (g->n_wanted + g->n_inputs_wanted));
}

void tap_select_ahead(struct tap_graph * g) {
    const struct tap_header * h = tap.header;
    if (!(h->config.start.record & TAP_RECORD_ACTIVATIONS) || tap_get(&h->selection) != 0) {
        return;
    }
    pthread_mutex_lock(&tap_selecting);
    tap_select_first(g);
    pthread_mutex_unlock(&tap_selecting);
}

void tap_select(struct tap_sched * s) {
    struct tap_header * h = tap.header;
    pthread_mutex_lock(&tap_selecting);
    const uint32_t number = tap_get(&h->selection);
    if (number != tap_newest_number) {
        tap_select_read(number);
    }
    const struct tap_selection * wish = tap_newest_number == 0 ? &h->config.start : &tap_newest.wish;
    if (tap_newest_number == 0) {
        tap_select_first(&s->graph);
    } else {
        tap_select_points(&s->graph, wish, tap_newest_number);
        tap_graph_select(&s->graph, wish, NULL);
    }
    s->graph.selection = tap_newest_number;
    s->graph.selected = true;
    s->tokens = (struct tap_token_rule) {wish->token_kind, wish->token_first, wish->token_end, wish->token_step,
        wish->window, wish->window_of};
    tap_poke(&tap_samples_wanted, (wish->record & TAP_RECORD_SAMPLES) != 0);
    pthread_mutex_unlock(&tap_selecting);
    if (s->graph.n_wanted > 0) {
        tap_touch_start(false);
    }
}
