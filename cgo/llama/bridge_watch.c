//go:build llama

#include "bridge.h"

#include <stdlib.h>
#include <string.h>

// watch_note notes a node of the graph that is being computed. Without memory it is only counted.
static void watch_note(struct bridge_watch * w, struct ggml_tensor * t) {
	if (w->n_nodes == w->cap) {
		const int32_t cap = w->cap > 0 ? 2 * w->cap : 2048;
		void * more = realloc(w->nodes, (size_t) cap * sizeof(w->nodes[0]));
		if (more != NULL) {
			w->nodes = more;
			w->cap = cap;
		}
	}
	if (w->n_nodes < w->cap) {
		w->nodes[w->n_nodes] = t;
	}
	w->n_nodes++;
}

// watch_write changes a part of a tensor.
static bool watch_write(struct ggml_tensor * t, const struct bridge_write * write) {
	if (write->kind == BRIDGE_SET) {
		ggml_backend_tensor_set(t, write->data, write->offset, write->size);
		return true;
	}
	float * own = malloc(write->size);
	if (own == NULL) {
		return false;
	}
	ggml_backend_tensor_get(t, own, write->offset, write->size);
	if (write->kind == BRIDGE_PROJECT) {
		const float * direction = write->data;
		const size_t n = write->size / sizeof(float);
		double along = 0;
		for (size_t i = 0; i < n; i++) {
			along += (double) own[i] * direction[i];
		}
		for (size_t i = 0; i < n; i++) {
			own[i] = (float) (own[i] - along * direction[i]);
		}
	}
	ggml_backend_tensor_set(t, own, write->offset, write->size);
	free(own);
	return true;
}

// watch_eval is the eval callback: ggml asks for each node in order, and comes back when a wanted one is computed.
static bool watch_eval(struct ggml_tensor * t, bool ask, void * data) {
	struct bridge_watch * w = data;
	const struct bridge_site * site = w->next < w->n_sites ? &w->sites[w->next] : NULL;
	if (ask) {
		watch_note(w, t);
		return site != NULL && site->node == w->n_nodes - 1;
	}
	w->next++;
	const size_t size = ggml_nbytes(t);
	if (site == NULL || site->offset + site->size > size) {
		w->failed = true;
		return false;
	}
	if (site->read != NULL) {
		ggml_backend_tensor_get(t, site->read, site->offset, site->size);
	}
	for (int32_t i = 0; i < site->n_writes; i++) {
		const struct bridge_write * write = &w->writes[site->first_write + i];
		if (write->offset + write->size > size || !watch_write(t, write)) {
			w->failed = true;
			return false;
		}
	}
	return true;
}

void bridge_watch_params(struct llama_context_params * params, struct bridge_watch * watch) {
	params->cb_eval           = watch_eval;
	params->cb_eval_user_data = watch;
}

int32_t bridge_decode_watched(struct llama_context * ctx, struct llama_batch batch, struct bridge_watch * watch,
                              const struct bridge_site * sites, int32_t n_sites, const struct bridge_write * writes) {
	watch->sites   = sites;
	watch->writes  = writes;
	watch->n_sites = n_sites;
	watch->n_nodes = watch->next = 0;
	watch->failed  = false;
	const int32_t rc = bridge_decode(ctx, batch);
	llama_synchronize(ctx);
	watch->failed |= rc == 0 && watch->next != n_sites;
	watch->n_sites = 0;
	return rc;
}

// watch_weight finds a weight among what the nodes of the last graph read.
static struct ggml_tensor * watch_weight(const struct bridge_watch * w, const char * name) {
	for (int32_t i = 0; i < w->n_nodes && i < w->cap; i++) {
		for (int k = 0; k < GGML_MAX_SRC; k++) {
			struct ggml_tensor * t = w->nodes[i]->src[k];
			if (t != NULL && t->buffer != NULL && strcmp(t->name, name) == 0 &&
			    ggml_backend_buffer_get_usage(t->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
				return t;
			}
		}
	}
	return NULL;
}

bool bridge_set_weight(const struct bridge_watch * watch, const char * name, const void * data, size_t size) {
	struct ggml_tensor * t = watch_weight(watch, name);
	if (t == NULL || ggml_nbytes(t) != size) {
		return false;
	}
	ggml_backend_tensor_set(t, data, 0, size);
	return true;
}

bool bridge_requantise(const void * from, enum ggml_type from_type, void * to, enum ggml_type to_type, int64_t rows,
                       int64_t per_row) {
	const struct ggml_type_traits * traits = ggml_get_type_traits(from_type);
	float * row = malloc((size_t) per_row * sizeof(float));
	const bool can = row != NULL && (from_type == GGML_TYPE_F32 || traits->to_float != NULL) &&
	                 !ggml_quantize_requires_imatrix(to_type);
	for (int64_t i = 0; can && i < rows; i++) {
		const char * at = (const char *) from + (size_t) i * ggml_row_size(from_type, per_row);
		if (from_type == GGML_TYPE_F32) {
			memcpy(row, at, (size_t) per_row * sizeof(float));
		} else {
			traits->to_float(at, row, per_row);
		}
		char * into = (char *) to + (size_t) i * ggml_row_size(to_type, per_row);
		if (to_type == GGML_TYPE_F32) {
			memcpy(into, row, (size_t) per_row * sizeof(float));
		} else {
			ggml_quantize_chunk(to_type, row, into, 0, 1, per_row, NULL);
		}
	}
	free(row);
	return can;
}
