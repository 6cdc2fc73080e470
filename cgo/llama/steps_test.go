//go:build llama

package llama

import (
	"errors"
	"slices"
	"testing"
)

// TestDecodeEach decodes two sequences in steps and one by one: positions, stamps and logits are as they should be.
func TestDecodeEach(t *testing.T) {
	two := func(p *ContextParams) { p.Size, p.Sequences = 64, 2 }
	m := loadDefault(t)
	x, alone := newContext(t, m, two), newContext(t, m, two)
	b, err := NewBatch(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := errors.Join(b.Add(0, 0, true, 0), b.Add(0, 0, true, 1)); err != nil {
		t.Fatal(err)
	}
	tokens, at := []Token{5, 6, 7, 8, 9, 10}, make([]int64, 4)
	if done, err := x.DecodeEach(b, tokens, at); done != 3 || err != nil || at[0] == 0 || !slices.IsSorted(at) {
		t.Fatalf("%d steps at %d, %v", done, at, err)
	}
	for seq := range Seq(2) {
		if low, high := x.Memory().Range(seq); low != 0 || high != 2 {
			t.Errorf("sequence %d holds positions %d to %d", seq, low, high)
		}
	}
	for step := range 3 {
		b.Reset()
		for seq := range 2 {
			if err := b.Add(tokens[2*step+seq], Pos(step), true, Seq(seq)); err != nil {
				t.Fatal(err)
			}
		}
		if err := alone.Decode(b); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		got, err := x.Logits(i)
		want, wrong := alone.Logits(i)
		if err != nil || wrong != nil || !slices.Equal(got, want) {
			t.Errorf("logits %d differ: %v, %v", i, err, wrong)
		}
	}
}

// TestDecodeEachErrors ends in the middle: what was done before stays.
func TestDecodeEachErrors(t *testing.T) {
	x := newContext(t, loadDefault(t), func(p *ContextParams) { p.Size = 256 })
	b, err := NewBatch(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add(0, 0, true, 0); err != nil {
		t.Fatal(err)
	}
	if done, err := x.DecodeEach(b, []Token{1, 99999, 2}, make([]int64, 4)); done != 1 || !errors.Is(err, ErrBatch) {
		t.Errorf("a token that does not exist: %d steps, %v", done, err)
	}
	if _, high := x.Memory().Range(0); high != 0 {
		t.Errorf("the sequence ends at %d", high)
	}
	if _, err := x.DecodeEach(b, []Token{1}, make([]int64, 4)); !errors.Is(err, ErrBatch) {
		t.Errorf("too few tokens: %v", err)
	}
	x.Interrupt()
	b.Reset()
	if err := b.Add(0, 1, true, 0); err != nil {
		t.Fatal(err)
	}
	if done, err := x.DecodeEach(b, []Token{1, 2}, make([]int64, 3)); done != 0 || !errors.Is(err, ErrInterrupted) {
		t.Errorf("interrupted: %d steps, %v", done, err)
	}
	b.Close()
	if _, err := x.DecodeEach(b, []Token{1}, make([]int64, 2)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
