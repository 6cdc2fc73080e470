package gguf

import (
	"strconv"
	"strings"
)

// Vocab turns token ids into the bytes that they stand for, from a model's metadata alone. It shows control tokens
// by name.
type Vocab struct {
	tokens []string
	types  []int64
	model  string
}

// tokenByte is tokenizer.ggml.token_type's number of a token that stands for one byte, such as <0x0A>.
const tokenByte = 6

// ReadVocab takes the vocabulary out of a model's metadata; ok is false where it holds none.
func ReadVocab(m *Metadata) (v Vocab, ok bool) {
	v.model, _ = m.Text("tokenizer.ggml.model")
	v.tokens, ok = m.Texts("tokenizer.ggml.tokens")
	v.types, _ = m.Ints("tokenizer.ggml.token_type")
	return v, ok
}

// Len is the number of tokens.
func (v *Vocab) Len() int { return len(v.tokens) }

// Piece returns the bytes of a token; they need not be valid UTF-8 by themselves. An id that the vocabulary does
// not hold has none.
func (v *Vocab) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(v.tokens) {
		return nil
	}
	token := v.tokens[id]
	normal := int(id) >= len(v.types) || v.types[id] == 1
	switch {
	case v.model == "gpt2" && normal:
		return byteLevel(token)
	case int(id) < len(v.types) && v.types[id] == tokenByte:
		if b, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(token, "<0x"), ">"), 16, 8); err == nil {
			return []byte{byte(b)}
		}
	case v.model == "llama" && normal:
		return []byte(strings.ReplaceAll(token, "\u2581", " "))
	}
	return []byte(token)
}

// byteLevel undoes the byte-level alphabet of GPT-2's tokenizer: printable bytes stand for themselves, the others
// for the code points from U+0100 on, in order.
func byteLevel(token string) []byte {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		if b, ok := alphabet[r]; ok {
			out = append(out, b)
		} else {
			out = append(out, string(r)...)
		}
	}
	return out
}

// alphabet maps GPT-2's code points to bytes.
var alphabet = func() map[rune]byte {
	m := make(map[rune]byte, 256)
	next := rune(0x100)
	for b := 0; b < 256; b++ {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			m[rune(b)] = byte(b)
		} else {
			m[next] = byte(b)
			next++
		}
	}
	return m
}()
