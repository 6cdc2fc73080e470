// test_http.c: requests as they may arrive, cut into pieces at every place.
#define _GNU_SOURCE
#include "../tap_http.h"
#include "../tap_ids.h"
#include "../tap_served.h"
#include "harness.h"

#include <string.h>

#define PARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
#define HEAD "POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: a\r\nTraceParent:  " PARENT "\r\ntracestate: a=1,b=2\r\n"
#define CHAT "path /v1/chat/completions\ntraceparent " PARENT "\ntracestate a=1,b=2\n"
#define BODY "{\"messages\":[{\"role\":\"user\",\"content\":\"\\\"model\\\":\\\"no\\\", \\\\\"}], " \
    "\"model\" : \"g\\\"1\\\\\", " \
    "\"temperature\":0.25,\r\n\"response_format\":{\"temperature\":9,\"model\":\"no\"}," \
    "\"stop\":[\"model\"],\"prompt\":\"}\"," \
    "\"seed\":-1,\"stream\":true,\"cache_prompt\": false ,\"max_tokens\":7}"
#define SAYS "model \"g\\\"1\\\\\"\ntemperature 0.25\nseed -1\nstream true\ncache_prompt false\nmax_tokens 7\n"

#define TEXT "0123456789 \\\"seed\\\":1, \\\\ {[]} \\\"model\\\":\\\"no\\\"," // 50 bytes
#define LONG TEXT TEXT TEXT TEXT TEXT TEXT TEXT TEXT TEXT TEXT TEXT TEXT TEXT TEXT

static const struct { const char * name, * request, * want; bool off; } cases[] = {
    {"a chat", HEAD "Content-Length: 300\r\n\r\n" BODY, CHAT SAYS, true},
    {"no body", "GET /health HTTP/1.1\r\nhost: a\r\n\r\n", "path /health\n", false},
    {"chunks", HEAD "Transfer-Encoding: gzip, Chunked\r\n\r\n"
     "1a;a=b\r\n{\"model\":\"gopher\",\"seed\":\r\nC\r\n12,\"top_k\":4\r\n"
     "2\r\n0}\r\n0\r\n\r\n", CHAT "model \"gopher\"\nseed 12\ntop_k 40\n", false},
    {"a long prompt", "POST /completion HTTP/1.1\n\n{\"prompt\":\"" LONG "\",\"messages\":[\"" LONG "\"],\"seed\":7}",
     "path /completion\nseed 7\n", false},
    {"no object", "POST /completion HTTP/1.1\r\n\r\n[{\"model\":\"a\"}]", "path /completion\n", false},
    {"a name that holds a setting", "POST /completion HTTP/1.1\n\n{\"model\":\"\\ncache_prompt false\"}",
     "path /completion\nmodel \"\\ncache_prompt false\"\n", false},
    {"values that are no settings", "POST /completion HTTP/1.1\n\n{\"model\":{\"seed\":1},"
     "\"seed\":[1,2],\"top_p\":1e-3}",
     "path /completion\ntop_p 1e-3\n", false},
};

// Prompts of the tokens 12, 345 and 6.
static const char * const of_ids[] = {
    "POST /completion HTTP/1.1\n\n{\"stop\":[5],\"prompt\" : [12, 345,6 ],\"seed\":7}",
    "POST /completion HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    "d\r\n{\"prompt\":[12\r\n3\r\n,34\r\n1\r\n5\r\n0c\r\n,6],\"top_k\":\r\n2\r\n4}\r\n0\r\n\r\n",
};

static struct tap_ids ids;
static uint32_t prompts;

static void found(uint64_t hash, uint32_t n) {
    const uint32_t tokens[] = {12, 345, 6};
    uint64_t want = TAP_HASH_BEGIN;
    for (int i = 0; i < 3; i++) {
        want = (want ^ tokens[i]) * TAP_HASH_PRIME;
    }
    CHECK(n == 3 && hash == want, "a prompt of %u tokens", n);
    prompts++;
}

static void body(const char * data, size_t n) { tap_ids_read(&ids, data, n, found); }
static void ignored(const char * data, size_t n) { (void) data, (void) n; }

int main(void) {
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        test_case("http: %s", cases[i].name);
        const size_t n = strlen(cases[i].request);
        for (size_t first = 0; first <= n; first++) {
            for (size_t step = 1; step <= n; step += n - 1) { // the rest in bytes, or at once
                static struct tap_http http;
                memset(&http, 0, offsetof(struct tap_http, name));
                tap_http_read(&http, cases[i].request, first, ignored);
                for (size_t at = first; at < n; at += step) {
                    tap_http_read(&http, cases[i].request + at, at + step < n ? step : n - at,
                                  ignored);
                }
                CHECK(http.used == strlen(cases[i].want) && memcmp(http.text, cases[i].want, http.used) == 0,
                      "cut at %zu: %.*s", first, http.used, http.text);
                CHECK(tap_http_off(&http) == cases[i].off, "cut at %zu: cache_prompt", first);
            }
        }
        test_end();
    }
    test_case("http: token ids");
    for (size_t i = 0; i < sizeof(of_ids) / sizeof(of_ids[0]); i++) {
        const size_t n = strlen(of_ids[i]);
        for (size_t first = 0; first <= n; first++) {
            struct tap_http http = {0};
            ids = (struct tap_ids) {0};
            prompts = 0;
            tap_http_read(&http, of_ids[i], first, body);
            tap_http_read(&http, of_ids[i] + first, n - first, body);
            CHECK(prompts == 1, "cut at %zu: %u prompts", first, prompts);
        }
    }
    test_end();
    test_case("http: random bytes");
    uint64_t rng = 1;
    for (int round = 0; round < 2000; round++) {
        struct tap_http http = {0};
        char bytes[2048];
        const char some[] = "{}[]\",:\\\r\n: aPOST model0123456789 ";
        const size_t head = sizeof(HEAD "\r\n") - 1;
        memcpy(bytes, HEAD "\r\n", head);
        for (size_t i = rng_below(&rng, head); i < sizeof(bytes); i++) {
            bytes[i] = some[rng_below(&rng, sizeof(some))];
        }
        tap_http_read(&http, bytes, sizeof(bytes), ignored);
        CHECK(http.used <= sizeof(http.text), "%u bytes", http.used);
    }
    test_end();
    return test_done();
}
