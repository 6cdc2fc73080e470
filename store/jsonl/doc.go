// Package jsonl writes files of JSON lines for long runs: whole lines, buffered, flushed by size
// and time, in parts of a size, at a bounded rate. What cannot be written is counted by cause and reported in the file;
// nothing of it holds the run up or ends it.
package jsonl
