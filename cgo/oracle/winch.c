// Makes a program report each new size of its terminal: stock llama.cpp programs take no notice of it. Preloaded by
// tests that ask whether the signal and the size reach a program.

#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

// tell_size writes the terminal's size, ROWSxCOLUMNS, to the standard error output.
static void tell_size(int signal) {
    (void) signal;
    struct winsize size;
    char text[64];
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0) {
        const int n = snprintf(text, sizeof(text), "[%dx%d]", size.ws_row, size.ws_col);
        ssize_t unused = write(STDERR_FILENO, text, (size_t) n);
        (void) unused;
    }
}

__attribute__((constructor)) static void winch_start(void) {
    const struct sigaction action = {.sa_handler = tell_size, .sa_flags = SA_RESTART};
    sigaction(SIGWINCH, &action, NULL);
}
