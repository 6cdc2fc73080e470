//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// ChatTemplate is the Jinja template that the model's file holds.
func (m *Model) ChatTemplate() (template string, ok bool) {
	text := C.llama_model_chat_template(m.c, nil)
	if text == nil {
		return "", false
	}
	return C.GoString(text), true
}

// ChatTemplates are the names of the templates that llama.cpp's library knows.
func ChatTemplates() []string {
	n := C.llama_chat_builtin_templates(nil, 0)
	list := make([]*C.char, n)
	C.llama_chat_builtin_templates(unsafe.SliceData(list), C.size_t(n))
	names := make([]string, n)
	for i, name := range list {
		names[i] = C.GoString(name)
	}
	return names
}

// ApplyChatTemplate writes a conversation as text. template is a name of ChatTemplates, or a Jinja template, which
// llama.cpp does not run but takes for one of those by its marks. assistant ends the text with what begins the model's
// answer. The error is ErrChatTemplate. Texts end at a zero byte.
func ApplyChatTemplate(template string, messages []ChatMessage, assistant bool) (string, error) {
	name := C.CString(template)
	defer C.free(unsafe.Pointer(name))
	list := make([]C.struct_llama_chat_message, len(messages)) // Go memory with C pointers, which C may read
	size := 256
	for i, m := range messages {
		list[i].role = C.CString(m.Role)
		defer C.free(unsafe.Pointer(list[i].role))
		list[i].content = C.CString(m.Content)
		defer C.free(unsafe.Pointer(list[i].content))
		size += 2 * (len(m.Role) + len(m.Content))
	}
	for {
		text := make([]byte, size)
		n := int(C.llama_chat_apply_template(name, unsafe.SliceData(list), C.size_t(len(list)), C.bool(assistant),
			(*C.char)(unsafe.Pointer(&text[0])), C.int32_t(size)))
		switch {
		case n < 0:
			return "", fmt.Errorf("%w: llama.cpp's library does not know it", ErrChatTemplate)
		case n <= size:
			return string(text[:n]), nil
		}
		size = n
	}
}
