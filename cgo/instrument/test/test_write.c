// test_write.c: the file: the environment, full disks, pipes without a reader, lines that others left unfinished,
// children, threads.
#define _GNU_SOURCE
#include "harness.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct llama_resource_instr * own(void) { return llama_resource_instr_global(); }

static const char * kept_path(void) {
    static char kept[64];
    snprintf(kept, sizeof(kept), "%s", fresh_path());
    return kept;
}

static void all_valid(const struct lines * l) {
    CHECK(l->whole);
    for (size_t i = 0; i < l->n; i++) {
        CHECK(valid(l->line[i]));
    }
}

static void test_environment(void) {
    test_case("environment");
    const char * path = kept_path();
    setenv("LLAMA_RESOURCE_DISABLED", "1", 1);
    llama_resource_instrumentation_init(LLAMA_RESOURCE_VERBOSE, path);
    CHECK(g_resource_instr == NULL && access(path, F_OK) != 0);
    setenv("LLAMA_RESOURCE_DISABLED", "0", 1);
    setenv("LLAMA_RESOURCE_LOG_PATH", path, 1);
    setenv("LLAMA_RESOURCE_LOG_LEVEL", "verbose", 1);
    llama_resource_instrumentation_init(LLAMA_RESOURCE_MINIMAL, "/nonexistent/other");
    llama_resource_instrumentation_free();
    setenv("LLAMA_RESOURCE_LOG_LEVEL", "LOUD", 1); // reported on stderr
    llama_resource_instrumentation_init(LLAMA_RESOURCE_MINIMAL, NULL);
    llama_resource_instrumentation_free();
    unsetenv("LLAMA_RESOURCE_LOG_PATH");
    unsetenv("LLAMA_RESOURCE_LOG_LEVEL");
    unsetenv("LLAMA_RESOURCE_DISABLED");
    struct lines l = read_lines(path); // appended
    CHECK(l.n == 4 && has(l.line[0], "\"level\":\"VERBOSE\"") && has(l.line[2], "\"level\":\"MINIMAL\""));
    all_valid(&l);
    free_lines(&l);
    llama_resource_instrumentation_init(LLAMA_RESOURCE_VERBOSE, NULL);
    llama_resource_instrumentation_init(LLAMA_RESOURCE_VERBOSE, "/nonexistent/x.jsonl");
    llama_resource_instrumentation_init(LLAMA_RESOURCE_VERBOSE, "/tmp");
    CHECK(g_resource_instr == NULL && llama_resource_instr_open(LLAMA_RESOURCE_VERBOSE,
                                                                "/nonexistent/x.jsonl") == NULL);
}

static void fill(int n) {
    for (int i = 0; i < n; i++) {
        llama_resource_instr_log_component_handoff(own(), "attention", "mlp");
    }
}

static void test_full(void) {
    test_case("no room for anything");
    llama_resource_instrumentation_init(LLAMA_RESOURCE_DETAILED, "/dev/full");
    fill(2000);
    llama_resource_instr_flush(own());
    llama_resource_instr_end_session(own());
    llama_resource_instrumentation_free();

    test_case("room runs out and comes back");
    struct rlimit limit, small;
    getrlimit(RLIMIT_FSIZE, &limit);
    small = (struct rlimit) {20000, limit.rlim_max};
    const char * path = kept_path();
    llama_resource_instrumentation_init(LLAMA_RESOURCE_DETAILED, path);
    setrlimit(RLIMIT_FSIZE, &small);
    fill(1000);
    llama_resource_instr_flush(own());
    struct stat st;
    CHECK(stat(path, &st) == 0 && st.st_size <= 20000);
    setrlimit(RLIMIT_FSIZE, &limit);
    llama_resource_instr_flush(own());
    fill(5);
    llama_resource_instr_end_session(own());
    llama_resource_instrumentation_free();
    struct lines l = read_lines(path);
    all_valid(&l); // the torn line was continued
    size_t written = count(&l, "component_handoff");
    CHECK(written < 1005 && number(find(&l, "loss", 0), "count") == 1005 - (double) written);
    CHECK(has(find(&l, "loss", 0), "\"kind\":\"component_handoff\",\"cause\":\"disk_full\""));
    CHECK(has(find(&l, "resource_session_summary", 0), "\"lost\":{\"disk_full\":"));
    free_lines(&l);

    test_case("room stays out");
    path = kept_path();
    llama_resource_instrumentation_init(LLAMA_RESOURCE_DETAILED, path);
    setrlimit(RLIMIT_FSIZE, &small);
    fill(1000);
    llama_resource_instrumentation_free();
    setrlimit(RLIMIT_FSIZE, &limit);
    l = read_lines(path);
    all_valid(&l);
    CHECK(l.n > 10);
    free_lines(&l);

    test_case("an unfinished line of somebody else");
    path = kept_path();
    FILE * f = fopen(path, "w");
    fputs("{\"event\":", f);
    fclose(f);
    llama_resource_instrumentation_init(LLAMA_RESOURCE_DETAILED, path);
    llama_resource_instrumentation_free();
    l = read_lines(path);
    CHECK(l.n == 3 && !valid(l.line[0]) && valid(l.line[1]) && valid(l.line[2]));
    free_lines(&l);
}

