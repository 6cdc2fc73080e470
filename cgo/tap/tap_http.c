//go:build llama

// tap_http.c: reads HTTP requests as they are received, byte by byte, wherever they are cut. It keeps the path, the
// trace context and the numbers, switches and names among the settings, a line each, and skips everything else.
#define _GNU_SOURCE
#include "tap_http.h"

#include <string.h>
#include <strings.h>

// keep adds "key value\n" to what was found, unless it is too long or would break a line.
static void keep(struct tap_http * http, const char * key, const char * value, size_t n) {
    const size_t k = strlen(key);
    if (n == 0 || memchr(value, '\n', n) != NULL || http->used + k + n + 2 > sizeof(http->text)) {
        return;
    }
    char * at = http->text + http->used;
    memcpy(at, key, k);
    at[k] = ' ';
    memcpy(at + k + 1, value, n);
    at[k + 1 + n] = '\n';
    http->used += (uint16_t) (k + n + 2);
}

// add puts a byte into the line, unless that is too long already.
static void add(struct tap_http * http, char c) {
    if (http->line_used < sizeof(http->line)) {
        http->line[http->line_used++] = c;
    } else {
        http->line_used = UINT16_MAX;
    }
}

// field takes in a header field.
static void field(struct tap_http * http) {
    static const char * const wanted[] = {"traceparent", "tracestate"};
    static const char chunked[] = "transfer-encoding:";
    http->line[http->line_used] = 0;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        const size_t n = strlen(wanted[i]);
        if (strncasecmp(http->line, wanted[i], n) == 0 && http->line[n] == ':') {
            const char * value = http->line + n + 1 + strspn(http->line + n + 1, " \t");
            keep(http, wanted[i], value, strlen(value));
        }
    }
    http->chunked |= strncasecmp(http->line, chunked, sizeof(chunked) - 1) == 0 &&
        strcasestr(http->line, "chunked") != NULL;
}

// end_line takes in a line of the head.
static void end_line(struct tap_http * http) {
    const bool whole = http->line_used < sizeof(http->line);
    if (whole && http->line_used > 0 && http->line[http->line_used - 1] == '\r') {
        http->line_used--;
    }
    const bool empty = http->line_used == 0;
    if (http->part == TAP_HTTP_REQUEST && !empty) {
        char * path = whole ? memchr(http->line, ' ', http->line_used) : NULL;
        if (path != NULL) {
            const size_t n = http->line_used - (size_t) (++path - http->line);
            http->line[http->line_used] = 0;
            const size_t end = strcspn(path, " ?\"\\");
            keep(http, "path", path, end < n ? end : n);
        }
        http->part = TAP_HTTP_FIELDS;
    } else if (http->part == TAP_HTTP_FIELDS && empty) {
        http->part = http->chunked ? TAP_HTTP_SIZE : TAP_HTTP_BODY;
    } else if (http->part == TAP_HTTP_FIELDS && whole) {
        field(http);
    }
    http->line_used = 0;
}

// size takes in a byte of the line before a chunk, or of the empty one before that.
static void size(struct tap_http * http, char c) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    if (c == '\n') {
        http->part = !http->sized ? TAP_HTTP_SIZE : http->left > 0 ? TAP_HTTP_BODY : TAP_HTTP_PAST;
        http->sized = http->extended = false;
    } else if (digit < 0) {
        http->extended = http->sized;
    } else if (!http->extended) {
        http->left = (http->sized ? http->left * 16 : 0) + (uint64_t) digit;
        http->sized = true;
    }
}

// value takes in a setting. The names are those of llama-server's interfaces.
static void value(struct tap_http * http) {
    static const char * const wanted[] = {"model", "max_tokens", "max_completion_tokens", "max_output_tokens",
        "n_predict", "temperature", "top_p", "top_k", "seed", "stream", "frequency_penalty", "presence_penalty", "n",
        "n_cmpl", "cache_prompt"};
    for (size_t i = 0; http->scalar && http->line_used <= 200 && i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (strlen(wanted[i]) == http->key_used && memcmp(http->name, wanted[i], http->key_used) == 0) {
            keep(http, wanted[i], http->line, http->line_used);
        }
    }
    http->key_used = 0;
}

