// Package host analyses what host collectors recorded: block I/O, system metrics, joined to the
// phases of a run where the run has times of graphs. It reads STRAP-LLM's own files as well as llamatap's.
// docs/HOST_ANALYZE.md defines each number.
// DrawCharts draws what it found, under the names that STRAP-LLM gives its pictures.
//
// Files may be of any size: they are read line by line, and what is kept of them is bounded.
package host
