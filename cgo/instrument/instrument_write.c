// instrument_write.c: the file. What cannot be written waits in the buffer, so that lines stay whole; when the
// buffer is full, lines are lost and counted, and the program goes on.
#define _GNU_SOURCE
#include "instrument.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void instr_complain(const char * format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (n > 0) {
        fprintf(stderr, RESOURCE_LOG_PREFIX "%s\n", text); // one call: one line
    }
}

static const char * remedy(int error) {
    switch (error) {
    case ENOENT: return "make its folder, or set LLAMA_RESOURCE_LOG_PATH to another file";
    case EACCES:
    case EPERM:
    case EROFS: return "set LLAMA_RESOURCE_LOG_PATH to a file that may be written";
    case EISDIR: return "set LLAMA_RESOURCE_LOG_PATH to a file";
    default: return "set LLAMA_RESOURCE_LOG_PATH to another file, or LLAMA_RESOURCE_DISABLED=1";
    }
}

// ends_whole reports whether a file is empty or ends with a whole line. What cannot be read back (a pipe, a device)
// counts as whole.
static bool ends_whole(const char * path) {
    struct stat st;
    char last = '\n';
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
        return true;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (pread(fd, &last, 1, st.st_size - 1) != 1) {
            last = '\n';
        }
        close(fd);
    }
    return last == '\n';
}

bool instr_open_file(struct llama_resource_instr * s, const char * path) {
    char why[128];
    if (path == NULL || path[0] == 0) {
        instr_complain("no file is named to write resource events to; name one, or set LLAMA_RESOURCE_LOG_PATH");
        return false;
    }
    do {
        s->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    } while (s->fd < 0 && errno == EINTR);
    if (s->fd < 0) {
        int error = errno;
        instr_complain("cannot open %s: %s; %s", path, strerror_r(error, why, sizeof(why)), remedy(error));
        return false;
    }
    s->path = strdup(path);
    s->used = 0;
    s->error = 0;
    s->error_told = false;
    if (!ends_whole(path)) {
        s->buffer[s->used++] = '\n'; // ends what somebody else could not write to its end
    }
    return true;
}

// guarded_write is write(2), without the signals that it can bring: a pipe that nobody reads and a file-size limit
// are errors here.
static ssize_t guarded_write(int fd, const void * bytes, size_t n) {
    sigset_t ours, before, pending;
    struct timespec now = {0, 0};
    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    sigemptyset(&pending);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    ssize_t written;
    do {
        written = write(fd, bytes, n);
    } while (written < 0 && errno == EINTR);
    int error = errno;
    if (written < 0 && (error == EPIPE || error == EFBIG)) {
        int number = error == EPIPE ? SIGPIPE : SIGXFSZ;
        if (!sigismember(&pending, number)) { // it is ours
            sigdelset(&ours, error == EPIPE ? SIGXFSZ : SIGPIPE);
            while (sigtimedwait(&ours, NULL, &now) < 0 && errno == EINTR) {}
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return written;
}

static void tell_error(struct llama_resource_instr * s) {
    char why[128];
    if (!s->error_told) {
        s->error_told = true;
        instr_complain("cannot write %s: %s; the program continues, and events are lost and counted until there is "
                       "room again",
                       s->path != NULL ? s->path : "the file", strerror_r(s->error, why, sizeof(why)));
    }
}

void instr_flush(struct llama_resource_instr * s, uint64_t now_ns) {
    size_t done = 0;
    int error = 0;
    while (done < s->used) {
        ssize_t n = guarded_write(s->fd, s->buffer + done, s->used - done);
        if (n <= 0) {
            error = n < 0 ? errno : EIO;
            break;
        }
        done += (size_t) n;
    }
    memmove(s->buffer, s->buffer + done, s->used - done);
    s->used -= done;
    s->line = s->used;
    s->error = error;
    if (error == 0) {
        s->flushed_ns = now_ns;
    } else {
        s->failed_ns = now_ns;
        tell_error(s);
    }
}

enum instr_cause instr_write_cause(const struct llama_resource_instr * s) {
    return s->error == ENOSPC || s->error == EDQUOT || s->error == EFBIG ? INSTR_DISK_FULL : INSTR_WRITE_ERROR;
}

void instr_lose(struct llama_resource_instr * s, enum instr_kind kind, enum instr_cause cause, uint64_t n) {
    s->lost[kind][cause] += n;
}

// cut_torn removes the beginning of a line that could not be written to its end, where it is the end of a file of
// ours alone.
static void cut_torn(struct llama_resource_instr * s) {
    struct stat st;
    char tail[INSTR_LINE];
    if (fstat(s->fd, &st) != 0 || !S_ISREG(st.st_mode) || s->path == NULL) {
        return;
    }
    int fd = open(s->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    off_t from = st.st_size > (off_t) sizeof(tail) ? st.st_size - (off_t) sizeof(tail) : 0;
    ssize_t n = pread(fd, tail, (size_t) (st.st_size - from), from);
    close(fd);
    const char * end = n > 0 ? memrchr(tail, '\n', (size_t) n) : NULL;
    if (n > 0 && (end != NULL || from == 0) && ftruncate(s->fd, from + (end != NULL ? end + 1 - tail : 0)) != 0) {
        instr_complain("the last line of %s is cut off", s->path);
    }
}

void instr_close_file(struct llama_resource_instr * s) {
    if (s->used > 0) { // it could not be written
        uint64_t lines = 0;
        for (size_t i = 0; i < s->used; i++) {
            lines += s->buffer[i] == '\n';
        }
        cut_torn(s);
        instr_complain("%llu events that were waiting for room in %s are lost", (unsigned long long) lines,
                       s->path != NULL ? s->path : "the file");
    }
    close(s->fd);
    s->fd = -1;
    free(s->path);
    s->path = NULL;
    s->used = 0;
}
