// Package runner conducts one run of a model: load, warm-up, prefill, generation.
//
// Run does what llama-completion -no-cnv --no-display-prompt does with the same settings, token for token: the same batches, the same
// warm-up, the same samplers and grammar, adapters, context shifts and prompt cache files, so that a recording of one is a recording of
// the other. It writes the generated text and nothing else to Options.Stdout; what it has to tell goes to Options.Stderr.
//
// A run is one goroutine, locked to its thread while it uses llama.cpp. It ends early, within one token, when its context ends.
package runner
