// instrument_ops.c: what an operation computes and moves, exactly, from the shapes of its tensors. The formulas are
// those of resource/flops.go, which says how is counted; oracle/instrument_test.go compares the two.
#define _GNU_SOURCE
#include "instrument.h"

#include <ctype.h>

// How the FLOPs of an operation follow from its shapes.
enum rule { RULE_NONE, RULE_PRODUCT, RULE_OUTER, RULE_FLASH, RULE_SOFT_MAX, RULE_ROWS, RULE_ROPE, RULE_SCALE, RULE_EACH,
    RULE_VIEW };

struct op {
    const char *     name; // as ggml calls it
    enum instr_class class;
    enum rule        rule;
    int32_t          per, row; // FLOPs per element and per row of the output
    bool             whole;    // it reads all of its sources and writes all of its output
};

#define EACH(name, class, n) {name, class, RULE_EACH, n, 0, true}
#define ELEMENT INSTR_CLASS_ELEMENTWISE
#define OTHER INSTR_CLASS_OTHER

static const struct op ops[] = {
    {"MUL_MAT", INSTR_CLASS_PRODUCT, RULE_PRODUCT, 0, 0, true},
    {"MUL_MAT_ID", INSTR_CLASS_PRODUCT, RULE_PRODUCT, 0, 0, false},
    {"OUT_PROD", INSTR_CLASS_PRODUCT, RULE_OUTER, 0, 0, true},
    {"FLASH_ATTN_EXT", INSTR_CLASS_PRODUCT, RULE_FLASH, 0, 0, true},
    {"SOFT_MAX", OTHER, RULE_SOFT_MAX, 6, 1, true},
    {"RMS_NORM", OTHER, RULE_ROWS, 3, 4, true},
    {"NORM", OTHER, RULE_ROWS, 5, 5, true},
    {"L2_NORM", OTHER, RULE_ROWS, 3, 3, true},
    {"ROPE", OTHER, RULE_ROPE, 0, 0, true},
    {"SCALE", ELEMENT, RULE_SCALE, 1, 0, true},
    EACH("ADD", ELEMENT, 1), EACH("SUB", ELEMENT, 1), EACH("MUL", ELEMENT, 1), EACH("DIV", ELEMENT, 1),
    EACH("ADD1", ELEMENT, 1),
    EACH("SQR", ELEMENT, 1), EACH("SQRT", ELEMENT, 1), EACH("LOG", ELEMENT, 1), EACH("SIN", ELEMENT, 1),
    EACH("COS", ELEMENT, 1),
    EACH("ABS", ELEMENT, 1), EACH("SGN", ELEMENT, 1), EACH("NEG", ELEMENT, 1), EACH("CLAMP", ELEMENT, 2),
    {"ADD_ID", ELEMENT, RULE_EACH, 1, 0, false},
    EACH("TANH", OTHER, 1), EACH("RELU", OTHER, 1), EACH("EXP", OTHER, 1), EACH("ELU", OTHER, 2),
    EACH("LEAKY_RELU", OTHER, 2),
    EACH("SOFTPLUS", OTHER, 3), EACH("SIGMOID", OTHER, 4), EACH("SILU", OTHER, 4), EACH("HARDSIGMOID", OTHER, 4),
    EACH("HARDSWISH", OTHER, 5), EACH("GELU_QUICK", OTHER, 5), EACH("GELU_ERF", OTHER, 5), EACH("GELU", OTHER, 9),
    EACH("REGLU", OTHER, 2), EACH("SWIGLU", OTHER, 5), EACH("GEGLU_QUICK", OTHER, 6), EACH("GEGLU_ERF", OTHER, 6),
    EACH("GEGLU", OTHER, 10), EACH("SWIGLU_OAI", OTHER, 10),
    EACH("CONT", ELEMENT, 0), EACH("DUP", ELEMENT, 0), EACH("REPEAT", ELEMENT, 0), EACH("CONCAT", ELEMENT, 0),
    {"CPY", ELEMENT, RULE_EACH, 0, 0, false}, {"GET_ROWS", OTHER, RULE_EACH, 0, 0, false},
    {"SET_ROWS", OTHER, RULE_EACH, 0, 0, false},
    {"NONE", ELEMENT, RULE_VIEW, 0, 0, false}, {"VIEW", ELEMENT, RULE_VIEW, 0, 0, false},
    {"RESHAPE", ELEMENT, RULE_VIEW, 0, 0, false},
    {"PERMUTE", ELEMENT, RULE_VIEW, 0, 0, false}, {"TRANSPOSE", ELEMENT, RULE_VIEW, 0, 0, false},
};

