// Package timeline writes what a run recorded over time in the formats of tools that show time: Perfetto, Chrome's
// trace viewer, speedscope and pprof.
//
// [Write] reads the resource events of a run once, in the order of the log, and holds one execution at a time. An
// execution becomes a graph with its layers, components and ops, nested; tokens, counters, page faults and losses have
// tracks of their own. Every duration is one that was measured: an execution that was not timed inside is a graph
// without parts.
package timeline
