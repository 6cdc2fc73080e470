package llama

import "errors"

// Errors of this package, wrapped with what was being done; test with errors.Is.
var (
	// ErrNoBackend: no compute backend for the CPU was found where this build looks for them.
	ErrNoBackend = errors.New("llama.cpp found no CPU backend")
	// ErrLoad: llama.cpp refused the model.
	ErrLoad = errors.New("llama.cpp cannot load the model")
	// ErrContext: llama.cpp could not make a context, mostly for want of memory.
	ErrContext = errors.New("llama.cpp cannot make a context")
	// ErrNoSlot: the memory of the context has no room for the batch.
	ErrNoSlot = errors.New("no room in the context for this batch")
	// ErrInterrupted: Context.Interrupt, or the end of LoadModel's context.Context, stopped the work.
	ErrInterrupted = errors.New("interrupted")
	// ErrBatch: the batch is empty, too long, or holds tokens or positions that do not exist.
	ErrBatch = errors.New("invalid batch")
	// ErrDecode: computing the batch failed; llama.cpp's log says why.
	ErrDecode = errors.New("llama.cpp cannot decode the batch")
	// ErrWatch: a graph is not the one that sites were made for, or memory is short.
	ErrWatch = errors.New("the graph has other nodes than the sites were made for")
	// ErrNoLogits: the batch has no output at the index asked for.
	ErrNoLogits = errors.New("no logits at this index")
	// ErrNoEmbedding: the batch has no embedding at the index asked for, or of the sequence.
	ErrNoEmbedding = errors.New("no embedding")
	// ErrAdapter: llama.cpp refused a LoRA adapter or a control vector.
	ErrAdapter = errors.New("llama.cpp cannot apply the adapter")
	// ErrState: the state of a context cannot be written, or is not one of this model and these settings.
	ErrState = errors.New("llama.cpp cannot save or load the state")
	// ErrGrammar: the grammar cannot be read, or it forbids a token, or all that are left.
	ErrGrammar = errors.New("grammar")
	// ErrChatTemplate: the template is none that llama.cpp's library knows, or it cannot write these messages.
	ErrChatTemplate = errors.New("chat template")
	// ErrDevice: a device or server of this name does not exist.
	ErrDevice = errors.New("no such device")
	// ErrClosed: the object was closed.
	ErrClosed = errors.New("already closed")
)
