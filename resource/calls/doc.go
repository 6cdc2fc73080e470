// Package calls watches what a running program of llama.cpp, started without llamatap, gives its library to compute:
// the rows of each batch and how long it took. BPF programs at the entry and return of the library's functions
// (uprobes) report them; nothing is loaded into the process.
//
// A [Collector] attaches the programs, and removes them with Close. A [Tracker] turns the calls into figures of an
// interval and into requests.
package calls