// body takes in a byte of a JSON object: keys and values of its outermost level.
static void body(struct tap_http * http, char c) {
    const bool top = http->depth == 1;
    if (http->string) {
        const bool ends = c == '"' && !http->escaped;
        http->escaped = c == '\\' && !http->escaped;
        http->string = !ends;
        if (top && http->key && !ends) {
            if (http->key_used < sizeof(http->name)) {
                http->name[http->key_used] = c;
            }
            http->key_used += http->key_used < UINT16_MAX;
        } else if (top && !http->key && http->scalar) {
            add(http, c);
        }
        return;
    }
    switch (c) {
        case ' ': case '\t': case '\r': case '\n':
            return;
        case '{': case '[':
            if (http->depth == UINT16_MAX || (http->depth == 0 && c == '[')) {
                http->part = TAP_HTTP_PAST;
                return;
            }
            http->scalar = false;
            if (http->depth++ == 0) {
                http->key = true;
                http->key_used = http->line_used = 0;
            }
            return;
        case '}': case ']':
            if (top) {
                value(http);
                http->part = TAP_HTTP_PAST;
                return;
            }
            http->depth -= http->depth > 0;
            return;
        case ',':
            if (top) {
                value(http);
                http->key = true;
            }
            return;
        case ':':
            if (top) {
                http->key = false;
                http->scalar = true;
                http->line_used = 0;
            }
            return;
        case '"':
            http->string = true;
            http->escaped = false;
            if (top && http->key) {
                http->key_used = 0;
            }
            break;
    }
    if (http->depth == 0) {
        http->part = TAP_HTTP_PAST;
    } else if (top && !http->key && http->scalar) {
        add(http, c);
    }
}

// skips reports whether the text within which the body is matters only as far as it ends.
static bool skips(const struct tap_http * http) {
    return http->depth != 1 || (!http->key && (!http->scalar || http->line_used == UINT16_MAX));
}

// piece takes in bytes of the body that follow each other.
static void piece(struct tap_http * http, const char * data, size_t n) {
    for (size_t i = 0; i < n && http->part == TAP_HTTP_BODY; i++) {
        if (http->string && !http->escaped && skips(http)) { // most of a body
            while (i < n && data[i] != '"' && data[i] != '\\') {
                i++;
            }
            if (i == n) {
                return;
            }
        }
        body(http, data[i]);
    }
}

void tap_http_read(struct tap_http * http, const char * data, size_t n, void (*next)(const char *, size_t)) {
    for (size_t i = 0; i < n && http->part != TAP_HTTP_PAST; i++) {
        if (http->part == TAP_HTTP_SIZE) {
            size(http, data[i]);
        } else if (http->part != TAP_HTTP_BODY) {
            if (data[i] == '\n') {
                end_line(http);
            } else {
                add(http, data[i]);
            }
        } else {
            const size_t run = http->chunked && http->left < n - i ? (size_t) http->left : n - i;
            piece(http, data + i, run);
            next(data + i, run);
            i += run - 1;
            http->left -= http->chunked ? run : 0;
            if (http->chunked && http->left == 0 && http->part == TAP_HTTP_BODY) {
                http->part = TAP_HTTP_SIZE;
            }
        }
    }
}

bool tap_http_off(const struct tap_http * http) {
    static const char off[] = "\ncache_prompt f";
    return memmem(http->text, http->used, off, sizeof(off) - 1) != NULL;
}

bool tap_http_ranks(const struct tap_http * http) {
    static const char path[] = "path ", ranks[] = "rerank";
    const char * end = memchr(http->text, '\n', http->used);
    return end != NULL && memcmp(http->text, path, sizeof(path) - 1) == 0 &&
        memmem(http->text, (size_t) (end - http->text), ranks, sizeof(ranks) - 1) != NULL;
}