// Other names that programs give operations.
static const char * const aliases[][2] = {
    {"GEMM", "MUL_MAT"}, {"MATMUL", "MUL_MAT"}, {"MAT_MUL", "MUL_MAT"}, {"SOFTMAX", "SOFT_MAX"},
    {"RMSNORM", "RMS_NORM"},
    {"LAYER_NORM", "NORM"}, {"LAYERNORM", "NORM"}, {"COPY", "CPY"}, {"FLASH_ATTN", "FLASH_ATTN_EXT"},
    {"FLASH_ATTENTION", "FLASH_ATTN_EXT"}, {"ATTENTION", "FLASH_ATTN_EXT"},
};

static const struct op * op_of(const char * operation) {
    char name[32];
    size_t n = 0;
    for (; operation != NULL && operation[n] != 0 && n < sizeof(name) - 1; n++) {
        name[n] = (char) toupper((unsigned char) operation[n]);
    }
    name[n] = 0;
    const char * known = name;
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++) {
        if (strcmp(name, aliases[i][0]) == 0) {
            known = aliases[i][1];
        }
    }
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (strcmp(ops[i].name, known) == 0) {
            return &ops[i];
        }
    }
    return NULL;
}

enum instr_class instr_class(const char * operation, const struct llama_resource_tensor * output) {
    const struct op * op = op_of(operation);
    if (op == NULL && output != NULL) {
        op = op_of(output->op);
    }
    return op != NULL ? op->class : INSTR_CLASS_UNKNOWN;
}

const char * instr_activation(const struct llama_resource_tensor * t) {
    static const char * const functions[] = {
        "SILU", "GELU", "GELU_QUICK", "GELU_ERF", "RELU", "TANH", "SIGMOID", "ELU", "LEAKY_RELU", "SOFTPLUS",
        "HARDSWISH", "HARDSIGMOID",
        "SWIGLU", "SWIGLU_OAI", "GEGLU", "GEGLU_QUICK", "GEGLU_ERF", "REGLU",
    };
    static const char * const lower[] = {
        "silu", "gelu", "gelu_quick", "gelu_erf", "relu", "tanh", "sigmoid", "elu", "leaky_relu", "softplus",
        "hardswish", "hardsigmoid",
        "swiglu", "swiglu_oai", "geglu", "geglu_quick", "geglu_erf", "reglu",
    };
    for (size_t i = 0; t->op != NULL && i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (strcmp(t->op, functions[i]) == 0) {
            return lower[i];
        }
    }
    return NULL;
}

// ---- arithmetic that knows when it is too large ---------------------------------------------------------------------

struct count {
    uint64_t n;
    bool     ok;
};

static struct count of(int64_t n) { return (struct count) {(uint64_t) n, n >= 0}; }

static struct count times(struct count a, struct count b) {
    struct count c = {0, a.ok && b.ok};
    c.ok = c.ok && !__builtin_mul_overflow(a.n, b.n, &c.n);
    return c;
}

static struct count plus(struct count a, struct count b) {
    struct count c = {0, a.ok && b.ok};
    c.ok = c.ok && !__builtin_add_overflow(a.n, b.n, &c.n);
    return c;
}

static struct count rows(const int64_t * ne) { return times(times(of(ne[1]), of(ne[2])), of(ne[3])); }
static struct count elements(const int64_t * ne) { return times(of(ne[0]), rows(ne)); }
static bool has(const struct llama_resource_tensor * t, int s) { return (t->sources >> s & 1) != 0; }

bool instr_f32_bytes(const struct llama_resource_tensor * t, uint64_t * bytes) {
    struct count n = times(of(4), elements(t->ne));
    *bytes = n.n;
    return n.ok;
}

// ---- formulas -------------------------------------------------------------------------------------------------------

