//go:build llama

#define _GNU_SOURCE
#include "bridge.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

bool bridge_backends_load(const char * dir) {
	if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == NULL && dir != NULL) {
		ggml_backend_load_all_from_path(dir);
	}
	return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) != NULL;
}

int bridge_rpc_add(const char * path, const char * endpoint) {
	ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
	if (rpc == NULL && path != NULL) {
		rpc = ggml_backend_load(path);
	}
	ggml_backend_reg_t (*add)(const char *) = NULL;
	if (rpc != NULL) {
		add = (ggml_backend_reg_t (*)(const char *)) ggml_backend_reg_get_proc_address(rpc,
		    "ggml_backend_rpc_add_server");
	}
	if (add == NULL) {
		return 1;
	}
	ggml_backend_reg_t server = add(endpoint);
	if (server == NULL || ggml_backend_reg_dev_count(server) == 0) {
		return 2;
	}
	ggml_backend_register(server);
	return 0;
}

static bool model_progress(float fraction, void * data) {
	struct bridge_signal * signal = data;
	uint32_t bits;
	memcpy(&bits, &fraction, sizeof(bits));
	__atomic_store_n(&signal->fraction, bits, __ATOMIC_RELAXED);
	return __atomic_load_n(&signal->stop, __ATOMIC_RELAXED) == 0;
}

void bridge_model_params(struct llama_model_params * params, struct bridge_signal * signal) {
	params->progress_callback           = model_progress;
	params->progress_callback_user_data = signal;
}

static bool context_stop(void * data) {
	return __atomic_load_n(&((struct bridge_signal *) data)->stop, __ATOMIC_RELAXED) != 0;
}

void bridge_context_signal(struct llama_context * ctx, struct bridge_signal * signal) {
	llama_set_abort_callback(ctx, context_stop, signal);
}

FILE * bridge_memory_file(const char * name, const void * data, size_t size) {
	int fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0) {
		return NULL;
	}
	for (size_t done = 0; done < size;) {
		ssize_t n = write(fd, (const char *) data + done, size - done);
		if (n < 0 && errno != EINTR) {
			goto fail;
		}
		done += n > 0 ? (size_t) n : 0;
	}
	FILE * file = lseek(fd, 0, SEEK_SET) < 0 ? NULL : fdopen(fd, "rb");
	if (file != NULL) {
		return file;
	}
fail:;
	int why = errno;
	close(fd);
	errno = why;
	return NULL;
}

int32_t bridge_decode(struct llama_context * ctx, struct llama_batch batch) {
	bridge_log_collect(true);
	int32_t rc = llama_decode(ctx, batch);
	if (rc == 0) {
		bridge_log_collect(false);
	}
	return rc;
}

int64_t bridge_now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

int32_t bridge_decode_each(struct llama_context * ctx, struct llama_batch batch, const llama_token * tokens,
                           int32_t steps, int64_t * at, int32_t * done) {
	int32_t rc = 0;
	bridge_log_collect(true);
	at[0] = bridge_now_ns();
	for (*done = 0; *done < steps; ++*done) {
		for (int32_t i = 0; i < batch.n_tokens; i++) {
			batch.token[i] = tokens[(size_t) *done * (size_t) batch.n_tokens + (size_t) i];
			batch.pos[i] += *done > 0;
		}
		if ((rc = llama_decode(ctx, batch)) != 0) {
			return rc;
		}
		llama_synchronize(ctx);
		at[*done + 1] = bridge_now_ns();
	}
	bridge_log_collect(false);
	return rc;
}

typedef struct ggml_threadpool * (*threadpool_new_t)(struct ggml_threadpool_params *);
typedef void (*threadpool_free_t)(struct ggml_threadpool *);

// cpu_function looks a function of the CPU backend up, which is loaded at run time and cannot be linked with.
static void * cpu_function(const char * name) {
	ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
	return cpu == NULL ? NULL : ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), name);
}

bool bridge_threads_attach(struct llama_context * ctx, int n, int n_batch, struct bridge_threads * out) {
	threadpool_new_t make = (threadpool_new_t) cpu_function("ggml_threadpool_new");
	out->single = out->batch = NULL;
	if (make == NULL) {
		return false;
	}
	struct ggml_threadpool_params single, batch;
	ggml_threadpool_params_init(&single, n);
	ggml_threadpool_params_init(&batch, n_batch);
	if (!ggml_threadpool_params_match(&single, &batch)) {
		out->batch    = make(&batch);
		single.paused = true; // until the batch pool, which works first, hands over
	}
	out->single = make(&single);
	if (out->single == NULL) {
		bridge_threads_free(out);
		return false;
	}
	llama_attach_threadpool(ctx, out->single, out->batch);
	return true;
}

void bridge_threads_free(struct bridge_threads * threads) {
	threadpool_free_t release = (threadpool_free_t) cpu_function("ggml_threadpool_free");
	if (release != NULL && threads->single != NULL) {
		release(threads->single);
	}
	if (release != NULL && threads->batch != NULL) {
		release(threads->batch);
	}
	threads->single = threads->batch = NULL;
}
