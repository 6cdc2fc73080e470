//go:build llama

#include "bridge.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

// What is collected is bounded; later errors of one failure explain less than its first.
static char            log_errors[2048];
static size_t          log_errors_len;
static bool            log_collecting;
static bool            log_continues_shown; // where a continuation of the last message goes
static bool            log_continues_kept;
static int             log_shown = GGML_LOG_LEVEL_ERROR;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void log_keep(const char * text) {
	size_t n = strlen(text);
	if (n > sizeof(log_errors) - log_errors_len) {
		n = sizeof(log_errors) - log_errors_len;
	}
	memcpy(log_errors + log_errors_len, text, n);
	log_errors_len += n;
}

// log_message is llama.cpp's and ggml's log callback; it may come from any of their threads.
static void log_message(enum ggml_log_level level, const char * text, void * data) {
	(void) data;
	pthread_mutex_lock(&log_lock);
	if (level != GGML_LOG_LEVEL_CONT) {
		log_continues_kept  = log_collecting && level == GGML_LOG_LEVEL_ERROR;
		log_continues_shown = (int) level >= log_shown && (!log_continues_kept || log_shown < GGML_LOG_LEVEL_ERROR);
	}
	if (log_continues_kept) {
		log_keep(text);
	}
	if (log_continues_shown) {
		fputs(text, stderr);
	}
	pthread_mutex_unlock(&log_lock);
}

// log_abort says the last words of a failed assertion, and lets the process die of SIGABRT as it would without Go's handler. It
// takes no lock: the thread that fails may hold it.
static void log_abort(const char * text) {
	fwrite(log_errors, 1, log_errors_len, stderr);
	fprintf(stderr, "llama.cpp: %s\n", text);
	signal(SIGABRT, SIG_DFL);
}

void bridge_log_init(void) {
	llama_log_set(log_message, NULL);
	ggml_set_abort_callback(log_abort);
}

void bridge_log_level(int level) {
	pthread_mutex_lock(&log_lock);
	log_shown = level;
	pthread_mutex_unlock(&log_lock);
}

void bridge_log_collect(bool on) {
	pthread_mutex_lock(&log_lock);
	if (!on && log_shown == GGML_LOG_LEVEL_ERROR) {
		fwrite(log_errors, 1, log_errors_len, stderr);
	}
	log_collecting = on;
	log_errors_len = 0;
	pthread_mutex_unlock(&log_lock);
}

size_t bridge_log_take(char * buf, size_t size) {
	pthread_mutex_lock(&log_lock);
	size_t n = log_errors_len < size - 1 ? log_errors_len : size - 1;
	memcpy(buf, log_errors, n);
	buf[n] = 0;
	log_errors_len = 0;
	pthread_mutex_unlock(&log_lock);
	return n;
}