// flash: source 0 is (dk, queries, heads, streams), 2 (dv, cells, heads, streams), 3 the mask, 4 the sinks.
static struct count flash(const struct llama_resource_tensor * t) {
    const int64_t * q = t->source_ne[0], * v = t->source_ne[2];
    if (!has(t, 0) || !has(t, 2)) {
        return of(-1);
    }
    struct count per = plus(plus(times(of(2), of(q[0])), times(of(2), of(v[0]))), of(5));
    per = plus(per, of(has(t, 3) ? 2 : 0));
    per = plus(per, of((t->op_params[2] & 0x7fffffff) != 0 ? 2 : 0)); // a soft cap, a float
    struct count row = plus(of(v[0]), of(has(t, 4) ? 5 : 1));
    return times(rows(q), plus(times(of(v[1]), per), row));
}

static struct count by_output(const struct op * op, const struct llama_resource_tensor * t) {
    struct count n = elements(t->ne), r = rows(t->ne);
    int64_t per = op->per, row = op->row;
    switch (op->rule) {
    case RULE_PRODUCT: return has(t, 0) ? times(times(of(2), of(t->source_ne[0][0])), n) : of(-1);
    case RULE_OUTER: return has(t, 0) ? times(times(of(2), of(t->source_ne[0][1])), n) : of(-1);
    case RULE_FLASH: return flash(t);
    case RULE_SOFT_MAX:
        per += has(t, 1) ? 2 : 0; // a mask
        row += has(t, 2) ? 4 : 0; // sinks
        return plus(times(of(per), n), times(of(row), r));
    case RULE_ROWS: return plus(times(of(per), n), times(of(row), r));
    case RULE_ROPE: return times(times(of(3), of(t->op_params[1])), r);
    case RULE_SCALE: return times(of((t->op_params[1] & 0x7fffffff) != 0 ? 2 : 1), n); // with a bias, a float
    case RULE_EACH: return times(of(per), n);
    case RULE_VIEW: return of(0);
    default: return of(-1);
    }
}

// by_inputs is for a program that names an operation and its inputs, whose output is none of it, or not reported.
static struct count by_inputs(const struct op * op, const struct op * made, const struct llama_resource_tensor * inputs,
                              size_t n_inputs) {
    const int64_t * a = inputs[0].ne, * b = n_inputs > 1 ? inputs[1].ne : NULL;
    bool known = inputs[0].op != NULL && (n_inputs < 2 || inputs[1].op != NULL);
    if (known && op->rule == RULE_PRODUCT && op->whole && b != NULL && a[0] == b[0]) {
        struct count n = times(of(a[1]), of(b[1]));
        for (int i = 2; i < 4; i++) {
            n = times(n, of(a[i] > b[i] ? a[i] : b[i]));
        }
        return times(times(of(2), of(a[0])), n);
    }
    if (known && op->rule == RULE_EACH && op->per > 0 && (made == NULL || strcmp(made->name, "NONE") == 0)) {
        struct count n = elements(a), m = b != NULL ? elements(b) : of(0); // the smaller one is repeated
        return times(of(op->per), n.n > m.n || !m.ok ? n : m);
    }
    return of(-1);
}

bool instr_flops(const char * operation, const struct llama_resource_tensor * inputs, size_t n_inputs,
                 const struct llama_resource_tensor * output, uint64_t * flops) {
    const struct op * op = op_of(operation), * made = output != NULL ? op_of(output->op) : NULL;
    struct count n = of(-1);
    if (op != NULL && made == op) {
        n = by_output(op, output);
    } else if (op != NULL && made != NULL && op->rule == RULE_PRODUCT && made->rule == RULE_PRODUCT) {
        n = by_output(made, output); // mul_mat is said of products with chosen experts too
    } else if (op != NULL && n_inputs > 0) {
        n = by_inputs(op, made, inputs, n_inputs);
    }
    *flops = n.n;
    return n.ok;
}

bool instr_bytes(const char * operation, const struct llama_resource_tensor * output, uint64_t * read,
                 uint64_t * written) {
    const struct op * op = op_of(operation), * made = output != NULL ? op_of(output->op) : NULL;
    *read = *written = 0;
    if (op == NULL || made != op || !(op->whole || op->rule == RULE_VIEW)) {
        return false;
    }
    for (int s = 0; op->whole && s < LLAMA_RESOURCE_MAX_SOURCES; s++) {
        if (has(output, s) && __builtin_add_overflow(*read, output->source_bytes[s], read)) {
            return false;
        }
    }
    *written = op->whole ? output->value_bytes : 0;
    return true;
}
