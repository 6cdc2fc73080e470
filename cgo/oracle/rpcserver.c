// Serves the CPU as an RPC device on loopback: a device with its own address space for tests on
// machines without a GPU. Built and started by internal/testenv.
//
//   rpcserver CPU_BACKENDS_FOLDER RPC_BACKEND_FILE HOST:PORT

#include <stdint.h>
#include <stdio.h>

#include <ggml-backend.h>
#include <ggml-rpc.h>

typedef void (*start_server_fn)(const char *, const char *, size_t, size_t, ggml_backend_dev_t *);

int main(int argc, char ** argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: rpcserver CPU_BACKENDS_FOLDER RPC_BACKEND_FILE HOST:PORT\n");
        return 2;
    }
    ggml_backend_load_all_from_path(argv[1]);
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_reg_t rpc = ggml_backend_load(argv[2]);
    if (cpu == NULL || rpc == NULL) {
        fprintf(stderr, "rpcserver: no %s backend\n", cpu == NULL ? "CPU" : "RPC");
        return 1;
    }
    start_server_fn start = (start_server_fn)(intptr_t)ggml_backend_reg_get_proc_address(rpc,
        "ggml_backend_rpc_start_server");
    if (start == NULL) {
        fprintf(stderr, "rpcserver: this RPC backend cannot serve\n");
        return 1;
    }
    start(argv[3], NULL, 1, 1, &cpu); // returns only on failure
    return 1;
}
