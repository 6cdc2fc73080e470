//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import "unsafe"

// Classes is how many scores the model gives a text, with PoolRank: 1 for most rerankers, or one per label.
func (m *Model) Classes() int { return int(C.llama_model_n_cls_out(m.c)) }

// ClassLabel is the name of score i, counted from 0; "" where the model has none for it.
func (m *Model) ClassLabel(i int) string {
	label := C.llama_model_cls_label(m.c, C.uint32_t(i))
	if label == nil {
		return ""
	}
	return C.GoString(label)
}

// RerankTemplate is the text by which the model scores a pair, with {query} and {document} for its parts.
func (m *Model) RerankTemplate() (template string, ok bool) {
	name := C.CString("rerank")
	defer C.free(unsafe.Pointer(name))
	text := C.llama_model_chat_template(m.c, name)
	if text == nil {
		return "", false
	}
	return C.GoString(text), true
}

// Separators are what the parts of a pair are parted by where there is no RerankTemplate: the tokens that the
// vocabulary ends and separates texts with, as far as it does, as text.
func (v *Vocab) Separators() string {
	text := ""
	if C.llama_vocab_get_add_eos(v.c) {
		text = C.GoString(C.llama_vocab_get_text(v.c, C.llama_vocab_eos(v.c)))
	}
	if C.llama_vocab_get_add_sep(v.c) {
		text += C.GoString(C.llama_vocab_get_text(v.c, C.llama_vocab_sep(v.c)))
	}
	return text
}

// Exists reports whether the context has a memory at all: one of a model that only encodes has none, and generates no
// text.
func (m Memory) Exists() bool { return m.c != nil }
