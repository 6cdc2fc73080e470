//go:build llama

// tap_wire.c: prompts as they arrive, and answers as they leave, by the sockets of llama-server. No text of a prompt or
// an answer is reported.
#define _GNU_SOURCE
#include "tap_http.h"
#include "tap_ids.h"
#include "tap_real.h"
#include "tap_served.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

// What this thread has received. llama-server answers a connection's requests in one thread, one after the other.
static TAP_OWN struct {
    int64_t arrived; // the first bytes of the request, 0: none
    bool    asked;   // a prompt of it was tokenized
    bool    left;    // an answer was begun
    bool    streams; // and a piece of it behind the head was sent
    bool    afresh;  // it does not want what its slot holds
    struct tap_ids ids;
    struct tap_http * http; // what it says of itself; NULL: there is no memory for it
    bool    said;    // … was reported
    int     closing; // 1 + the connection that sends nothing any more; 0: none
} tap_wire;

// tap_wire_ask reports a prompt that was received; one of no tokens: the ones before it do not want what a slot holds.
static void tap_wire_ask(uint64_t hash, uint32_t n) {
    struct tap_rec_served rec = {
        .kind = TAP_SERVED_ASK, .mono_ns = (uint64_t) tap_wire.arrived, .begun_ns = (uint64_t) tap_now(),
        .key = hash, .value = n, .row = (int32_t) syscall(SYS_gettid), .ctx = UINT32_MAX,
        .token = tap_wire.afresh || n == 0,
    };
    tap_wire.asked = true;
    tap_served_send(&rec, NULL, 0);
}

// A prompt is recognised by its tokens, as they are computed: its hash is reported, FNV-1a of 64 bits.
int32_t llama_tokenize(const struct llama_vocab * vocab, const char * text, int32_t size, llama_token * tokens,
                       int32_t room, bool add_special, bool parse_special) {
    const int32_t n = TAP_REAL(llama_tokenize)(vocab, text, size, tokens, room, add_special, parse_special);
    if (n <= 0 || tap_wire.arrived == 0 || !tap_served_on()) {
        return n;
    }
    // behind a prompt: words of tools and logit_bias, and further parts of a prompt
    if (tap_wire.asked && !add_special && !(tap_wire.http != NULL && tap_http_ranks(tap_wire.http))) {
        return n;
    }
    uint64_t hash = TAP_HASH_BEGIN;
    for (int32_t i = 0; i < n; i++) {
        hash = (hash ^ (uint32_t) tokens[i]) * TAP_HASH_PRIME;
    }
    tap_wire_ask(hash, (uint32_t) n);
    return n;
}

#ifdef LLAMATAP_PRELOADED

// tap_wire_has reports whether a piece of an answer has a text.
static bool tap_wire_has(const char * data, size_t n, const char * text) {
    return memmem(data, n, text, strlen(text)) != NULL;
}

// tap_wire_continues reports whether a piece says that the rest of the request may follow. Its empty line comes alone.
static bool tap_wire_continues(const char * data, size_t n) {
    static const char more[] = "HTTP/1.1 100";
    return (n >= sizeof(more) - 1 && memcmp(data, more, sizeof(more) - 1) == 0) ||
        (n == 2 && memcmp(data, "\r\n", 2) == 0);
}

// tap_wire_closes reports whether a piece is the last one of a stream.
static bool tap_wire_closes(const char * data, size_t n) {
    return n >= 3 && n <= 5 && memcmp(data, "0\r\n\r\n", n) == 0;
}

