// tap_http.h: what the head of an HTTP request and the settings in its JSON body say, read as it is received. No text
// of a prompt is kept.
#ifndef LLAMATAP_TAP_HTTP_H
#define LLAMATAP_TAP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tap_http_part {
    TAP_HTTP_REQUEST,      // the request line
    TAP_HTTP_FIELDS,       // header fields
    TAP_HTTP_SIZE,         // the line before a chunk of the body
    TAP_HTTP_BODY,
    TAP_HTTP_PAST          // what is not read: a body that is no JSON object, and what follows the object
};

// A request that is being received. All zero: none of it has come.
struct tap_http {
    uint8_t  part;          // enum tap_http_part
    bool     chunked, sized, extended; // … the chunk's size was begun, and is followed by something else
    bool     string, escaped; // of the body: within a string, and behind its backslash
    bool     key, scalar;   // … the string is a key of the object; the value is no list, object or long string
    uint16_t depth;
    uint16_t line_used;     // UINT16_MAX: the line is too long
    uint16_t key_used;
    uint16_t used;
    uint16_t answer_used;
    uint64_t left;          // bytes of the chunk
    char     name[24];      // the key
    char     line[600];     // the line of the head, or the value
    char     text[1024];    // what was found, see tap_rec_served
    char     answer[512];   // model and id, where a stream names them in its first piece alone
};

// tap_http_read takes in the bytes that were received next, and hands on those of the body, without what is between its
// chunks, in pieces.
void tap_http_read(struct tap_http * http, const char * data, size_t n, void (*body)(const char *, size_t));

// tap_http_off reports whether the body says cache_prompt: false.
bool tap_http_off(const struct tap_http * http);

// tap_http_ranks reports whether the path is that of a ranking.
bool tap_http_ranks(const struct tap_http * http);

#endif
