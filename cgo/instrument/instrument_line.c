// instrument_line.c: one event as one line of JSON, made in the file's buffer.
#define _GNU_SOURCE
#include "instrument.h"

#include <inttypes.h>
#include <stdio.h>

const char * const instr_kinds[INSTR_KINDS] = {
    "resource_session_start", "resource_tracking_begin", "layer_begin", "layer_end", "component_begin", "component_end",
    "memory_allocation", "memory_deallocation", "compute_execution", "component_handoff", "kv_cache_operation",
    "mlp_operation",
    "resource_session_summary", "resource_session_end", "loss", "level",
};
const char * const instr_causes[INSTR_CAUSES] = {"disk_full", "write_error", "too_long"};
const char * const instr_levels[3] = {"MINIMAL", "DETAILED", "VERBOSE"};

static void put(struct llama_resource_instr * s, const char * bytes, size_t n) {
    if (s->line_fault == INSTR_CAUSES && s->used - s->line + n > INSTR_LINE) {
        s->line_fault = INSTR_TOO_LONG;
    } else if (s->line_fault == INSTR_CAUSES && n > INSTR_BUFFER - s->used) {
        s->line_fault = instr_write_cause(s);
    }
    if (s->line_fault != INSTR_CAUSES) {
        return;
    }
    memcpy(s->buffer + s->used, bytes, n);
    s->used += n;
}

void instr_raw(struct llama_resource_instr * s, const char * text) { put(s, text, strlen(text)); }

// character returns the length of the UTF-8 character that text begins with, 0 where there is none.
static size_t character(const unsigned char * text) {
    size_t n;
    if (text[0] < 0x80) {
        return 1;
    } else if (text[0] >= 0xc2 && text[0] <= 0xdf) {
        n = 2;
    } else if (text[0] >= 0xe0 && text[0] <= 0xef) {
        n = 3;
    } else if (text[0] >= 0xf0 && text[0] <= 0xf4) {
        n = 4;
    } else {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0; // the end of the text is here at the latest
        }
    }
    // too long a form; a surrogate
    bool wrong = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
                 // too long; beyond Unicode
                 (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f);
    return wrong ? 0 : n;
}

// plain returns how many bytes stand for themselves.
static size_t plain(const unsigned char * text, const unsigned char * end) {
    const unsigned char * at = text;
    while (at < end && *at >= 0x20 && *at < 0x7f && *at != '"' && *at != '\\') {
        at++;
    }
    return (size_t) (at - text);
}

