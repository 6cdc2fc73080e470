package gguf

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Identity says which model a file holds, for people and for the name of a run's folder. What the file does not
// state is empty or zero.
type Identity struct {
	Name         string // general.name, or the file's name
	Architecture string // general.architecture, such as "qwen3moe"
	FileType     string // such as "Q4_K_M", or the commonest tensor type in capitals
	SizeLabel    string // general.size_label, such as "8x7B"

	Layers, Width, Vocab, Context int64
	Heads, KVHeads                int64 // of the layer that has most
	FF, Experts, ExpertsUsed      int64

	Parameters  int64 // values in this file's tensors, counted
	TensorBytes int64 // their size in the file
	Splits      int64 // files that the model is split over; 0 or 1: this one only
}

// Identify collects the identity of a file; path serves where it has no name and may be empty.
func Identify(f *File, path string) Identity {
	m := &f.Metadata
	id := Identity{Parameters: f.Parameters(), TensorBytes: f.TensorBytes(), FileType: typeName(f)}
	id.Name, _ = m.Text("general.name")
	if id.Name == "" && path != "" {
		id.Name = strings.TrimSuffix(filepath.Base(path), ".gguf")
	}
	id.Architecture, _ = m.Text("general.architecture")
	id.SizeLabel, _ = m.Text("general.size_label")
	id.Splits, _ = m.Int("split.count")
	most := func(key string) int64 {
		n, _ := m.Ints(id.Architecture + "." + key)
		return slices.Max(append(n, 0))
	}
	id.Layers, id.Width = most("block_count"), most("embedding_length")
	id.Context, id.FF = most("context_length"), most("feed_forward_length")
	id.Heads, id.KVHeads = most("attention.head_count"), most("attention.head_count_kv")
	if id.KVHeads == 0 && !m.Has(id.Architecture+".attention.head_count_kv") {
		id.KVHeads = id.Heads
	}
	id.Experts, id.ExpertsUsed = most("expert_count"), most("expert_used_count")
	id.Vocab = most("vocab_size")
	if tokens, ok := m.Texts("tokenizer.ggml.tokens"); ok && id.Vocab == 0 {
		id.Vocab = int64(len(tokens))
	}
	return id
}

// ID is Name and FileType as one path element of letters, digits, dots, dashes and underscores: the model_id of a run.
func (id Identity) ID() string {
	safe := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}
	name := strings.Trim(strings.Map(safe, id.Name), "-.")
	if name == "" {
		name = "model"
	}
	if t := strings.Map(safe, id.FileType); t != "" &&
		!strings.HasSuffix(strings.ToLower(name), "-"+strings.ToLower(t)) {
		name += "-" + t
	}
	return name[:min(len(name), 120)]
}

// String describes the model in one line.
func (id Identity) String() string {
	s := fmt.Sprintf("%s: %s, %s, %d parameters", id.Name, id.Architecture, id.FileType, id.Parameters)
	if id.Layers > 0 {
		s += fmt.Sprintf(", %d layers × %d", id.Layers, id.Width)
	}
	if id.Experts > 0 {
		s += fmt.Sprintf(", %d of %d experts", id.ExpertsUsed, id.Experts)
	}
	if id.Vocab > 0 {
		s += fmt.Sprintf(", vocabulary %d", id.Vocab)
	}
	return s
}

// typeName is the name of general.file_type, or else of the tensor type with most bytes.
func typeName(f *File) string {
	if n, ok := f.Metadata.Int("general.file_type"); ok && n >= 0 && n < 1024 {
		return FileType(n).String()
	}
	var bytes [len(traits)]int64
	best, found := F32, false
	for i := range f.Tensors {
		t := &f.Tensors[i]
		bytes[t.Type] += t.Bytes
		if bytes[t.Type] > bytes[best] {
			best, found = t.Type, true
		}
	}
	if !found && bytes[best] == 0 {
		return ""
	}
	return strings.ToUpper(best.String())
}
