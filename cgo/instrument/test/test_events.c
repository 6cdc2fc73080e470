// test_events.c: what stands in the lines: levels, ranges, memory, operations, hostile texts.
#define _GNU_SOURCE
#include "../instrument.h"
#include "harness.h"

#include <locale.h>

static const char * path;

static void begin(enum llama_resource_level level) {
    static char kept[64];
    snprintf(kept, sizeof(kept), "%s", fresh_path());
    path = kept;
    llama_resource_instrumentation_init(level, path);
}

// finish closes the file and reads it. Every line must be JSON.
static struct lines finish(void) {
    llama_resource_instrumentation_free();
    struct lines l = read_lines(path);
    CHECK(l.whole);
    for (size_t i = 0; i < l.n; i++) {
        CHECK(valid(l.line[i]));
    }
    return l;
}

static struct llama_resource_instr * own(void) { return llama_resource_instr_global(); }

// A layer in which every kind of event is reported.
static void everything(void) {
    struct llama_resource_tensor w = tensor("blk.3.ffn_gate.weight", "NONE", 512, 1024, 0x10000);
    struct llama_resource_tensor small = tensor("small", "NONE", 8, 8, 0x20000);
    struct llama_resource_tensor product = tensor("ffn_gate-3", "MUL_MAT", 1024, 7, 0x30000);
    struct llama_resource_tensor norm = tensor("norm-3", "RMS_NORM", 512, 7, 0x40000);
    struct llama_resource_tensor sum = tensor("l_out-3", "ADD", 512, 7, 0x50000);
    char id[LLAMA_RESOURCE_ID_SIZE];
    source(&product, 0, 512, 1024);
    source(&product, 1, 512, 7);
    source(&norm, 0, 512, 7);
    source(&sum, 0, 512, 7);
    source(&sum, 1, 512, 7);
    llama_resource_instr_begin_session(own(), "session");
    llama_resource_instr_begin_layer(own(), 3);
    llama_resource_instr_begin_component(own(), "mlp");
    llama_resource_instr_memory_allocation(own(), &w, "mlp_weights", NULL, 0);
    llama_resource_instr_memory_allocation(own(), &small, "scratch", id, sizeof(id));
    llama_resource_instr_log_memory_deallocation(own(), id);
    llama_resource_instr_compute_operation(own(), "mul_mat", "mlp", &w, 1, &product);
    llama_resource_instr_compute_operation(own(), "norm", "mlp", &product, 1, &norm);
    llama_resource_instr_compute_operation(own(), "rms_norm", "mlp", &product, 1, &norm);
    llama_resource_instr_compute_operation(own(), "add", "mlp", &product, 1, &sum);
    llama_resource_instr_mlp_operation(own(), "gate_proj", &w, &product);
    llama_resource_instr_log_component_handoff(own(), "attention", "mlp");
    llama_resource_instr_log_kv_cache_operation(own(), 3, "update", 4096);
    llama_resource_instr_end_component(own(), "mlp");
    llama_resource_instr_end_layer(own(), 3);
    llama_resource_instr_end_session(own());
}

