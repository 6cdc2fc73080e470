//go:build llama

package llama

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
)

// writeLora writes an adapter of one tensor of the embedded model; its width is 256.
func writeLora(t *testing.T) string {
	t.Helper()
	var meta gguf.Metadata
	for key, value := range map[string]any{"general.type": "adapter", "general.architecture": "llama",
		"adapter.type": "lora", "adapter.lora.alpha": float32(4)} {
		meta.Set(key, value)
	}
	var out bytes.Buffer
	w, err := gguf.NewWriter(&out, &meta, []gguf.Tensor{
		{Name: "blk.0.attn_q.weight.lora_a", Type: gguf.F32, Shape: []int64{256, 2}},
		{Name: "blk.0.attn_q.weight.lora_b", Type: gguf.F32, Shape: []int64{2, 256}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(bytes.Repeat([]byte{0, 0, 0x80, 0x3e}, 1024)); err != nil { // 0.25
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "lora.gguf")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func firstLogit(t *testing.T, x *Context) float32 {
	t.Helper()
	x.Memory().Clear(false)
	if err := decode(t, x, 0, 2048, 329, 12); err != nil {
		t.Fatal(err)
	}
	logits, err := x.Logits(-1)
	if err != nil {
		t.Fatal(err)
	}
	return logits[0]
}

func TestAdapters(t *testing.T) {
	m := loadDefault(t)
	a, err := m.LoadAdapter(writeLora(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	x := newContext(t, m, nil)
	plain := firstLogit(t, x)
	if err := x.SetAdapters([]ScaledAdapter{{a, 1}}); err != nil {
		t.Fatal(err)
	}
	if firstLogit(t, x) == plain {
		t.Error("the adapter changes nothing")
	}
	if err := a.Close(); err == nil {
		t.Error("an adapter was closed while a context uses it")
	}
	if err := x.SetAdapters(nil); err != nil {
		t.Fatal(err)
	}
	if got := firstLogit(t, x); got != plain {
		t.Errorf("without the adapter again %v, before %v", got, plain)
	}
	if err := m.Close(); err == nil {
		t.Error("a model was closed before its adapter")
	}
	other := loadDefault(t)
	if err := newContext(t, other, nil).SetAdapters([]ScaledAdapter{{a, 1}}); !errors.Is(err, ErrAdapter) {
		t.Errorf("an adapter of another model: %v", err)
	}
	if _, err := m.LoadAdapter("/nope.gguf"); !errors.Is(err, ErrAdapter) || strings.Contains(err.Error(), "\n") {
		t.Errorf("no such adapter: %v", err)
	}
}

func TestControlVector(t *testing.T) {
	x := newContext(t, loadDefault(t), nil)
	plain := firstLogit(t, x)
	data := make([]float32, 2*256) // layers 1 and 2
	for i := range data[256:] {
		data[256+i] = float32(i%7) - 3
	}
	for _, test := range []struct {
		first, last int
		changes     bool
	}{{1, 2, true}, {2, 2, true}, {1, 1, false}, {3, 5, false}} {
		if err := x.SetControlVector(data, test.first, test.last); err != nil {
			t.Fatal(err)
		}
		if changed := firstLogit(t, x) != plain; changed != test.changes {
			t.Errorf("layers %d to %d: changed %v", test.first, test.last, changed)
		}
	}
	if err := x.SetControlVector(nil, 0, 0); err != nil {
		t.Fatal(err)
	}
	if got := firstLogit(t, x); got != plain {
		t.Errorf("without the vector again %v, before %v", got, plain)
	}
	if err := x.SetControlVector(data[:100], 1, 2); !errors.Is(err, ErrAdapter) {
		t.Errorf("a vector that is too short: %v", err)
	}
}
