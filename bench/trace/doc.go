// Package trace makes rows as a trace of memory accesses has them, as many as are wanted, and measures how fast
// they are written and read.
package trace
