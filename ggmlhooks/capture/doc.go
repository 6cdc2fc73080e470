// Package capture records the activations of a run: it takes what the tap reports, joins each micro-batch with the
// program's batch, and pours tensors, token rows and losses into a stream.
//
// What a context does before anything distinguishes a run from a warm-up is held back in the tap's own slots. It is
// dropped when the program discards it, and written when it turns out to be the run. When the model waits for room it
// is written at once, and marked as set-up afterwards if need be.
package capture
