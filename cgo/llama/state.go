//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// SaveState writes the context's memory to a file, with the tokens that it was computed from, in llama.cpp's session
// format. It replaces what is there. The error is ErrState with llama.cpp's reason.
func (x *Context) SaveState(path string, tokens []Token) error {
	return x.stateFile("save", path, func(name *C.char) bool {
		return bool(C.llama_state_save_file(x.c, name, (*C.llama_token)(unsafe.Pointer(unsafe.SliceData(tokens))),
			C.size_t(len(tokens))))
	})
}

// LoadState reads the context's memory from a file of SaveState, or of llama.cpp's programs, and returns the tokens
// that it holds. The file must come from the same model with the same types of KV cache. The error is ErrState, and the
// memory is cleared then.
func (x *Context) LoadState(path string) ([]Token, error) {
	tokens, n := x.tokenBuffer()
	err := x.stateFile("load", path, func(name *C.char) bool {
		return bool(C.llama_state_load_file(x.c, name, (*C.llama_token)(unsafe.Pointer(&tokens[0])),
			C.size_t(len(tokens)), &n))
	})
	if err == nil {
		err = x.checkTokens(tokens[:n])
	}
	if err != nil {
		if x.c != nil {
			x.Memory().Clear(true) // a part may have come
		}
		return nil, err
	}
	return tokens[:n], nil
}

// SaveSequence is SaveState for one sequence. llama-server takes such a file for one of its slots.
func (x *Context) SaveSequence(path string, seq Seq, tokens []Token) error {
	return x.stateFile("save", path, func(name *C.char) bool {
		return C.llama_state_seq_save_file(x.c, name, C.llama_seq_id(seq),
			(*C.llama_token)(unsafe.Pointer(unsafe.SliceData(tokens))), C.size_t(len(tokens))) > 0
	})
}

// LoadSequence is LoadState for one sequence, also in what an error leaves; the others stay as they are. It reads the
// files that llama-server makes of its slots, too.
func (x *Context) LoadSequence(path string, seq Seq) ([]Token, error) {
	tokens, n := x.tokenBuffer()
	err := x.stateFile("load", path, func(name *C.char) bool {
		return C.llama_state_seq_load_file(x.c, name, C.llama_seq_id(seq), (*C.llama_token)(unsafe.Pointer(&tokens[0])),
			C.size_t(len(tokens)), &n) > 0
	})
	tokens = tokens[:n]
	if err == nil {
		tokens, err = slotTokens(tokens)
	}
	if err == nil {
		err = x.checkTokens(tokens)
	}
	if err != nil {
		if x.c != nil {
			x.Memory().Remove(seq, AllPositions, AllPositions) // a part may have come
		}
		return nil, err
	}
	return tokens, nil
}

// llama-server 0.7.0 packs the tokens of a slot: a mark, the version, their number, the tokens, and the number of
// images among them.
const (
	slotMark    = NoToken
	slotVersion = 1
	slotWords   = 4 // beside the tokens
)

// slotTokens takes the tokens out of what llama-server has packed; those that are not packed are returned as they are.
func slotTokens(tokens []Token) ([]Token, error) {
	if len(tokens) == 0 || tokens[0] != slotMark {
		return tokens, nil
	}
	switch {
	case len(tokens) < slotWords || tokens[1] != slotVersion || tokens[2] < 0 || int(tokens[2]) > len(tokens)-slotWords:
		return nil, fmt.Errorf("load state: %w: its tokens are packed by another version of llama-server", ErrState)
	case len(tokens) > int(tokens[2])+slotWords || tokens[len(tokens)-1] != 0:
		return nil, fmt.Errorf("load state: %w: it holds images or sound, which only llama-server can go on from",
			ErrState)
	}
	return tokens[3 : len(tokens)-1], nil
}

// tokenBuffer has room for as many tokens as the context, as llama-server packs them.
func (x *Context) tokenBuffer() (tokens []Token, n C.size_t) {
	if x.c == nil {
		return make([]Token, 1), 0
	}
	return make([]Token, x.Size()+slotWords), 0
}

// checkTokens refuses tokens that the vocabulary does not have: samplers count on it.
func (x *Context) checkTokens(tokens []Token) error {
	for _, token := range tokens {
		if token < 0 || int(token) >= x.model.vocab.n {
			return fmt.Errorf("load state: %w: it holds token %d, and the model has %d", ErrState, token,
				x.model.vocab.n)
		}
	}
	return nil
}

// stateFile does something with a file.
func (x *Context) stateFile(what, path string, do func(*C.char) bool) error {
	if x.c == nil {
		return fmt.Errorf("%s state: the context is %w", what, ErrClosed)
	}
	why, stop := collectErrors()
	defer stop()
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if !do(name) {
		return why(fmt.Errorf("%s state: %w", what, ErrState))
	}
	return nil
}
