//go:build llama

// The BLAS backend, and how fast a device multiplies matrices.
#define _GNU_SOURCE
#include "bridge.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ggml-backend.h"
#include "ggml.h"

// open_beside opens a library of a folder, so that those that need it by its name find it.
static void * open_beside(const char * dir, const char * name) {
	char path[4096];
	if ((size_t) snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path) {
		return NULL;
	}
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

bool bridge_blas_load(const char * dir, int threads) {
	if (ggml_backend_reg_by_name("BLAS") != NULL) {
		return true;
	}
	char path[4096];
	if ((size_t) snprintf(path, sizeof path, "%s/libggml-blas.so", dir) >= sizeof path) {
		return false;
	}
	open_beside(dir, "libgfortran.so.5");
	void * blas = open_beside(dir, "libopenblas.so.0");
	open_beside(dir, "libblas.so.3");
	if (ggml_backend_load(path) == NULL) {
		return false;
	}
	void (*set_threads)(int) = NULL;
	if (blas != NULL && threads > 0) {
		set_threads = (void (*)(int)) dlsym(blas, "openblas_set_num_threads");
	}
	if (set_threads != NULL) {
		set_threads(threads);
	}
	return true;
}

// product is a product of matrices that a device is to compute.
struct product {
	struct ggml_context * ctx;
	struct ggml_tensor *  weight, * in, * out;
	ggml_backend_buffer_t weight_buffer, rest_buffer;
};

// weight_type returns where the device of a processor wants the weight to be, as llama.cpp chooses it: the first of
// the device's extra types of buffer with which it supports the product, or its default.
static ggml_backend_buffer_type_t weight_type(ggml_backend_dev_t dev, struct product * p) {
	ggml_backend_dev_get_extra_bufts_t extra = (ggml_backend_dev_get_extra_bufts_t) ggml_backend_reg_get_proc_address(
	    ggml_backend_dev_backend_reg(dev), "ggml_backend_dev_get_extra_bufts");
	ggml_backend_buffer_type_t * all = extra != NULL ? extra(dev) : NULL;
	for (; all != NULL && *all != NULL; all++) {
		p->weight->buffer = ggml_backend_buft_alloc_buffer(*all, 0);
		bool fits = ggml_backend_dev_supports_op(dev, p->out);
		ggml_backend_buffer_free(p->weight->buffer);
		p->weight->buffer = NULL;
		if (fits) {
			return *all;
		}
	}
	return ggml_backend_dev_buffer_type(dev);
}

// place allocates the product's tensors and fills them with numbers between -1 and 1.
static bool place(ggml_backend_dev_t dev, struct product * p) {
	ggml_backend_buffer_type_t type = weight_type(dev, p);
	size_t size = ggml_backend_buft_get_alloc_size(type, p->weight);
	p->weight_buffer = ggml_backend_buft_alloc_buffer(type, size);
	if (p->weight_buffer == NULL || ggml_backend_tensor_alloc(p->weight_buffer, p->weight,
	        ggml_backend_buffer_get_base(p->weight_buffer)) != GGML_STATUS_SUCCESS) {
		return false;
	}
	p->rest_buffer = ggml_backend_alloc_ctx_tensors_from_buft(p->ctx, ggml_backend_dev_buffer_type(dev));
	int64_t k = p->weight->ne[0], n = p->weight->ne[1], most = ggml_nelements(p->in);
	most = most > k * n ? most : k * n;
	float * numbers = malloc((size_t) most * sizeof *numbers);
	void * packed = malloc(ggml_nbytes(p->weight));
	bool ok = p->rest_buffer != NULL && numbers != NULL && packed != NULL;
	if (ok) {
		uint32_t state = 1;
		for (int64_t i = 0; i < most; i++) {
			state = state * 1664525u + 1013904223u;
			numbers[i] = (float) (int32_t) state / 2147483648.0f;
		}
		ggml_quantize_chunk(p->weight->type, numbers, packed, 0, n, k, NULL);
		ggml_backend_tensor_set(p->weight, packed, 0, ggml_nbytes(p->weight));
		ggml_backend_tensor_set(p->in, numbers, 0, ggml_nbytes(p->in));
	}
	free(packed);
	free(numbers);
	return ok;
}

static double now_s(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

// best returns the shortest time, in s, of computing the product, tried for about limit s and at least three times.
static double best(ggml_backend_t backend, struct product * p, double limit) {
	struct ggml_cgraph * graph = ggml_new_graph(p->ctx);
	ggml_build_forward_expand(graph, p->out);
	double shortest = -1, begun = now_s();
	for (int i = 0; i < 3 || now_s() - begun < limit; i++) {
		double from = now_s();
		if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
			return -1;
		}
		double took = now_s() - from;
		shortest = shortest < 0 || took < shortest ? took : shortest;
	}
	return shortest;
}

double bridge_product_time(const char * device, int type, int64_t n, int64_t rows, int threads, double limit) {
	ggml_backend_dev_t dev = ggml_backend_dev_by_name(device);
	ggml_backend_t backend = dev != NULL ? ggml_backend_dev_init(dev, NULL) : NULL;
	if (backend == NULL) {
		return -1;
	}
	ggml_backend_set_n_threads_t set_threads = (ggml_backend_set_n_threads_t) ggml_backend_reg_get_proc_address(
	    ggml_backend_dev_backend_reg(dev), "ggml_backend_set_n_threads");
	if (set_threads != NULL) {
		set_threads(backend, threads);
	}
	struct ggml_init_params params = {ggml_tensor_overhead() * 4 + ggml_graph_overhead(), NULL, true};
	struct product p = {ggml_init(params), NULL, NULL, NULL, NULL, NULL};
	double took = -1;
	if (p.ctx != NULL) {
		p.weight = ggml_new_tensor_2d(p.ctx, (enum ggml_type) type, n, n);
		p.in = ggml_new_tensor_2d(p.ctx, GGML_TYPE_F32, n, rows);
		p.out = ggml_mul_mat(p.ctx, p.weight, p.in);
		took = place(dev, &p) ? best(backend, &p, limit) : -1;
	}
	ggml_backend_buffer_free(p.weight_buffer);
	ggml_backend_buffer_free(p.rest_buffer);
	ggml_free(p.ctx);
	ggml_backend_free(backend);
	return took;
}
