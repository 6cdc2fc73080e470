package gguf

import (
	"fmt"
	"slices"
	"strings"
)

// CheckAdapter refuses a LoRA adapter that does not fit the model base, or at which llama.cpp would end the process:
// its keys have other types, its tensors are of types that cannot be multiplied, or have more dimensions than what
// they are for. Whatever else is wrong, llama.cpp says. The error wraps ErrMalformed.
func (f *File) CheckAdapter(base *File) error {
	arch, _ := base.Metadata.Text("general.architecture")
	for _, want := range [][2]string{{"general.type", "adapter"}, {"adapter.type", "lora"},
		{"general.architecture", arch}} {
		if text, ok := f.Metadata.Text(want[0]); !ok || text != want[1] {
			return fmt.Errorf("%w: its %s is not %q", ErrMalformed, want[0], want[1])
		}
	}
	if alpha, ok := f.Metadata.Value("adapter.lora.alpha"); ok {
		if _, ok := alpha.Data.(float32); !ok {
			return fmt.Errorf("%w: its adapter.lora.alpha is no 32-bit float", ErrMalformed)
		}
	}
	for i := range f.Tensors {
		if err := f.Tensors[i].checkLora(base); err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	return nil
}

// checkLora refuses a tensor of an adapter. One for a tensor that base lacks, as the first file of a split model
// may, passes.
func (t *Tensor) checkLora(base *File) error {
	switch t.Type {
	case I8, I16, I32, I64, F64, Q8_1, Q8_K:
		return fmt.Errorf("tensor %s: no adapter can have this type", t)
	}
	name := strings.TrimSuffix(strings.TrimSuffix(t.Name, ".lora_a"), ".lora_b")
	to, ok := base.Tensor(name)
	if ok && !slices.Equal(t.Shape[min(2, len(t.Shape)):], to.Shape[min(2, len(to.Shape)):]) {
		return fmt.Errorf("tensor %s does not fit %s", t, to)
	}
	return nil
}
