// tap_graph.h: the description of a graph.
#ifndef LLAMATAP_TAP_GRAPH_H
#define LLAMATAP_TAP_GRAPH_H

#include "tap_buffer.h"
#include "tap_context.h"

// One node of a described graph.
struct tap_graph_node {
    const struct ggml_tensor * tensor;
    int32_t  layer;      // -1: none
    uint16_t occurrence; // of (name, op) in this graph, from 1
    uint16_t number;     // among this graph's nodes of the name that it is shown under, from 1: see tap_count_names
    uint16_t bucket;     // of its name, while nodes are counted
    uint8_t  component, rows, row_dim, inferred;
    uint8_t  row_seqs;   // where row_dim counts the tokens of one sequence: the dimension of the sequences; 0: it counts all
    uint8_t  n_src;      // places of src that may be filled
    uint8_t  name_bytes;
    bool     layer_known;
    bool     view, computed, wanted, host;
    bool     timed;         // the end of its data phase is reported
    bool     routing;       // shows which experts were chosen, or their weights
    bool     stream;        // the residual stream at some point
    bool     written_rows;  // SET_ROWS: what is captured is src[0]
    bool     point;         // the collector named it
    bool     kept;          // what is captured of it stays in place until the whole graph is computed: see tap_keep.c
    int32_t  alias;         // node whose name and shape the packet takes, -1 = its own
    int32_t  first_consumer; // -1: none
    int32_t  writer;         // the last node that writes into its bytes through a view, -1: none; noted by tap_keep.c
    // numbers of what it reads, INT32_MIN: nothing; the scheduler puts copies in their place later
    int32_t  src[GGML_MAX_SRC];
    int32_t  before;         // while nodes are counted: the node before it in its bucket, +1
    int8_t   glob;           // first matching glob, -1 = none
};

// One tensor that a graph reads and does not compute.
struct tap_graph_leaf {
    const struct ggml_tensor * tensor;
    int32_t layer; // in its name, if named; -1: none
    uint8_t component;
    uint8_t name_bytes;
    bool    named;    // it is a weight or a cache, as far as its name says
    bool    embedding; // its component is another one where it is multiplied with
    bool    input, wanted;
    uint8_t rows, row_dim;
    bool    reported; // its contents are reported
    int32_t writer;   // the last node that writes into it, -1: none; noted by tap_keep.c
};

// An input whose contents are reported.
struct tap_told {
    const struct ggml_tensor * tensor;
    int32_t leaf;
    uint8_t kind; // enum tap_input_kind
    bool    host; // its bytes lie in this process
};

// A slot of the pointer → number table.
struct tap_map_slot {
    const void * key;
    int32_t      value;
};

enum { TAP_FEW_TOLD = 6 };

// What a tensor was like when it was last described, see tap_known.c, and where its bytes lay when it was last
// reported.
struct tap_mark {
    uint64_t              form, shape;
    const void *          data;
    ggml_backend_buffer_t buffer;
};

// What has changed of a tensor since it was reported.
enum tap_changed { TAP_CHANGED_SHAPE = 1u << 0, TAP_CHANGED_PLACE = 1u << 1, TAP_CHANGED_ROWS = 1u << 2 };

// The description of the graph that a scheduler holds at present.
struct tap_graph {
    struct ggml_cgraph *    cgraph;
    uint64_t                id;
    bool                    described; // cgraph was looked at since its last allocation
    bool                    sent;      // the collector has the description
    int                     n_nodes, n_leafs, n_wanted, n_inputs_wanted;
    int                     n_timed, n_routing;
    int                     end; // nodes from here on are not computed, see tap_graph_end; INT_MAX: all are
    uint32_t                look_every; // of so many executions one is timed; 0: by their cost
    uint32_t                looking;    // what is timed
    int                     n_cut;  // of the nodes that are wanted or show routing: those that the graph is cut for
    int                     n_kept; // … and those that are kept
    int                     n_flagged; // nodes whose bytes stay in place, wanted or not
    int                     n_told, cap_told;
    struct tap_told *       reported; // few_reported, or others where there are more
    struct tap_told         few_reported[TAP_FEW_TOLD];
    bool                    host_inputs; // tokens, positions and output ids lie in this process
    bool                    device; // some of it is not computed in this process's memory
    int                     cap_nodes, cap_leafs;
    struct tap_graph_node * nodes;
    struct tap_graph_leaf * leafs;
    uintptr_t               low, span; // where the tensors of its nodes lie, all of them
    // number of a node + 1 by the place of its tensor, 0: none; NULL: they lie too far apart
    int32_t *               index;
    int32_t *               places;    // memory of index
    size_t                  cap_places;
    struct tap_map_slot *   map;      // leafs, and nodes that have no index
    size_t                  map_size; // power of two
    size_t                  map_used;
    const struct ggml_tensor * tokens; // inp_tokens, or NULL
    const struct ggml_tensor * embd;   // inp_embd, or NULL
    const struct ggml_tensor * pos;
    const struct ggml_tensor * out_ids;
    int32_t                 n_tokens;  // 0: a maintenance graph
    int32_t                 n_outputs; // -1: no output ids
    bool                    flash;     // has FLASH_ATTN_EXT
    uint32_t                selection; // number of the selection that its nodes are marked by
    uint32_t                attention; // enum tap_attention of that selection
    bool                    selected;  // its nodes are marked by a selection, which …
    bool                    captures;  // … may want tensors of it
    bool                    formed;    // marks are those of its tensors
    struct tap_mark *       marks;     // of nodes, then of leafs
    uint8_t *               changed;   // enum tap_changed of each
    size_t                  cap_marks, cap_changed;
    // a graph that the collector knows and from which this one differs in what is changed; 0: none
    uint64_t                like;
    uint64_t                buffers;   // tap_buffers_age when places were noted
};

