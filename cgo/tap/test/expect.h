// expect.h: what a graph's captures must be, worked out element by element from the graph and the wishes alone.
#ifndef LLAMATAP_TEST_EXPECT_H
#define LLAMATAP_TEST_EXPECT_H

#include "harness.h"

// A node as the collector reads it.
struct seen_node {
    struct tap_node head;
    int32_t         src[GGML_MAX_SRC];
    int32_t         alias;
    char            name[TAP_NAME_SIZE + 1], op[33];
};

// A leaf as the collector reads it.
struct seen_leaf {
    struct tap_leaf head;
    char            name[TAP_NAME_SIZE + 1];
};

// The description of one graph, as the collector reads it: whole, or made of the one that it is like.
struct seen {
    struct tap_rec_graph head;
    int                  n_nodes, n_leafs, n_changes;
    struct seen_node *   nodes;
    struct seen_leaf *   leafs;
};

// seen_read finds the nth description in the log. seen_free gives its memory back.
bool seen_read(struct seen * s, const struct log * l, size_t nth);
void seen_free(struct seen * s);

// Which nodes a case wants; SET_ROWS stands for its written rows.
typedef bool (*wanted_fn)(const struct graph * g, int node, void * arg);

// One execution to be checked.
struct expected {
    const struct log *        log;
    const struct graph *      graph;
    const struct tap_selection * config;
    uint64_t                  run;  // the scheduler's number of it
    size_t                    exec; // its EXEC is the nth of the log
    wanted_fn                 wanted;
    void *                    arg;
};

// expect_exec checks that exactly the wanted nodes were captured, each selected element exactly once, with the
// bytes that the node held when it was computed. It returns the number of packets.
size_t expect_exec(const struct expected * e);

// expect_places compares layers, components and rows of a description with what the graph's author knows.
void expect_places(const struct graph * g, const struct seen * s);

#endif
