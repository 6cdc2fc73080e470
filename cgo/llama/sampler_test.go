//go:build llama

package llama

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// openSampler makes a sampler that the test closes.
func openSampler(t testing.TB, v *Vocab, add ...func(*Sampler)) *Sampler {
	t.Helper()
	s := NewSampler(v)
	t.Cleanup(s.Close)
	for _, a := range add {
		a(s)
	}
	return s
}

// TestSamplerAllocations checks that choosing, accepting and spelling a token takes no memory of Go.
func TestSamplerAllocations(t *testing.T) {
	testenv.NotWithRace(t)
	m := loadDefault(t)
	x := newContext(t, m, nil)
	if err := decode(t, x, 0, 2048, 329); err != nil {
		t.Fatal(err)
	}
	s := openSampler(t, m.Vocab(), func(s *Sampler) {
		s.AddPenalties(64, 1.1, 0, 0)
		s.AddDry(Dry{Multiplier: 1, Base: 1.75, AllowedLength: 2, LastN: 64, Breakers: []string{"\n"}})
		s.AddTopK(40)
		s.AddXTC(0.5, 0.1, 0, 1)
		s.AddTemperature(0.8, 0.1, 1)
		s.AddDist(1)
	})
	if err := s.SetGrammar(`root ::= [^\x00]*`, "root"); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 0, 1<<16)
	if n := testing.AllocsPerRun(50, func() {
		token, err := s.Sample(x, -1)
		if err == nil {
			err = s.Accept(token)
		}
		if err != nil {
			t.Fatal(err)
		}
		text = m.Vocab().AppendPiece(text, token, false)
	}); n != 0 {
		t.Errorf("%v allocations per token", n)
	}
}

func TestGrammar(t *testing.T) {
	m := loadDefault(t)
	x := newContext(t, m, nil)
	if err := decode(t, x, 0, 2048, 329); err != nil {
		t.Fatal(err)
	}
	s := openSampler(t, m.Vocab(), (*Sampler).AddGreedy)
	free, err := s.Sample(x, -1)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"(((", "x ::= [a]", `root ::= root "a"`} {
		if err := s.SetGrammar(bad, "root"); !errors.Is(err, ErrGrammar) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := s.SetGrammar(`start ::= "zz"`, "start"); err != nil {
		t.Fatal(err)
	}
	if err := s.Accept(free); !errors.Is(err, ErrGrammar) {
		t.Errorf("a token that the grammar forbids: %v", err)
	}
	if err := s.AcceptPrompt(free); err != nil {
		t.Errorf("the same token in a prompt: %v", err)
	}
	var text []byte
	for range 8 {
		token, err := s.Sample(x, -1)
		if err != nil {
			t.Fatal(err)
		}
		if m.Vocab().EndsGeneration(token) {
			break
		}
		if err := s.Accept(token); err != nil {
			t.Fatal(err)
		}
		text = m.Vocab().AppendPiece(text, token, false)
	}
	if string(text) != "zz" {
		t.Errorf("the grammar gave %q", text)
	}
	s.Reset()
	if token, err := s.Sample(x, -1); err != nil || m.Vocab().EndsGeneration(token) {
		t.Errorf("after Reset: %d, %v", token, err)
	}
	s.Close()
	s.Close()
	if err := s.SetGrammar("root ::= [a]", "root"); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := s.Accept(1); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestSamplerOnBackend has the context apply the chain: the same seed gives the same tokens, another seed others.
func TestSamplerOnBackend(t *testing.T) {
	m := loadDefault(t)
	draw := func(seed uint32) (tokens []Token) {
		s := openSampler(t, m.Vocab(), func(s *Sampler) { s.AddTopK(20); s.AddTemperature(1.5, 0, 1); s.AddDist(seed) })
		x := newContext(t, m, func(p *ContextParams) { p.Sampler = s })
		for i, next := 0, Token(2048); i < 12; i++ {
			if err := decode(t, x, i, next); err != nil {
				t.Fatal(err)
			}
			var err error
			if next, err = s.Sample(x, -1); err != nil {
				t.Fatal(err)
			}
			if err = s.Accept(next); err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, next)
		}
		return tokens
	}
	if first, again, other := draw(7), draw(7), draw(8); !slices.Equal(first, again) || slices.Equal(first, other) {
		t.Errorf("seed 7 gave %v, then %v; seed 8 gave %v", first, again, other)
	}
}

// A chain whose choices are replayed goes on as the one that made them, also where the grammar lets it choose
// twice, or not at all.
func TestReplayChoices(t *testing.T) {
	m := loadDefault(t)
	x := newContext(t, m, nil)
	if err := decode(t, x, 0, 2048, 329); err != nil {
		t.Fatal(err)
	}
	open := func() *Sampler {
		s := openSampler(t, m.Vocab(), func(s *Sampler) {
			s.AddMinP(0.3, 0)
			s.CountChoices()
			s.AddXTC(0.5, 0.1, 0, 3)
			s.AddTemperature(1.5, 0, 1)
			s.CountChoices()
			s.AddDist(4)
		})
		if err := s.SetGrammar(`root ::= [a-z \n\t]*`, "root"); err != nil {
			t.Fatal(err)
		}
		return s
	}
	choose := func(s *Sampler, n int) (tokens []Token) {
		for range n {
			token, err := s.Sample(x, -1)
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, token)
		}
		return tokens
	}
	for n := range 40 {
		s, again := open(), open()
		choose(s, n)
		if err := again.ReplayChoices(s.Choices()); err != nil {
			t.Fatal(err)
		}
		if a, b := choose(s, 20), choose(again, 20); !slices.Equal(a, b) {
			t.Fatalf("behind %d tokens %v, replayed %v", n, a, b)
		}
		if !slices.Equal(s.Choices(), again.Choices()) {
			t.Fatalf("%v and %v choices", s.Choices(), again.Choices())
		}
	}
	if err := openSampler(t, m.Vocab()).ReplayChoices([]Choices{{1, 1}}); !errors.Is(err, ErrState) {
		t.Errorf("choices of another chain: %v", err)
	}
}

// TestGrammarLimits gives llama.cpp the deepest grammars that checkGrammar lets through: a reader whose stack they
// exceed ends this process.
func TestGrammarLimits(t *testing.T) {
	m := loadDefault(t)
	var rules strings.Builder
	rules.WriteString("root ::= r1\n")
	for i := 1; i < maxOperators-1; i++ {
		fmt.Fprintf(&rules, "r%d ::= r%d\n", i, i+1)
	}
	fmt.Fprintf(&rules, "r%d ::= \"a\"\n", maxOperators-1)
	for name, text := range map[string]string{
		"groups": "root ::= " + strings.Repeat("(", maxGroups) + `"a"` + strings.Repeat(")", maxGroups),
		"rules":  rules.String(),
	} {
		s := openSampler(t, m.Vocab(), (*Sampler).AddGreedy)
		if err := s.SetGrammar(text, "root"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
