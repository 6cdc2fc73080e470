//go:build llama

package llama

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/internal/testenv"
)

// TestNothingLeaks opens and closes everything that holds C memory, many times. What stays in memory must not grow
// by what a part of the rounds would have left: the embedded model alone is 6 MB, a context 4 MB.
func TestNothingLeaks(t *testing.T) {
	testenv.NotWithRace(t)
	// With a fixed threshold the C library gives back large blocks when they are freed; by itself it raises the
	// threshold to what was freed last, and keeps them.
	const threshold = "MALLOC_MMAP_THRESHOLD_"
	if os.Getenv(threshold) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestNothingLeaks$")
		cmd.Env = append(os.Environ(), threshold+"=131072", "MALLOC_TRIM_THRESHOLD_=131072", "MALLOC_ARENA_MAX=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	// one sampler of each round leaks 75 MB, and the allocator keeps up to 27
	const warm, rounds, mostGrowth = 10, 30, 40 << 20
	for range warm {
		openAndClose(t)
	}
	before := residentBytes(t)
	for range rounds {
		openAndClose(t)
	}
	if growth := residentBytes(t) - before; growth > mostGrowth {
		t.Errorf("after %d rounds the process holds %d bytes more", rounds, growth)
	}
}

func openAndClose(t *testing.T) {
	t.Helper()
	m, err := LoadModelBytes(context.Background(), "gopher", llamatap.DefaultModel, DefaultModelParams())
	if err != nil {
		t.Fatal(err)
	}
	p := DefaultContextParams()
	p.Threads, p.BatchThreads, p.Size, p.Sequences, p.Unified = 1, 2, 512, 2, true
	x, err := m.NewContext(p)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 { // a sampler holds 12 bytes per token of the vocabulary, and its grammar
		s := NewSampler(m.Vocab())
		s.AddPenalties(64, 1.1, 0, 0)
		s.AddDry(Dry{Multiplier: 1, Base: 2, LastN: 64, Breakers: []string{"\n"}})
		s.AddTopK(40)
		s.AddDist(1)
		if err := s.SetGrammar(`root ::= "a"+`, "root"); err != nil {
			t.Fatal(err)
		}
		s.Close()
		s.Close()
	}
	b, err := NewBatch(512, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add(1, 0, true, 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := x.Decode(b); err != nil {
		t.Fatal(err)
	}
	if _, err := ApplyChatTemplate("chatml", []ChatMessage{{"user", "a"}}, true); err != nil {
		t.Fatal(err)
	}
	s := NewSampler(m.Vocab())
	s.AddDist(1)
	g := Generation{Pending: NoToken, Pos: 1, End: 512, Patience: time.Hour, Pause: make([]bool, m.Vocab().Tokens())}
	if n, err := x.Generate(s, b, &g, make([]Token, 3), make([]int64, 3)); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	s.Close()
	b.Close()
	x.Close()
	x.Close()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// residentBytes is how much memory of this process is in RAM.
func residentBytes(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestNothingLeaksUnderASan runs it with AddressSanitizer, which sees use after free as well.
func TestNothingLeaksUnderASan(t *testing.T) {
	testenv.Slow(t)
	testenv.NeedCC(t)
	cmd := exec.Command("go", "test", "-asan", "-count=1", "-run", "^TestNothingLeaks$", ".")
	cmd.Env = append(os.Environ(), "ASAN_OPTIONS=quarantine_size_mb=1") // what is freed stays no longer than that
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
