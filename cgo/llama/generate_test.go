//go:build llama

package llama

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// generator is a context whose next token is asked for, a seeded sampler with a grammar that allows all, and a batch.
func generator(t *testing.T, m *Model, size int) (*Context, *Sampler, *Batch) {
	t.Helper()
	x := newContext(t, m, func(p *ContextParams) { p.Size = size })
	s := NewSampler(m.Vocab())
	t.Cleanup(s.Close)
	s.AddPenalties(64, 1.2, 0, 0)
	s.AddTopK(40)
	s.AddDist(7)
	if err := s.SetGrammar(`root ::= [^\x00]*`, "root"); err != nil {
		t.Fatal(err)
	}
	b, err := NewBatch(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := errors.Join(b.Add(m.Vocab().Begin(), 0, true, 0), x.Decode(b)); err != nil {
		t.Fatal(err)
	}
	return x, s, b
}

// oneByOne generates n tokens, each call of C apart.
func oneByOne(t *testing.T, m *Model, n int) (tokens []Token) {
	t.Helper()
	x, s, b := generator(t, m, 256)
	for range n {
		token, err := s.Sample(x, -1)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Accept(token); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
		b.Reset()
		if err := errors.Join(b.Add(token, Pos(len(tokens)), true, 0), x.Decode(b)); err != nil {
			t.Fatal(err)
		}
	}
	return tokens
}

// TestGenerate generates in calls of different lengths, with pauses, what single steps generate.
func TestGenerate(t *testing.T) {
	m := loadDefault(t)
	want := oneByOne(t, m, 60)
	for _, test := range []struct {
		name     string
		room     int
		patience time.Duration
		pause    bool
		calls    int // 0: any number
	}{{"at once", 60, math.MaxInt64, false, 1}, {"seven at a time", 7, time.Hour, false, 9},
		{"without patience", 60, 0, false, 60}, {"with pauses", 60, time.Hour, true, 0}} {
		t.Run(test.name, func(t *testing.T) {
			x, s, b := generator(t, m, 256)
			g := Generation{Pending: NoToken, Pos: 1, End: 256, Patience: test.patience}
			if test.pause {
				g.Pause = make([]bool, m.Vocab().Tokens())
				g.Pause[want[20]], g.Pause[want[41]] = true, true
			}
			got, at, calls := []Token{}, []int64{1}, 0
			for len(got) < len(want) {
				tokens := make([]Token, min(test.room, len(want)-len(got)))
				times := make([]int64, len(tokens))
				pending := g.Pending
				n, err := x.Generate(s, b, &g, tokens, times)
				if err != nil || n < 1 || g.Pending != tokens[n-1] || g.Pos != Pos(len(got)+n) {
					t.Fatalf("%d tokens, %v, %+v", n, err, g)
				}
				if decodes := n - 1; pending == NoToken && g.Decoded != decodes ||
					pending != NoToken && g.Decoded != decodes+1 {
					t.Errorf("%d tokens chosen, %d decoded", n, g.Decoded)
				}
				if n < len(tokens) && test.pause && !g.Pause[g.Pending] {
					t.Errorf("came back with %d", g.Pending)
				}
				if test.pause && slices.ContainsFunc(tokens[:n-1], func(token Token) bool { return g.Pause[token] }) {
					t.Errorf("went past a pause: %d", tokens[:n])
				}
				got, at = append(got, tokens[:n]...), append(at, times[:n]...)
				calls++
			}
			if !slices.Equal(got, want) {
				t.Errorf("got  %d\nwant %d", got, want)
			}
			if !slices.IsSorted(at) || test.calls > 0 && calls != test.calls {
				t.Errorf("%d calls, times %d", calls, at)
			}
		})
	}
}

// TestGenerateEnds fills the context, and ends the text by the grammar.
func TestGenerateEnds(t *testing.T) {
	m := loadDefault(t)
	x, s, b := generator(t, m, 256)
	g := Generation{Pending: NoToken, Pos: 1, End: Pos(x.Size()), Patience: time.Hour}
	s.AddGreedy()
	ended := Generation{}
	for ended.End == 0 {
		n, err := x.Generate(s, b, &g, make([]Token, 1000), make([]int64, 1000))
		if err != nil || n == 1000 {
			t.Fatal(n, err)
		}
		if !m.Vocab().EndsGeneration(g.Pending) {
			ended = g
		}
	}
	if _, high := x.Memory().Range(0); ended.Pos+1 != ended.End || high != ended.Pos-1 {
		t.Errorf("ended at %d of %d, the memory ends with %d", ended.Pos, ended.End, high)
	}
	x, s, b = generator(t, m, 256)
	if err := s.SetGrammar(`root ::= "func"`, "root"); err != nil {
		t.Fatal(err)
	}
	g = Generation{Pending: NoToken, Pos: 1, End: 256, Patience: time.Hour}
	if n, err := x.Generate(s, b, &g, make([]Token, 100), make([]int64, 100)); err != nil || n > 6 ||
		!m.Vocab().EndsGeneration(g.Pending) {
		t.Errorf("%d tokens, %v, %+v", n, err, g)
	}
}

// TestGenerateInterrupted stops a call that would go on for long, from another goroutine.
func TestGenerateInterrupted(t *testing.T) {
	m := loadDefault(t)
	x, s, b := generator(t, m, 4096)
	tokens, at := make([]Token, 4000), make([]int64, 4000)
	g := Generation{Pending: NoToken, Pos: 1, End: 4096, Patience: time.Hour}
	begun := make(chan struct{})
	go func() {
		for atomic.LoadInt64(&at[3]) == 0 { // written in C
		}
		x.Interrupt()
		close(begun)
	}()
	total := 0
	for err := error(nil); err == nil && total < len(tokens); {
		var n int
		n, err = x.Generate(s, b, &g, tokens[total:], at[total:])
		total += n
		if err != nil && !errors.Is(err, ErrInterrupted) {
			t.Fatal(err)
		}
	}
	<-begun
	if total < 4 || total == len(tokens) {
		t.Errorf("stopped after %d tokens", total)
	}
	if n, err := x.Generate(s, b, &g, tokens, at); n != 0 || !errors.Is(err, ErrInterrupted) {
		t.Errorf("while interrupted: %d tokens, %v", n, err)
	}
	x.Resume()
	if n, err := x.Generate(s, b, &g, tokens[:2], at[:2]); n < 1 || err != nil {
		t.Errorf("afterwards: %d tokens, %v", n, err)
	}
}

func TestGenerateErrors(t *testing.T) {
	m := loadDefault(t)
	x, s, b := generator(t, m, 256)
	tokens, at := make([]Token, 5), make([]int64, 5)
	g := Generation{Pending: 99999, Pos: 1, End: 256}
	if n, err := x.Generate(s, b, &g, tokens, at); n != 0 || !errors.Is(err, ErrBatch) || g.Pos != 1 {
		t.Errorf("a token that does not exist: %d, %v, %+v", n, err, g)
	}
	g = Generation{Pending: NoToken, Pos: 1, End: 256, Pause: make([]bool, 3)}
	if _, err := x.Generate(s, b, &g, tokens, at); err == nil {
		t.Error("pauses of another vocabulary were taken")
	}
	g.Pause = nil
	if _, err := x.Generate(s, b, &g, tokens, at[:3]); err == nil {
		t.Error("too few times were taken")
	}
	empty := NewSampler(m.Vocab())
	defer empty.Close()
	if n, err := x.Generate(empty, b, &g, tokens, at); n != 0 || err == nil || g.Pending != NoToken {
		t.Errorf("a chain that chooses nothing: %d, %v", n, err)
	}
	b.Close()
	if _, err := x.Generate(s, b, &g, tokens, at); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
