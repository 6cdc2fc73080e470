// Package perfscript imports memory samples that the program perf has recorded: the text of perf script, and files
// perf.data.
//
// Both are read from front to end, in memory that does not grow with them. Times are those of the file: of
// CLOCK_MONOTONIC, as llamatap's are, only if it was recorded with perf record -k CLOCK_MONOTONIC.
package perfscript
