// Package synth makes valid GGUF models with random weights, so that every architecture and size can be run without a
// download.
//
// A value depends on the seed, the tensor's name and its place in the tensor only: files of different types hold
// the same weights, and neither the number of workers nor the machine changes a bit. Weights are scaled so that
// activations stay near one: matrices have standard deviation 1/√(fan-in), norm weights lie around one.
//
// The tokenizer comes from a model that the caller gives.
package synth