// tap_graph_describe reads cgraph into g: nodes, leafs, layers, components, rows. Returns false without memory.
bool tap_graph_describe(struct tap_graph * g, struct ggml_cgraph * cgraph);

// tap_graph_mark notes what each tensor of a graph that was described is like. Without memory, and for graphs whose
// tensors lie far apart, it does not, and returns false.
bool tap_graph_mark(struct tap_graph * g);

// tap_graph_alike makes g the description of cgraph, which was built anew, if every tensor of it has the form that
// g's have. Returns false where it is not alike; g is then to be described.
bool tap_graph_alike(struct tap_graph * g, struct ggml_cgraph * cgraph);

// tap_graph_inputs finds the inputs that all models have, and the number of tokens and outputs.
void tap_graph_inputs(struct tap_graph * g);

// tap_array_grow makes room for n elements of a size.
bool tap_array_grow(void * array, size_t * have, size_t n, size_t size);

// tap_graph_select marks the nodes and inputs that a selection wants, and those alone. hits[i] counts the nodes
// that glob i matched; may be NULL. It may be called before allocation and after it.
void tap_graph_select(struct tap_graph * g, const struct tap_selection * wish, _Atomic uint32_t * hits);

// tap_is_view says whether an op computes nothing and only shows other bytes.
bool tap_is_view(enum ggml_op op);

// tap_graph_send reports a graph of context c: whole, or as what differs from the last one that
// was reported.
bool tap_graph_send(struct tap_graph * g, struct tap_context * c);

// tap_graph_ask sends a graph that is not computed, for the collector to name its points.
bool tap_graph_ask(const struct tap_graph * g);

// tap_points_ask marks the nodes of a graph that the points of a selection name. The caller holds tap_selecting.
void tap_points_ask(struct tap_graph * g, uint32_t selection);

// tap_graph_number is the number of a new description of a graph.
uint64_t tap_graph_number(void);

void tap_graph_release(struct tap_graph * g);

// tap_graph_find returns the number of a node (≥ 0), -1-i for leaf i, or INT32_MIN.
int32_t tap_graph_find(const struct tap_graph * g, const struct ggml_tensor * t);

// tap_view_root returns the number of the node or leaf whose bytes node or leaf i shows. It goes by the sources
// that were noted: in the tensors the scheduler may have put copies in their place since.
int32_t tap_view_root(const struct tap_graph * g, int32_t i);

// tap_shown returns the node whose name and shape the packets of a node take.
const struct tap_graph_node * tap_shown(const struct tap_graph * g, const struct tap_graph_node * n);

// tap_graph_finish notes, after allocation, where the bytes of each tensor lie, and which lie elsewhere than those
// of the graph before it.
void tap_graph_finish(struct tap_graph * g);

// tap_infer fills layer, component and rows of every node of a graph whose tables are complete; tap_infer_rows only
// the rows. tap_infer_again does that for a graph of which some shapes are changed, or (all) the number of tokens or
// outputs. Returns false where more than rows follows from that.
void tap_infer(struct tap_graph * g);
void tap_infer_rows(struct tap_graph * g);
bool tap_infer_again(struct tap_graph * g, bool all);

// tap_whole_rows are what the rows of a node correspond to, if its tokens follow each other in its bytes: else none.
uint8_t tap_whole_rows(const struct tap_graph_node * n);

// tap_stream_at says whether node n is the residual stream at some point.
bool tap_stream_at(const struct tap_graph * g, const struct tap_graph_node * n);

// tap_name_layer returns the N of a name of n bytes such as l_out-N or cache_k_lN, or -1. The suffix must end the name.
int32_t tap_name_layer(const char * name, size_t n);

// tap_leaf_named reads from a leaf's name what weight or cache it is.
void tap_leaf_named(struct tap_graph_leaf * l);

// tap_glob_match reports whether pattern (*, ?, [set]) matches text of n bytes.
bool tap_glob_match(const char * pattern, const char * text, size_t n);

// tap_graph_cut has the graph cut for each node that is captured: none is kept.
void tap_graph_cut(struct tap_graph * g);

// tap_graph_count counts the nodes that the graph is cut for, and those that are kept.
void tap_graph_count(struct tap_graph * g);

// tap_is_here says whether a tensor's bytes lie in this process.
bool tap_is_here(const struct ggml_tensor * t);

#endif
