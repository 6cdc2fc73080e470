// Package rundir is the directory of one run: its name, its files, its metadata, and the manifest that makes it a
// result.
//
// Run directories come from anywhere. Every reader of a file of a run opens it with [OpenFile], which takes regular
// files only, follows no link and never waits, or reads it as a whole with [ReadFile], which has a limit.
//
// [LineWriter] writes files of JSON lines for long runs: whole lines, buffered, flushed by size and time, in parts of a
// size, at a bounded rate. What cannot be written is counted by cause and reported in the file; nothing of it holds the
// run up or ends it.
package rundir
