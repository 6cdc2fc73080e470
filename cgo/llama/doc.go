// Package llama is the part of llama.h that a runner needs: backends and devices, model, context, batch, sampler
// chain, vocabulary, adapters, memory and performance data.
//
// It exists with the build tag llama, which 'make env' sets together with everything that the linker needs. Without
// the tag every call that can fail returns an error that wraps errors.ErrUnsupported, so a program that imports
// this package still builds.
//
// # Ownership
//
// Init is called once and by LoadModel itself. A Model owns its Vocab and must outlive its Contexts; a Context owns
// its Memory and its threads. A Model must also outlive its Samplers and Adapters, and an Adapter the Contexts that
// it is set in. Model, Context, Batch, Sampler and Adapter hold C memory and are released by Close, which may be
// called twice; nothing is released by the garbage collector. A slice handed out by Context.Logits is C memory and
// valid until the next call on that context.
//
// # Goroutines
//
// A Model and its Vocab may be used by several goroutines at a time. A Context, with its Memory, its Samplers and
// the Batches that it decodes, belongs to one goroutine at a time. That goroutine should be locked to its thread
// (runtime.LockOSThread) for as long as it decodes: OpenMP keeps one team of threads per calling thread, and a
// goroutine that wanders makes it start several. Only Context.Interrupt may be called from anywhere.
//
// # Units and errors
//
// Lengths are tokens or bytes as the names say, times are time.Duration by llama.cpp's own clock. Errors are those
// of errors.go, wrapped with what was being done; where llama.cpp logged why, its words are part of the error. Its
// log is one per process: when calls fail in several goroutines at a time, the reason of one may stand in the error
// of another, or on stderr.
package llama
