// Package capture records the activations of a run: it writes the executions that an assembler hands it, with their
// tensors, to a stream, hands on their tokens, and counts the outcome of every tensor that was selected.
package capture
