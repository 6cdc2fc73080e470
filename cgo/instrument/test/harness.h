// harness.h: what the tests of the library share: cases, a file of events that is read back, tensors without ggml.
#ifndef LLAMATAP_INSTRUMENT_TEST_H
#define LLAMATAP_INSTRUMENT_TEST_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../llama-resource-instrumentation.h"

// test_case starts a case; test_done ends the program with its status.
void test_case(const char * name);
int  test_done(void);
void test_fail(const char * file, int line, const char * condition);

// CHECK reports a failure and goes on.
#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            test_fail(__FILE__, __LINE__, #condition); \
        } \
    } while (0)

// The lines of a file.
struct lines {
    char *  text;
    char ** line;
    size_t  n;
    bool    whole; // the last one ends
};

const char * fresh_path(void); // of a file that does not exist, in a folder of this test
struct lines read_lines(const char * path);
void         free_lines(struct lines * l);

// valid reports whether a line is one JSON object, in valid UTF-8.
bool valid(const char * line);

// find returns the nth line of an event, from 0, or NULL; count how many there are.
const char * find(const struct lines * l, const char * event, size_t nth);
size_t       count(const struct lines * l, const char * event);
bool         has(const char * line, const char * text); // line may be NULL
double       number(const char * line, const char * key); // -1 where it is not there

// tensor is an F32 tensor of that shape that an op made.
struct llama_resource_tensor tensor(const char * name, const char * op, int64_t ne0, int64_t ne1, uint64_t address);
void source(struct llama_resource_tensor * t, int s, int64_t ne0, int64_t ne1);

#endif
