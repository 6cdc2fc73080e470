// Package oracle holds tests of the finished program against other people's programs that know the right answer:
// every captured node against llama-eval-callback, text and tokens against llama.cpp's own tools, a device against
// the CPU, and what a run leaves behind however it ends. It runs bin/llamatap as a user would, and has no code of
// its own.
//
// Each oracle has a short form, and a long one that make nightly runs.
package oracle
