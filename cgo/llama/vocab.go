//go:build llama

package llama

// #include "bridge.h"
// #cgo noescape llama_token_to_piece
// #cgo nocallback llama_token_to_piece
import "C"

import (
	"fmt"
	"math"
	"unsafe"
)

// Vocab is a model's vocabulary and tokenizer. Its methods may be called by several goroutines at a time, until the
// model is closed.
type Vocab struct {
	c *C.struct_llama_vocab
	n int
}

// Tokens is the number of tokens.
func (v *Vocab) Tokens() int { return v.n }

// Tokenize turns text into tokens. addSpecial adds the begin and end tokens that the model wants; parseSpecial turns
// the text of control tokens into them, which otherwise is taken as plain text. The only error is a text too long for
// llama.cpp.
func (v *Vocab) Tokenize(text string, addSpecial, parseSpecial bool) ([]Token, error) {
	if len(text) > math.MaxInt32-2 {
		return nil, fmt.Errorf("tokenize %d bytes: llama.cpp takes at most 2 GiB of text", len(text))
	}
	tokens := make([]Token, len(text)+2)
	n := v.tokenize(tokens, text, addSpecial, parseSpecial)
	if n < 0 && n != math.MinInt32 {
		tokens = make([]Token, -n)
		n = v.tokenize(tokens, text, addSpecial, parseSpecial)
	}
	if n < 0 {
		return nil, fmt.Errorf("tokenize %d bytes: llama.cpp cannot count that many tokens", len(text))
	}
	return tokens[:n], nil
}

func (v *Vocab) tokenize(dst []Token, text string, addSpecial, parseSpecial bool) int {
	data := unsafe.StringData(text)
	if data == nil {
		data = new(byte)
	}
	return int(C.llama_tokenize(v.c, (*C.char)(unsafe.Pointer(data)), C.int32_t(len(text)),
		(*C.llama_token)(unsafe.Pointer(unsafe.SliceData(dst))), C.int32_t(len(dst)), C.bool(addSpecial),
		C.bool(parseSpecial)))
}

// AppendPiece appends the bytes that a token stands for; one character may be spread over several tokens. Control
// tokens stand for nothing unless special is set.
func (v *Vocab) AppendPiece(dst []byte, token Token, special bool) []byte {
	if token < 0 || int(token) >= v.n {
		return dst
	}
	var buf [64]byte
	n := v.piece(buf[:], token, special)
	if n >= 0 {
		return append(dst, buf[:n]...)
	}
	long := make([]byte, -n)
	return append(dst, long[:v.piece(long, token, special)]...)
}

func (v *Vocab) piece(buf []byte, token Token, special bool) int {
	return int(C.llama_token_to_piece(v.c, C.llama_token(token), (*C.char)(unsafe.Pointer(&buf[0])),
		C.int32_t(len(buf)), 0, C.bool(special)))
}

// Begin is the token that begins a text, or NoToken.
func (v *Vocab) Begin() Token { return Token(C.llama_vocab_bos(v.c)) }

// End is the token that ends a text, or NoToken.
func (v *Vocab) End() Token { return Token(C.llama_vocab_eos(v.c)) }

// EndsGeneration reports whether a token ends generation: end of text, end of turn and the like.
func (v *Vocab) EndsGeneration(token Token) bool {
	return bool(C.llama_vocab_is_eog(v.c, C.llama_token(token)))
}

// AddsBegin reports whether Tokenize with addSpecial begins with Begin.
func (v *Vocab) AddsBegin() bool { return bool(C.llama_vocab_get_add_bos(v.c)) }

// Suppressed are the tokens that the model says are never to be generated.
func (v *Vocab) Suppressed() []Token {
	var n C.int32_t
	list := C.llama_vocab_get_suppress_tokens(v.c, &n)
	if list == nil || n <= 0 {
		return nil
	}
	return append([]Token(nil), unsafe.Slice((*Token)(unsafe.Pointer(list)), int(n))...)
}