static void escaped(struct llama_resource_instr * s, unsigned char c) {
    static const char hex[] = "0123456789abcdef";
    char u[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    switch (c) {
    case '"': put(s, "\\\"", 2); break;
    case '\\': put(s, "\\\\", 2); break;
    case '\n': put(s, "\\n", 2); break;
    case '\r': put(s, "\\r", 2); break;
    case '\t': put(s, "\\t", 2); break;
    default: put(s, u, 6);
    }
}

void instr_quoted(struct llama_resource_instr * s, const char * text, size_t most) {
    const unsigned char * at = (const unsigned char *) (text != NULL ? text : "");
    const unsigned char * end = at + strnlen((const char *) at, most);
    put(s, "\"", 1);
    while (at < end) {
        size_t n = plain(at, end);
        put(s, (const char *) at, n);
        at += n;
        if (at == end) {
            break;
        }
        n = character(at);
        if (n > (size_t) (end - at)) {
            break; // cut off within a character
        }
        if (n == 0) {
            put(s, "\xef\xbf\xbd", 3); // U+FFFD
            n = 1;
        } else if (*at < 0x20 || *at == '"' || *at == '\\' || *at == 0x7f) {
            escaped(s, *at);
        } else {
            put(s, (const char *) at, n);
        }
        at += n;
    }
    put(s, "\"", 1);
}

void instr_copy(char * to, size_t size, const char * text) {
    size_t n = 0;
    while (text != NULL && text[n] != 0) {
        size_t more = character((const unsigned char *) text + n);
        more = more == 0 ? 1 : more;
        if (n + more >= size) {
            break;
        }
        n += more;
    }
    memcpy(to, text != NULL ? text : "", n);
    to[n] = 0;
}

void instr_key(struct llama_resource_instr * s, const char * key) {
    put(s, ",\"", 2);
    instr_raw(s, key);
    put(s, "\":", 2);
}

void instr_text(struct llama_resource_instr * s, const char * key, const char * text) {
    instr_key(s, key);
    instr_quoted(s, text, INSTR_TEXT);
}

// digits writes a number's digits to the end of a buffer and returns where they begin. least is how many there are
// at least.
static char * digits(char * end, uint64_t value, int least) {
    char * at = end;
    while (value > 0 || end - at < least) {
        *--at = (char) ('0' + value % 10);
        value /= 10;
    }
    return at;
}

static void put_int(struct llama_resource_instr * s, int64_t value) {
    char number[24], * end = number + sizeof(number);
    char * at = digits(end, value < 0 ? 0 - (uint64_t) value : (uint64_t) value, 1);
    if (value < 0) {
        *--at = '-';
    }
    put(s, at, (size_t) (end - at));
}

void instr_int(struct llama_resource_instr * s, const char * key, int64_t value) {
    instr_key(s, key);
    put_int(s, value);
}

void instr_uint(struct llama_resource_instr * s, const char * key, uint64_t value) {
    char number[24], * end = number + sizeof(number), * at = digits(end, value, 1);
    instr_key(s, key);
    put(s, at, (size_t) (end - at));
}

void instr_hex(struct llama_resource_instr * s, const char * key, uint64_t value) {
    char number[24];
    snprintf(number, sizeof(number), "\"0x%" PRIx64 "\"", value);
    instr_key(s, key);
    instr_raw(s, number);
}

void instr_shape(struct llama_resource_instr * s, const char * key, const struct llama_resource_tensor * t) {
    instr_key(s, key);
    for (int i = 0; i < t->n_dims && i < 4; i++) {
        put(s, i == 0 ? "[" : ",", 1);
        put_int(s, t->ne[i]);
    }
    instr_raw(s, t->n_dims > 0 ? "]" : "[]");
}

void instr_ratio(struct llama_resource_instr * s, const char * key, uint64_t numerator, uint64_t denominator) {
    uint64_t whole = numerator / denominator;
    const unsigned __int128 rest = (unsigned __int128) (numerator % denominator) * 1000000000;
    uint64_t part = (uint64_t) ((rest + denominator / 2) / denominator);
    char number[40], * end = number + sizeof(number);
    if (part == 1000000000) { // rounded up
        whole++;
        part = 0;
    }
    char * at = digits(end, part, 9);
    while (end - at > 2 && end[-1] == '0') {
        end--;
    }
    *--at = '.';
    at = digits(at, whole, 1);
    instr_key(s, key);
    put(s, at, (size_t) (end - at));
}

void instr_mib(struct llama_resource_instr * s, const char * key, uint64_t bytes) {
    instr_ratio(s, key, bytes, 1 << 20);
}

// ---- events ---------------------------------------------------------------------------------------------------------

static void start(struct instr_call * c, enum instr_kind kind, const char * source) {
    struct llama_resource_instr * s = c->instr;
    int64_t unix_ns = (int64_t) c->mono_ns + s->unix_offset_ns;
    s->line = s->used;
    s->line_fault = INSTR_CAUSES;
    s->line_kind = kind;
    instr_raw(s, "{\"event\":\"");
    instr_raw(s, instr_kinds[kind]);
    instr_raw(s, "\",\"timestamp\":\"");
    put_int(s, unix_ns / 1000);
    instr_raw(s, "\"");
    instr_int(s, "unix_ns", unix_ns);
    instr_uint(s, "mono_ns", c->mono_ns);
    instr_text(s, "session_id", s->session);
    instr_text(s, "source", source);
}

static void finish(struct llama_resource_instr * s) {
    instr_raw(s, "}\n");
    if (s->line_fault != INSTR_CAUSES) {
        instr_lose(s, s->line_kind, s->line_fault, 1);
        s->used = s->line;
        return;
    }
    s->events++;
}

// losses reports what was lost, now that there is room again.
static void losses(struct instr_call * c) {
    struct llama_resource_instr * s = c->instr;
    for (int kind = 0; kind < INSTR_KINDS; kind++) {
        for (int cause = 0; cause < INSTR_CAUSES; cause++) {
            uint64_t n = s->lost[kind][cause] - s->lost_told[kind][cause];
            if (n > 0 && INSTR_BUFFER - s->used >= 2 * INSTR_LINE) {
                start(c, INSTR_LOSS, "measured");
                instr_text(s, "kind", instr_kinds[kind]);
                instr_text(s, "cause", instr_causes[cause]);
                instr_uint(s, "count", n);
                finish(s);
                s->lost_told[kind][cause] += n;
            }
        }
    }
}

void instr_begin(struct instr_call * c, enum instr_kind kind, const char * source) {
    struct llama_resource_instr * s = c->instr;
    if (INSTR_BUFFER - s->used < INSTR_LINE && (s->error == 0 || c->mono_ns - s->failed_ns > INSTR_RETRY_NS)) {
        instr_flush(s, c->mono_ns);
    }
    if (s->error == 0) {
        losses(c);
    }
    start(c, kind, source);
}

void instr_end(struct instr_call * c) {
    struct llama_resource_instr * s = c->instr;
    finish(s);
    bool due = c->mono_ns > s->flushed_ns && c->mono_ns - s->flushed_ns > INSTR_FLUSH_NS;
    if (due && (s->error == 0 || c->mono_ns - s->failed_ns > INSTR_RETRY_NS)) {
        instr_flush(s, c->mono_ns);
    }
}
