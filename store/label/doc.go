// Package label holds what a stream records about a node or a token row: component, phase, row kind, sequence and
// request. Package ggmlhooks re-exports the types under its own name.
package label