// tap_wire_ends counts why generation ended, as answers of llama-server's four interfaces name it. Quotes within
// generated text are escaped, so that it cannot look like that. In /responses parts of an answer have a status as well.
static uint32_t tap_wire_ends(const char * data, size_t n, uint32_t * all) {
    static const char * const keys[] = {"\"stop_type\":\"", "\"finish_reason\":\"", "\"stop_reason\":\"",
        "{\"error\":{\""};
    uint32_t found = 0;
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        const char * at = data;
        const size_t length = strlen(keys[k]);
        while ((at = memmem(at, n - (size_t) (at - data), keys[k], length)) != NULL) {
            at += length;
            const char c = (size_t) (at - data) < n ? *at : 0;
            const uint32_t end = k == 3 ? TAP_SERVED_ERROR :
                c == 'l' || c == 'm' ? TAP_SERVED_LENGTH : c == 'n' && k == 0 ? 0 : TAP_SERVED_STOP;
            *all = found++ == 0 || *all == end ? end : 0;
        }
    }
    if (found == 0 && tap_wire_has(data, n, "\"object\":\"response\"") &&
        tap_wire_has(data, n, "\"status\":\"completed\"") &&
        tap_wire_has(data, n, "\"type\":\"response.completed\"") == tap_wire_has(data, n, "\"type\":\"response.")) {
        *all = TAP_SERVED_COMPLETED;
        return 1;
    }
    return found;
}

// tap_wire_name copies the first key with a text that begins so; nothing where it does not fit.
static size_t tap_wire_name(char * to, size_t room, const char * data, size_t n, const char * begin) {
    const char * at = memmem(data, n, begin, strlen(begin)), * last = data + n;
    if (at == NULL) {
        return 0;
    }
    const char * end = at + strlen(begin);
    while (end < last && *end != '"') {
        end += *end == '\\' && end + 1 < last ? 2 : 1;
    }
    const size_t size = end < last ? (size_t) (end + 1 - at) : room;
    if (size >= room || size > 256) {
        return 0;
    }
    memcpy(to, at, size);
    return size;
}

// tap_wire_names copies model and id of an answer.
static size_t tap_wire_names(char * to, size_t room, const char * data, size_t n) {
    static const char * const names[] = {"\"model\":\"", "\"id\":\"chatcmpl-", "\"id\":\"resp_"};
    size_t used = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        used += tap_wire_name(to + used, room - used, data, n, names[i]);
    }
    return used;
}

// tap_wire_output copies how many tokens an answer without timings says that it has.
static size_t tap_wire_output(char * to, size_t room, const char * data, size_t n) {
    static const char key[] = "\"output_tokens\":";
    const char * at = NULL, * last = data + n, * end = data;
    for (const char * next; (next = memmem(end, (size_t) (last - end), key, sizeof(key) - 1)) != NULL;) {
        at = next; // the last one: a stream begins with 0
        end = next + sizeof(key) - 1;
    }
    while (at != NULL && end < last && *end >= '0' && *end <= '9') {
        end++;
    }
    const size_t size = at != NULL && end < last ? (size_t) (end - at) : room;
    if (size >= room || size > 64) {
        return 0;
    }
    memcpy(to, at, size);
    return size;
}

static _Atomic(void *) tap_behind_recv, tap_behind_send, tap_behind_shutdown;

static pthread_key_t tap_http_key;
static bool tap_http_made;
static pthread_once_t tap_http_once = PTHREAD_ONCE_INIT;

// What a thread reads of a request is too much for its static storage, and is freed when the thread ends.
static void tap_http_make(void) { tap_http_made = pthread_key_create(&tap_http_key, free) == 0; }

static struct tap_http * tap_http_new(void) {
    pthread_once(&tap_http_once, tap_http_make);
    struct tap_http * http = tap_http_made ? calloc(1, sizeof(*http)) : NULL;
    if (http != NULL && pthread_setspecific(tap_http_key, http) != 0) {
        free(http);
        http = NULL;
    }
    return http;
}

static void tap_wire_body(const char * data, size_t n) { tap_ids_read(&tap_wire.ids, data, n, tap_wire_ask); }

// tap_wire_head reads what a request says of itself, and reports it once.
static void tap_wire_head(const char * data, size_t n) {
    struct tap_http * http = tap_wire.http;
    tap_http_read(http, data, n, tap_wire_body);
    if (!tap_wire.afresh && tap_http_off(http)) {
        if (tap_wire.asked) { // it follows prompts of token ids
            tap_wire_ask(0, 0);
        }
        tap_wire.afresh = true;
    }
    if (!tap_wire.said && http->part == TAP_HTTP_PAST) {
        struct tap_rec_served head = {
            .kind = TAP_SERVED_HTTP, .mono_ns = (uint64_t) tap_wire.arrived, .row = (int32_t) syscall(SYS_gettid),
            .ctx = UINT32_MAX,
        };
        tap_served_send(&head, http->text, http->used);
        tap_wire.said = true;
    }
}

