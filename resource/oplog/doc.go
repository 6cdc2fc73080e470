// Package oplog makes resource events of what the tap reports: sessions, memory, graphs, layers, components, ops,
// tokens, experts, samplers.
//
// Everything of an event that does not change between executions of a graph is worked out once, when the graph is
// described (plan). Of an execution it keeps what comes until its end, and until it is decided whether it was
// set-up; then it is recorded at once.
package oplog
