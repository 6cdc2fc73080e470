//go:build llama

package llama

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// nextLogits decodes one token behind five others and returns what follows.
func nextLogits(t *testing.T, x *Context) []float32 {
	t.Helper()
	if err := decode(t, x, 5, 7); err != nil {
		t.Fatal(err)
	}
	logits, err := x.Logits(-1)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(logits)
}

func TestState(t *testing.T) {
	m := loadDefault(t)
	dir := t.TempDir()
	whole, one := filepath.Join(dir, "whole"), filepath.Join(dir, "one")
	tokens := []Token{2048, 329, 12, 13, 14}
	x := newContext(t, m, nil)
	if err := decode(t, x, 0, tokens...); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(x.SaveState(whole, tokens), x.SaveSequence(one, 0, tokens[:2])); err != nil {
		t.Fatal(err)
	}
	want := nextLogits(t, x)

	y := newContext(t, m, nil)
	if got, err := y.LoadState(whole); err != nil || !slices.Equal(got, tokens) {
		t.Fatalf("got %v, %v", got, err)
	}
	if !slices.Equal(nextLogits(t, y), want) {
		t.Error("the whole state computes something else")
	}
	z := newContext(t, m, nil)
	if got, err := z.LoadSequence(one, 0); err != nil || !slices.Equal(got, tokens[:2]) {
		t.Fatalf("got %v, %v", got, err)
	}
	if !slices.Equal(nextLogits(t, z), want) {
		t.Error("the sequence computes something else")
	}
}

func TestStateErrors(t *testing.T) {
	m := loadDefault(t)
	path := filepath.Join(t.TempDir(), "state")
	x := newContext(t, m, nil)
	if err := decode(t, x, 0, 1, 2, 3); err != nil {
		t.Fatal(err)
	}
	if err := x.SaveState(path, []Token{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file := func(data []byte) string {
		path := filepath.Join(t.TempDir(), "broken")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tests := map[string]string{"missing": "/nope", "empty": file(nil),
		"text": file([]byte("no state at all, but a text")), "cut": file(data[:len(data)/2]),
		"tokens that do not exist": file(append(append(slices.Clone(data[:12]), 0xff, 0xff, 0, 0), data[16:]...)),
	}
	for name, path := range tests {
		if got, err := x.LoadState(path); !errors.Is(err, ErrState) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
		if _, err := x.LoadSequence(path, 0); !errors.Is(err, ErrState) {
			t.Errorf("%s, as a sequence: %v", name, err)
		}
	}
	other := newContext(t, m, func(p *ContextParams) { p.TypeK = CacheQ8_0 })
	if _, err := other.LoadState(path); !errors.Is(err, ErrState) {
		t.Errorf("another type of cache: %v", err)
	}
	if err := x.SaveState(filepath.Join(path, "below a file"), nil); !errors.Is(err, ErrState) {
		t.Errorf("a path that cannot be: %v", err)
	}
	x.Close()
	if err := x.SaveState(path, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := x.LoadState(path); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestSlotTokens unpacks the tokens of llama-server's slot files, and refuses what it cannot go on from.
func TestSlotTokens(t *testing.T) {
	for name, c := range map[string]struct {
		packed, want []Token
		err          string
	}{
		"a plain list":    {[]Token{5, -1, 1, 0}, []Token{5, -1, 1, 0}, ""},
		"none":            {nil, nil, ""},
		"packed":          {[]Token{-1, 1, 2, 7, 8, 0}, []Token{7, 8}, ""},
		"packed, empty":   {[]Token{-1, 1, 0, 0}, []Token{}, ""},
		"an image":        {[]Token{-1, 1, 2, -1, -1, 1, 9, 9}, nil, "images"},
		"another version": {[]Token{-1, 2, 1, 7, 0}, nil, "another version"},
		"cut":             {[]Token{-1, 1, 5, 7, 0}, nil, "another version"},
		"short":           {[]Token{-1, 1}, nil, "another version"},
		"a bad count":     {[]Token{-1, 1, -3, 7, 0}, nil, "another version"},
	} {
		got, err := slotTokens(c.packed)
		if c.err == "" && (err != nil || !slices.Equal(got, c.want)) || c.err != "" && (!errors.Is(err, ErrState) ||
			!strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