static void test_pipe(void) {
    test_case("a pipe that nobody reads");
    int ends[2];
    char path[32];
    CHECK(pipe(ends) == 0);
    snprintf(path, sizeof(path), "/dev/fd/%d", ends[1]);
    llama_resource_instrumentation_init(LLAMA_RESOURCE_DETAILED, path);
    close(ends[0]);
    fill(2000); // SIGPIPE would end the test
    llama_resource_instrumentation_free();
    close(ends[1]);
}

static void test_fork(void) {
    test_case("a child");
    const char * path = kept_path();
    llama_resource_instrumentation_init(LLAMA_RESOURCE_DETAILED, path);
    fill(3);
    pid_t child = fork();
    if (child == 0) {
        fill(2);
        llama_resource_instrumentation_free();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    llama_resource_instrumentation_free();
    struct lines l = read_lines(path);
    all_valid(&l);
    CHECK(count(&l, "component_handoff") == 5 && count(&l, "resource_session_start") == 1 && count(&l,
        "resource_session_end") == 1);
    free_lines(&l);
}

// ---- threads --------------------------------------------------------------------------------------------------------

enum { THREADS = 8, ROUNDS = 300 };

static void * work(void * arg) {
    int layer = *(int *) arg;
    char id[LLAMA_RESOURCE_ID_SIZE];
    for (int i = 0; i < ROUNDS; i++) {
        struct llama_resource_tensor t = tensor("t", "NONE", 16, 16, 0x1000 * (uint64_t) (layer * ROUNDS + i + 1));
        LLAMA_RESOURCE_BEGIN_LAYER(layer);
        LLAMA_RESOURCE_BEGIN_COMPONENT("attention");
        llama_resource_instr_memory_allocation(own(), &t, "scratch", id, sizeof(id));
        llama_resource_instr_log_memory_deallocation(own(), id);
        LLAMA_RESOURCE_LOG_COMPONENT_HANDOFF("attention", "mlp");
        LLAMA_RESOURCE_END_COMPONENT("attention");
        LLAMA_RESOURCE_END_LAYER(layer);
    }
    return NULL;
}

static void test_threads(void) {
    test_case("threads");
    pthread_t threads[THREADS];
    int layers[THREADS];
    const char * path = kept_path();
    llama_resource_instrumentation_init(LLAMA_RESOURCE_DETAILED, path);
    LLAMA_RESOURCE_BEGIN_SESSION("threads");
    for (int i = 0; i < THREADS; i++) {
        layers[i] = i;
        pthread_create(&threads[i], NULL, work, &layers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    LLAMA_RESOURCE_END_SESSION();
    llama_resource_instrumentation_free();
    struct lines l = read_lines(path);
    all_valid(&l);
    CHECK(l.n == 4 + 7 * THREADS * ROUNDS);
    const char * summary = find(&l, "resource_session_summary", 0);
    CHECK(number(summary, "component_flows") == THREADS * ROUNDS && number(summary, "unmatched_ends") == -1);
    CHECK(number(summary, "freed_bytes") == 1024.0 * THREADS * ROUNDS && number(summary,
        "unmatched_deallocations") == -1);
    for (size_t i = 0; i < l.n; i++) { // a component's layer is its thread's
        if (has(l.line[i], "\"component_end\"")) {
            CHECK(number(l.line[i], "layer_id") >= 0);
        }
    }
    free_lines(&l);

    test_case("threads while the file opens, closes and changes");
    path = kept_path();
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, work, &layers[i]);
    }
    for (int i = 0; i < 100; i++) {
        llama_resource_instrumentation_init(LLAMA_RESOURCE_DETAILED, path);
        llama_resource_instr_set_level(own(), i % 2 ? LLAMA_RESOURCE_MINIMAL : LLAMA_RESOURCE_VERBOSE);
        llama_resource_instr_disable(own());
        llama_resource_instr_enable(own());
        llama_resource_instr_flush(own());
        LLAMA_RESOURCE_END_SESSION();
        llama_resource_instrumentation_free();
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    l = read_lines(path);
    all_valid(&l);
    CHECK(count(&l, "resource_session_start") == 100 && count(&l, "resource_session_end") == 100);
    free_lines(&l);
}

int main(int argc, char ** argv) {
    if (argc > 1 && strcmp(argv[1], "threads") == 0) {
        test_threads();
        return test_done();
    }
    test_environment();
    test_full();
    test_pipe();
    test_fork();
    test_threads();
    return test_done();
}