ssize_t recv(int fd, void * data, size_t size, int flags) {
    const ssize_t n = TAP_BEHIND(recv, "recv")(fd, data, size, flags);
    const bool closing = fd + 1 == tap_wire.closing;
    if (n <= 0 && closing) {
        tap_wire.closing = 0; // the next connection may have its number
    }
    if (n <= 0 || (flags & MSG_PEEK) || closing || !tap_served_on()) {
        return n;
    }
    if (tap_wire.arrived == 0 || tap_wire.left) {
        tap_wire.arrived = tap_now();
        tap_wire.asked = tap_wire.left = tap_wire.streams = tap_wire.afresh = tap_wire.said = false;
        tap_wire.ids = (struct tap_ids) {0};
        if (tap_wire.http != NULL || (tap_wire.http = tap_http_new()) != NULL) {
            memset(tap_wire.http, 0, offsetof(struct tap_http, name));
        }
    }
    if (tap_wire.http != NULL) {
        tap_wire_head(data, (size_t) n);
    }
    return n;
}

ssize_t send(int fd, const void * data, size_t size, int flags) {
    if (tap_wire.arrived != 0 && tap_served_on()) {
        const bool first = !tap_wire.left;
        tap_wire.left |= !tap_wire_continues(data, size);
        struct tap_rec_served rec = {
            .kind = TAP_SERVED_ANSWER, .mono_ns = (uint64_t) tap_now(), .row = (int32_t) syscall(SYS_gettid),
            .ctx = UINT32_MAX, .token = -1,
        };
        if (tap_wire.asked && !first && !tap_wire.streams) {
            tap_wire.streams = true;
            if (tap_wire.http != NULL && tap_wire_has(data, size, "\"type\":\"message_start\"")) {
                tap_wire.http->answer_used = (uint16_t) tap_wire_names(tap_wire.http->answer,
                    sizeof(tap_wire.http->answer), data, size);
            }
        }
        const uint32_t ends = tap_wire.asked ? tap_wire_ends(data, size, &rec.value) : 0;
        // an answer that neither ends nor streams is to something else than generation
        const bool other = first && tap_wire.left && !tap_wire_has(data, size, "text/event-stream");
        if (ends > 0 || (tap_wire.asked && (other || tap_wire_closes(data, size)))) {
            rec.key = ends;
            static const char slot[] = "\"id_slot\":";
            const char * last = (const char *) data + size, * at = memmem(data, size, slot, sizeof(slot) - 1);
            for (at = at != NULL ? at + sizeof(slot) - 1 : last; at < last && *at >= '0' && *at <= '9'; at++) {
                rec.token = 10 * (rec.token > 0 && rec.token < 100000 ? rec.token : 0) + (*at - '0');
            }
            const char * times = memmem(data, size, "\"timings\":{", 11);
            const char * end = times != NULL ? memchr(times, '}', (size_t) (last - times)) : NULL; // they are numbers
            char text[1024];
            size_t n = end != NULL && end - times < 512 ? (size_t) (end - times) : 0;
            if (n > 0) {
                memcpy(text, times, n);
            }
            n += tap_wire_names(text + n, sizeof(text) - n, data, size);
            const struct tap_http * http = tap_wire.http;
            if (http != NULL && http->answer_used > 0 && n + http->answer_used < sizeof(text)) {
                memcpy(text + n, http->answer, http->answer_used);
                n += http->answer_used;
            }
            n += tap_wire_output(text + n, sizeof(text) - n, data, size);
            tap_served_send(&rec, text, n);
        }
    }
    return TAP_BEHIND(send, "send")(fd, data, size, flags);
}

// A request that was not answered ends with its connection. Before llama-server closes one it reads what is left, which
// nobody answers.
int shutdown(int fd, int how) {
    tap_wire.arrived = 0;
    tap_wire.closing = how == SHUT_WR ? fd + 1 : 0;
    return TAP_BEHIND(shutdown, "shutdown")(fd, how);
}

#endif