static void test_levels(void) {
    static const struct {
        const char * event;
        size_t       n[3];
    } matrix[] = {
        {"resource_session_start", {1, 1, 1}}, {"resource_tracking_begin", {1, 1, 1}}, {"layer_begin", {0, 1, 1}},
        {"layer_end", {0, 1, 1}},
        {"component_begin", {0, 1, 1}}, {"component_end", {0, 1, 1}}, {"memory_allocation", {1, 2, 2}},
        {"compute_execution", {1, 3, 4}},
        {"component_handoff", {0, 1, 1}}, {"kv_cache_operation", {0, 1, 1}}, {"mlp_operation", {0, 1, 1}},
        {"resource_session_summary", {1, 1, 1}}, {"resource_session_end", {1, 1, 1}},
    };
    for (int level = 0; level < 3; level++) {
        static const char * const names[] = {"MINIMAL", "DETAILED", "VERBOSE"};
        test_case(names[level]);
        begin((enum llama_resource_level) level);
        everything();
        struct lines l = finish();
        for (size_t i = 0; i < sizeof(matrix) / sizeof(matrix[0]); i++) {
            if (count(&l, matrix[i].event) != matrix[i].n[level]) {
                fprintf(stderr, "%s: %zu, want %zu\n", matrix[i].event, count(&l, matrix[i].event), matrix[i].n[level]);
                CHECK(count(&l, matrix[i].event) == matrix[i].n[level]);
            }
        }
        CHECK(has(find(&l, "resource_session_start", 0), names[level]));
        // Sums are of what was reported, whatever was written.
        CHECK(number(find(&l, "resource_session_summary", 0), "compute_operations") == 4);
        CHECK(number(find(&l, "resource_session_summary", 0), "component_flows") == 1);
        free_lines(&l);
    }
}

static void test_figures(void) {
    test_case("figures");
    begin(LLAMA_RESOURCE_VERBOSE);
    everything();
    struct lines l = finish();
    const char * product = find(&l, "compute_execution", 0), * norm = find(&l, "compute_execution", 2), * sum = find(&l,
        "compute_execution", 3);
    CHECK(number(product, "flops") == 2.0 * 512 * 1024 * 7);
    CHECK(number(product, "bytes_read") == 4.0 * (512 * 1024 + 512 * 7));
    CHECK(number(product, "bytes_written") == 4.0 * 1024 * 7);
    CHECK(has(product, "\"output_shape\":[1024,7]") && has(product, "\"input_tensors\":[\"blk.3.ffn_gate.weight\"]"));
    CHECK(has(product, "\"layer_id\":3,") && has(product, "\"source\":\"computed\""));
    CHECK(number(norm, "flops") == 3.0 * 512 * 7 + 4 * 7);
    CHECK(number(sum, "flops") == 512.0 * 7);
    CHECK(number(find(&l, "compute_execution", 1), "flops") == -1); // "norm" is not what was computed
    CHECK(!has(product, "duration") && !has(product, "utilization") && !has(product, "parallelism"));
    const char * weights = find(&l, "memory_allocation", 0), * end = find(&l, "layer_end", 0);
    CHECK(has(weights, "\"allocation_size_mb\":2.00,") && has(weights, "\"memory_address\":\"0x10000\"") && has(weights,
        "\"memory_type\":\"ram\""));
    CHECK(has(weights, "\"compression_ratio\":1.00") && !has(weights, "bandwidth"));
    CHECK(has(weights, "\"resource_id\":\"cpu_memory_layer_3_mlp_weights_"));
    CHECK(number(find(&l, "memory_deallocation", 0), "allocation_bytes") == 256);
    CHECK(number(find(&l, "memory_deallocation", 0), "live_bytes") == 2 << 20);
    CHECK(number(end, "memory_operations") == 2 && number(end, "compute_operations") == 4 && number(end,
        "ops_without_flops") == 1);
    CHECK(number(end, "duration_ns") >= number(find(&l, "component_end", 0), "duration_ns"));
    CHECK(number(end, "looking_ns") > 0 && number(end, "looking_ns") <= number(end, "duration_ns"));
    const char * summary = find(&l, "resource_session_summary", 0);
    CHECK(number(summary, "peak_live_bytes") == (2 << 20) + 256 && number(summary, "freed_bytes") == 256);
    CHECK(number(summary, "flops") == 2.0 * 512 * 1024 * 7 + 3.0 * 512 * 7 + 28 + 512 * 7);
    CHECK(!has(find(&l, "component_handoff", 0), "bandwidth") && !has(find(&l, "kv_cache_operation", 0), "hit_ratio"));
    free_lines(&l);
}

