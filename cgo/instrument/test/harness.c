// harness.c: cases, files read back, a check of JSON that owes nothing to the library's own code.
#define _GNU_SOURCE
#include "harness.h"

#include <ctype.h>

static const char * name;
static int          cases, failures;
static bool         failed;

static void end_case(void) {
    if (name != NULL) {
        printf("%s %s\n", failed ? "FAIL" : "ok  ", name);
        failures += failed;
    }
}

void test_case(const char * next) {
    end_case();
    name = next;
    failed = false;
    cases++;
}

void test_fail(const char * file, int line, const char * condition) {
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, name, condition);
    failed = true;
}

int test_done(void) {
    end_case();
    printf("%d cases, %d failed\n", cases, failures);
    return failures != 0;
}

// ---- files ----------------------------------------------------------------------------------------------------------

static char folder[] = "/tmp/instrument-test-XXXXXX";

static void remove_folder(void) {
    char command[sizeof(folder) + 16];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    if (system(command) != 0) {
        perror(folder);
    }
}

const char * fresh_path(void) {
    static char path[64];
    static int  n;
    if (n == 0) {
        if (mkdtemp(folder) == NULL) {
            perror(folder);
            exit(2);
        }
        atexit(remove_folder);
    }
    snprintf(path, sizeof(path), "%s/%d.jsonl", folder, n++);
    return path;
}

struct lines read_lines(const char * path) {
    struct lines l = {0};
    FILE * f = fopen(path, "r");
    size_t size = 0;
    if (f == NULL || getdelim(&l.text, &size, 0, f) < 0) {
        l.text = calloc(1, 1);
    }
    if (f != NULL) {
        fclose(f);
    }
    size_t length = strlen(l.text);
    l.whole = length == 0 || l.text[length - 1] == '\n';
    l.line = calloc(length + 1, sizeof(char *));
    char * rest = l.text;
    for (char * line = strsep(&rest, "\n"); line != NULL && (rest != NULL || *line != 0); line = strsep(&rest, "\n")) {
        l.line[l.n++] = line;
    }
    return l;
}

void free_lines(struct lines * l) {
    free(l->line);
    free(l->text);
    memset(l, 0, sizeof(*l));
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

static bool value(const char ** at);

static bool string(const char ** at) {
    const char * c = *at;
    if (*c++ != '"') {
        return false;
    }
    while (*c != '"') {
        unsigned char u = (unsigned char) *c;
        if (u < 0x20) {
            return false;
        } else if (u == '\\') {
            c++;
            if (*c == 'u') {
                for (int i = 1; i <= 4; i++) {
                    if (!isxdigit((unsigned char) c[i])) {
                        return false;
                    }
                }
                c += 4;
            } else if (*c == 0 || strchr("\"\\/bfnrt", *c) == NULL) {
                return false;
            }
        } else if (u >= 0x80) {
            int more = u >= 0xf0 && u <= 0xf4 ? 3 : u >= 0xe0 && u < 0xf0 ? 2 : u >= 0xc2 && u < 0xe0 ? 1 : -1;
            for (int i = 0; i < more; i++) {
                if (((unsigned char) *++c & 0xc0) != 0x80) {
                    return false;
                }
            }
            if (more < 0) {
                return false;
            }
        }
        c++;
    }
    *at = c + 1;
    return true;
}

static bool many(const char ** at, char end, bool keys) {
    (*at)++;
    if (**at == end) {
        (*at)++;
        return true;
    }
    for (;;) {
        if (keys && (!string(at) || *(*at)++ != ':')) {
            return false;
        }
        if (!value(at)) {
            return false;
        }
        if (**at == end) {
            (*at)++;
            return true;
        }
        if (*(*at)++ != ',') {
            return false;
        }
    }
}

static bool value(const char ** at) {
    char * end;
    switch (**at) {
    case '{': return many(at, '}', true);
    case '[': return many(at, ']', false);
    case '"': return string(at);
    case 't': *at += 4; return strncmp(*at - 4, "true", 4) == 0;
    case 'f': *at += 5; return strncmp(*at - 5, "false", 5) == 0;
    }
    if (**at != '-' && !isdigit((unsigned char) **at)) {
        return false;
    }
    strtod(*at, &end);
    bool ok = end > *at;
    *at = end;
    return ok;
}

bool valid(const char * line) { return line != NULL && *line == '{' && value(&line) && *line == 0; }

const char * find(const struct lines * l, const char * event, size_t nth) {
    char begin[64];
    snprintf(begin, sizeof(begin), "{\"event\":\"%s\",", event);
    for (size_t i = 0; i < l->n; i++) {
        if (strncmp(l->line[i], begin, strlen(begin)) == 0 && nth-- == 0) {
            return l->line[i];
        }
    }
    return NULL;
}

size_t count(const struct lines * l, const char * event) {
    size_t n = 0;
    while (find(l, event, n) != NULL) {
        n++;
    }
    return n;
}

bool has(const char * line, const char * text) { return line != NULL && strstr(line, text) != NULL; }

double number(const char * line, const char * key) {
    char quoted[64];
    snprintf(quoted, sizeof(quoted), ",\"%s\":", key);
    const char * at = NULL;
    for (const char * next = line; next != NULL && (next = strstr(next, quoted)) != NULL; next++) {
        at = next; // the last one: "sources" has the same keys before
    }
    return at != NULL ? strtod(at + strlen(quoted), NULL) : -1;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

struct llama_resource_tensor tensor(const char * name, const char * op, int64_t ne0, int64_t ne1, uint64_t address) {
    uint64_t bytes = (uint64_t) ne0 * (uint64_t) ne1 * 4;
    return (struct llama_resource_tensor) {
        .size = sizeof(struct llama_resource_tensor), .n_dims = 2, .ne = {ne0, ne1, 1, 1}, .bytes = bytes,
        .value_bytes = bytes,
        .name = name, .type = "f32", .op = op, .address = address, .root_address = address, .root_bytes = bytes,
        .host = address != 0,
    };
}

void source(struct llama_resource_tensor * t, int s, int64_t ne0, int64_t ne1) {
    memcpy(t->source_ne[s], (int64_t[4]) {ne0, ne1, 1, 1}, sizeof(t->source_ne[s]));
    t->source_bytes[s] = (uint64_t) ne0 * (uint64_t) ne1 * 4;
    t->sources |= UINT32_C(1) << s;
}
