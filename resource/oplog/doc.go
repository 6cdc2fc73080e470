// Package oplog makes resource events of decided executions: sessions, memory, graphs, layers, components, ops,
// tokens, experts, samplers.
//
// What an event repeats for each execution of a graph is worked out once, when the graph is described (plan). Each
// kind of evidence has a type of its own that makes its events: memory, steps, tokens, routing, compute, cells,
// devices, totals. They share one writer.
package oplog