static void test_ranges(void) {
    test_case("ranges");
    begin(LLAMA_RESOURCE_DETAILED);
    llama_resource_instr_begin_session(own(), "s");
    llama_resource_instr_end_layer(own(), 1); // not open
    llama_resource_instr_begin_component(own(), "decoder");
    for (int layer = 0; layer < 3; layer++) {
        llama_resource_instr_begin_layer(own(), layer);
        llama_resource_instr_begin_component(own(), "attention"); // left open
        llama_resource_instr_end_layer(own(), layer == 2 ? 9 : layer); // not the last one
    }
    llama_resource_instr_end_component(own(), "decoder");
    llama_resource_instr_end_component(own(), "decoder");
    for (int i = 0; i < 20; i++) { // deeper than is kept
        llama_resource_instr_begin_component(own(), "deep");
    }
    llama_resource_instr_end_session(own());
    struct lines l = finish();
    CHECK(count(&l, "layer_begin") == 3 && count(&l, "layer_end") == 2);
    CHECK(count(&l, "component_end") == 1 && has(find(&l, "component_end", 0), "\"layer_id\":-1"));
    CHECK(number(find(&l, "resource_session_summary", 0), "unmatched_ends") == 3);
    CHECK(number(find(&l, "resource_session_summary", 0), "left_open") == 2 + 2 + 12);
    free_lines(&l);
}

static void test_memory(void) {
    test_case("memory");
    char id[LLAMA_RESOURCE_ID_SIZE], other[LLAMA_RESOURCE_ID_SIZE];
    struct llama_resource_tensor t = tensor("t", "NONE", 256, 256, 0x1000), view = t, nowhere = tensor("n",
        "NONE", 4, 4, 0);
    begin(LLAMA_RESOURCE_DETAILED);
    llama_resource_instr_begin_session(own(), "s");
    llama_resource_instr_memory_allocation(own(), &t, "a", id, sizeof(id));
    llama_resource_instr_memory_allocation(own(), &t, "a", other, sizeof(other)); // the same memory again
    CHECK(strcmp(id, other) != 0);
    view.address += 64;
    view.bytes = 64;
    llama_resource_instr_memory_allocation(own(), &view, "a", other, sizeof(other)); // and a part of it
    llama_resource_instr_memory_allocation(own(), &nowhere, "a", NULL, 0);
    llama_resource_instr_log_memory_deallocation(own(), id); // it is known by another id now
    llama_resource_instr_log_memory_deallocation(own(), "cpu_memory_layer_0_a_99999999999999999999999");
    llama_resource_instr_log_memory_deallocation(own(), NULL);
    llama_resource_instr_log_memory_deallocation(own(), other);
    llama_resource_instr_log_memory_deallocation(own(), other);
    llama_resource_instr_end_session(own());
    struct lines l = finish();
    CHECK(count(&l, "memory_allocation") == 4 && count(&l, "memory_deallocation") == 1);
    const char * summary = find(&l, "resource_session_summary", 0);
    CHECK(number(summary, "peak_live_bytes") == 256 * 256 * 4 && number(summary, "unmatched_deallocations") == 4);
    CHECK(!has(find(&l, "memory_allocation", 3), "memory_address") && !has(find(&l, "memory_allocation", 3),
        "memory_type"));
    CHECK(number(find(&l, "memory_deallocation", 0), "live_bytes") == 0);
    free_lines(&l);

    test_case("memory is freed at every level");
    begin(LLAMA_RESOURCE_MINIMAL);
    llama_resource_instr_begin_session(own(), "s");
    for (int i = 0; i < 3; i++) {
        struct llama_resource_tensor one = tensor("t", "NONE", 4, 1, 0x1000 + (uint64_t) i * 64);
        llama_resource_instr_memory_allocation(own(), &one, "a", id, sizeof(id));
        llama_resource_instr_log_memory_deallocation(own(), id);
    }
    llama_resource_instr_end_session(own());
    l = finish();
    CHECK(count(&l, "memory_allocation") == 0 && count(&l, "memory_deallocation") == 0);
    summary = find(&l, "resource_session_summary", 0);
    CHECK(number(summary, "peak_live_bytes") == 16 && number(summary, "freed_bytes") == 3 * 16);
    CHECK(number(summary, "unmatched_deallocations") == -1);
    free_lines(&l);

    test_case("memory is bounded");
    begin(LLAMA_RESOURCE_MINIMAL);
    llama_resource_instr_begin_session(own(), "s");
    for (uint64_t i = 0; i < 70000; i++) {
        struct llama_resource_tensor one = tensor("t", "NONE", 4, 1, 0x1000 + i * 64);
        llama_resource_instr_memory_allocation(own(), &one, "a", NULL, 0);
    }
    llama_resource_instr_end_session(own());
    l = finish();
    CHECK(number(find(&l, "resource_session_summary", 0), "untracked_allocations") == 70000 - 65536);
    CHECK(number(find(&l, "resource_session_summary", 0), "peak_live_bytes") == 65536 * 16);
    free_lines(&l);
}

