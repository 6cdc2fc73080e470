// Package runner conducts runs of a model: load, warm-up, prefill, generation.
//
// Run does what llama-completion -no-cnv --no-display-prompt does with the same settings, token for token: the same
// batches, the same warm-up, the same sampler chain, so that a recording of one is a recording of the other. It
// writes the generated text and nothing else to Options.Stdout; its messages go to Options.Stderr.
// RunPrompts completes many prompts with one model, several at a time, and writes Answers as JSON lines.
// RunEmbeddings does what llama-embedding does.
//
// # Ownership and goroutines
//
// A call owns everything that it makes, and has freed it when it returns: model, context, samplers, adapters,
// files. It keeps nothing of Options. It is one goroutine, locked to its thread while it uses llama.cpp; several
// calls may run at a time, each with a model of its own. Options.Stdout and Options.Stderr are written by the
// goroutine of the call alone. It ends early, within one token, when its context ends; only a read of Options.Stdin
// that waits for input is left behind.
//
// # Units and errors
//
// Lengths are tokens, times time.Duration or, in names that end with Ns, nanoseconds, all of the monotonic clock.
// Errors are those of options.go, wrapped with cause and remedy on one line, and those of packages gguf and llama.
// A build without llama.cpp returns an error that wraps errors.ErrUnsupported.
//
// Generate is Run that hands over tensors while the model computes, in this process. What happens inside the model
// is recorded from outside of its process: Command starts programs that run llama.cpp with the tap preloaded,
// llama.cpp's own, from the installation that this binary was built for, and any other dynamically linked one. Package
// runner/session records them.
package runner
