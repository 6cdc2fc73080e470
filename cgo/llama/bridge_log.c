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

// log_sequence is the length of the UTF-8 sequence of a printable character that text begins with, 0 if it begins
// with anything else: a control character but newline and tab, an override of direction, or no UTF-8. It is the
// rule of package internal/present.
static size_t log_sequence(const unsigned char * text) {
	if (text[0] < 0x80) {
		return (text[0] >= 0x20 && text[0] != 0x7f) || text[0] == '\n' || text[0] == '\t';
	}
	size_t n = text[0] >= 0xc2 && text[0] <= 0xdf ? 2 : text[0] >= 0xe0 && text[0] <= 0xef ? 3 : text[0] >= 0xf0 &&
	    text[0] <= 0xf4 ? 4 : 0;
	for (size_t i = 1; i < n; i++) {
		if ((text[i] & 0xc0) != 0x80) { // also the end of the string
			return 0;
		}
	}
	bool c1       = text[0] == 0xc2 && text[1] < 0xa0;
	bool override = n == 3 && text[0] == 0xe2 && ((text[1] == 0x80 && text[2] >= 0xa8 && text[2] <= 0xae) ||
                                                  (text[1] == 0x81 && text[2] >= 0xa6 && text[2] <= 0xa9));
	return c1 || override ? 0 : n;
}

// bridge_log_write writes a text of llama.cpp, in which names of a model file stand, to stderr; what controls a
// terminal is written as \xNN.
void bridge_log_write(const char * text) {
	const unsigned char * at = (const unsigned char *) text;
	while (*at != 0) {
		const unsigned char * begin = at;
		for (size_t n; *at != 0 && (n = log_sequence(at)) > 0;) {
			at += n;
		}
		fwrite(begin, 1, (size_t) (at - begin), stderr);
		if (*at != 0) {
			fprintf(stderr, "\\x%02x", *at++);
		}
	}
}

static void log_keep(const char * text) {
	size_t n = strlen(text);
	if (n > sizeof(log_errors) - 1 - log_errors_len) {
		n = sizeof(log_errors) - 1 - log_errors_len;
	}
	memcpy(log_errors + log_errors_len, text, n);
	log_errors_len += n;
	log_errors[log_errors_len] = 0;
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
		bridge_log_write(text);
	}
	pthread_mutex_unlock(&log_lock);
}

// log_abort says the last words of a failed assertion, and lets the process die of SIGABRT as it would without Go's
// handler. It takes no lock: the thread that fails may hold it.
static void log_abort(const char * text) {
	bridge_log_write(log_errors);
	fputs("llama.cpp: ", stderr);
	bridge_log_write(text);
	fputc('\n', stderr);
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
		bridge_log_write(log_errors);
	}
	log_collecting = on;
	log_errors_len = 0;
	log_errors[0]  = 0;
	pthread_mutex_unlock(&log_lock);
}

size_t bridge_log_take(char * buf, size_t size) {
	pthread_mutex_lock(&log_lock);
	size_t n = log_errors_len < size - 1 ? log_errors_len : size - 1;
	memcpy(buf, log_errors, n);
	buf[n] = 0;
	log_errors_len = 0;
	log_errors[0]  = 0;
	pthread_mutex_unlock(&log_lock);
	return n;
}