static void test_ids(void) {
    test_case("ids of one moment differ");
    static struct llama_resource_instr s;
    struct instr_call c = {&s, 5000};
    char first[LLAMA_RESOURCE_ID_SIZE], second[LLAMA_RESOURCE_ID_SIZE];
    instr_id(&c, first, "cpu", "memory", 12, "qkv_weights");
    instr_id(&c, second, "cpu", "memory", 12, "qkv_weights");
    CHECK(strcmp(first, "cpu_memory_layer_12_qkv_weights_5") == 0);
    CHECK(strcmp(second, "cpu_memory_layer_12_qkv_weights_6") == 0);
}

static void test_hostile(void) {
    test_case("hostile texts");
    static char long_text[100000];
    memset(long_text, 1, sizeof(long_text) - 1);
    struct llama_resource_tensor t = tensor("a\"b\\c\n\x01\xff\xc3\xa9\xed\xa0\x80\xf0\x9f\x98\x80", "MUL_MAT", -5,
                                            INT64_MAX, 1), many[40];
    for (int i = 0; i < 40; i++) {
        many[i] = t;
        many[i].name = long_text;
    }
    source(&t, 0, INT64_MAX, 3);
    begin(LLAMA_RESOURCE_VERBOSE);
    llama_resource_instr_begin_session(own(), "\"},{\xe2\x82");
    llama_resource_instr_begin_component(own(), long_text);
    llama_resource_instr_end_component(own(), long_text);
    llama_resource_instr_begin_component(own(), NULL);
    llama_resource_instr_end_component(own(), NULL);
    llama_resource_instr_memory_allocation(own(), &t, long_text, NULL, 0);
    llama_resource_instr_memory_allocation(own(), NULL, NULL, NULL, 0);
    llama_resource_instr_compute_operation(own(), long_text, long_text, many, 40, &t);
    llama_resource_instr_compute_operation(own(), NULL, NULL, &t, 1, NULL);
    llama_resource_instr_compute_operation(own(), "mul_mat", "x", &t, 1, &t);
    llama_resource_instr_mlp_operation(own(), NULL, NULL, NULL);
    llama_resource_instr_log_component_handoff(own(), NULL, long_text);
    llama_resource_instr_log_kv_cache_operation(own(), -7, NULL, SIZE_MAX);
    llama_resource_instr_set_level(own(), (enum llama_resource_level) 99);
    struct lines l = finish();
    CHECK(has(find(&l, "memory_allocation", 0), "a\\\"b\\\\c\\n\\u0001\xef\xbf\xbd\xc3\xa9"));
    CHECK(has(find(&l, "memory_allocation", 0), "\xf0\x9f\x98\x80"));
    CHECK(number(find(&l, "compute_execution", 2), "flops") == -1); // larger than 64 bits
    CHECK(number(find(&l, "compute_execution", 0), "input_tensors_left_out") == 24);
    CHECK(count(&l, "component_end") == 2);
    free_lines(&l);
}

static void test_off(void) {
    test_case("what is off evaluates no arguments");
    int evaluated = 0;
    LLAMA_RESOURCE_BEGIN_LAYER(evaluated++);
    LLAMA_RESOURCE_BEGIN_SESSION((evaluated++, "s"));
    LLAMA_RESOURCE_LOG_COMPONENT_HANDOFF((evaluated++, "a"), "b");
    CHECK(evaluated == 0);
    begin(LLAMA_RESOURCE_DETAILED);
    LLAMA_RESOURCE_BEGIN_LAYER(evaluated++);
    llama_resource_instr_disable(own());
    LLAMA_RESOURCE_END_LAYER(evaluated++);
    CHECK(evaluated == 1);
    struct lines l = finish();
    CHECK(count(&l, "layer_begin") == 1 && count(&l, "layer_end") == 0);
    free_lines(&l);
}

static void test_control(void) {
    test_case("control");
    struct lines l;
    begin(LLAMA_RESOURCE_MINIMAL);
    llama_resource_instrumentation_init(LLAMA_RESOURCE_VERBOSE, "/nonexistent/second"); // does nothing
    CHECK(g_resource_instr == own() && llama_resource_instr_on);
    llama_resource_instr_set_level(own(), LLAMA_RESOURCE_VERBOSE);
    llama_resource_instr_set_level(own(), LLAMA_RESOURCE_VERBOSE); // no change
    llama_resource_instr_begin_layer(own(), 1);
    llama_resource_instr_disable(own());
    CHECK(g_resource_instr == own() && !llama_resource_instr_on);
    everything();
    llama_resource_instr_end_layer(own(), 1);
    llama_resource_instr_enable(own());
    llama_resource_instr_end_layer(own(), 1); // forgotten
    llama_resource_instr_flush(own());
    l = read_lines(path);
    CHECK(count(&l, "level") == 3 && has(find(&l, "level", 1), "\"enabled\":false"));
    CHECK(count(&l, "layer_begin") == 1 && count(&l, "layer_end") == 0 && count(&l, "resource_tracking_begin") == 0);
    free_lines(&l);
    l = finish();
    CHECK(g_resource_instr == NULL && !llama_resource_instr_on);
    CHECK(has(l.line[l.n - 1], "resource_session_end"));
    free_lines(&l);
    everything(); // closed: nothing happens

    test_case("decimals are points in every locale");
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL && setlocale(LC_ALL, "fr_FR.UTF-8") == NULL) {
        printf("     (no such locale here)\n");
    }
    begin(LLAMA_RESOURCE_VERBOSE);
    everything();
    l = finish();
    CHECK(has(find(&l, "memory_allocation", 1), "\"allocation_size_mb\":0.000244141,"));
    free_lines(&l);
    setlocale(LC_ALL, "C");

    test_case("two files at once");
    char first[64], second[64];
    snprintf(first, sizeof(first), "%s", fresh_path());
    snprintf(second, sizeof(second), "%s", fresh_path());
    struct llama_resource_instr * a = llama_resource_instr_open(LLAMA_RESOURCE_DETAILED, first);
    struct llama_resource_instr * b = llama_resource_instr_open(LLAMA_RESOURCE_DETAILED, second);
    llama_resource_instr_begin_layer(a, 1);
    llama_resource_instr_end_layer(b, 1);
    llama_resource_instr_end_layer(a, 1);
    llama_resource_instr_close(a);
    llama_resource_instr_close(b);
    l = read_lines(first);
    CHECK(l.n == 4 && count(&l, "layer_end") == 1);
    free_lines(&l);
    l = read_lines(second);
    CHECK(l.n == 2);
    free_lines(&l);
}

int main(void) {
    test_levels();
    test_figures();
    test_ranges();
    test_memory();
    test_ids();
    test_hostile();
    test_off();
    test_control();
    return test_done();
}
