//go:build llama

package runner_test

import (
	"context"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/cgo/tap"
	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/testenv"
	"golang.org/x/sys/unix"
)

// steered is a model that computes four sequences at a time in a process that is armed for steering.
type steered struct {
	testing.TB
	region *collect.Region
	x      *llama.Context
	batch  *llama.Batch
	layers int
	width  int
	pos    llama.Pos
}

const steeredSequences = 4

func newSteered(t testing.TB, path string) *steered {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	region, err := collect.NewRegion(collect.Options{Start: collect.Wish{Off: true}, Steer: true})
	must(err)
	t.Cleanup(func() { region.Close() })
	must(tap.Attach(int(region.File().Fd())))
	t.Cleanup(tap.Leave)
	ended, drained := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(ended); <-drained })
	go func() { // a model whose records nobody reads waits
		reader := collect.NewReader(region, ggmlhooks.NewAssembler(0))
		for open := true; open; {
			if _, err := reader.Drain(); err != nil {
				t.Error(err)
			}
			select {
			case _, open = <-ended:
			case <-time.After(5 * time.Millisecond):
			}
		}
		close(drained)
	}()
	m, err := llama.LoadModel(context.Background(), path, llama.DefaultModelParams())
	must(err)
	t.Cleanup(func() { m.Close() })
	params := llama.DefaultContextParams()
	params.Threads, params.BatchThreads, params.Size, params.Sequences = 1, 1, 2048, steeredSequences
	x, err := m.NewContext(params)
	must(err)
	t.Cleanup(func() { x.Close() })
	batch, err := llama.NewBatch(x.Batch(), 1)
	must(err)
	t.Cleanup(func() { batch.Close() })
	return &steered{t, region, x, batch, m.Layers(), m.Width(), 0}
}

// vector is a direction for each layer from 1 on.
func (s *steered) vector(scale float64) collect.Steered {
	v := collect.Steered{}
	for layer := 1; layer < s.layers; layer++ {
		for i := range s.width {
			v[layer] = append(v[layer], float32(scale*math.Sin(float64(i*layer+layer))))
		}
	}
	return v
}

// steer exchanges the vectors and forgets all cells.
func (s *steered) steer(vectors map[int]collect.Steered) {
	s.Helper()
	if _, err := s.region.Steer(vectors); err != nil {
		s.Fatal(err)
	}
	s.x.Memory().Clear(false)
	s.pos = 0
}

// decode computes n tokens of each sequence, and the scores after the last one of each.
func (s *steered) decode(n int) (logits [][]float32) {
	s.Helper()
	s.batch.Reset()
	for sequence := range llama.Seq(steeredSequences) {
		for i := range n {
			at := s.pos + llama.Pos(i)
			if err := s.batch.Add(llama.Token(100+7*int(at)+int(sequence)), at, i == n-1, sequence); err != nil {
				s.Fatal(err)
			}
		}
	}
	s.pos += llama.Pos(n)
	if err := s.x.Decode(s.batch); err != nil {
		s.Fatal(err)
	}
	for sequence := range steeredSequences {
		scores, err := s.x.Logits((sequence+1)*n - 1)
		if err != nil {
			s.Fatal(err)
		}
		logits = append(logits, slices.Clone(scores))
	}
	return logits
}

// TestSteerRows: in one micro-batch, each sequence has the scores that it has where its vector is that of all, and one
// without a vector those that it has where nobody has one, bit by bit.
func TestSteerRows(t *testing.T) {
	s := newSteered(t, testenv.Model(t))
	const all = collect.AllSequences
	one, two := s.vector(1), s.vector(-0.5)
	compute := func(vectors map[int]collect.Steered) [][]float32 {
		s.steer(vectors)
		s.decode(5)
		s.decode(1)
		return s.decode(1)
	}
	plain := compute(nil)
	ones, twos := compute(map[int]collect.Steered{all: one}), compute(map[int]collect.Steered{all: two})
	for sequence := range steeredSequences {
		if slices.Equal(plain[sequence], ones[sequence]) || slices.Equal(ones[sequence], twos[sequence]) {
			t.Fatal("the vectors change nothing")
		}
	}
	for _, test := range []struct {
		name    string
		vectors map[int]collect.Steered
		want    [steeredSequences][][]float32
	}{
		{"one of four", map[int]collect.Steered{0: one}, [...][][]float32{ones, plain, plain, plain}},
		{"another one", map[int]collect.Steered{2: one}, [...][][]float32{plain, plain, ones, plain}},
		{"two vectors", map[int]collect.Steered{1: one, 3: two}, [...][][]float32{plain, ones, plain, twos}},
		{"in place of that of all", map[int]collect.Steered{all: two, 1: one}, [...][][]float32{twos, ones, twos,
			twos}},
		{"a vector of zeros", map[int]collect.Steered{all: two, 3: s.vector(0)}, [...][][]float32{twos, twos, twos,
			plain}},
		{"none", nil, [...][][]float32{plain, plain, plain, plain}},
	} {
		got := compute(test.vectors)
		for sequence, want := range test.want {
			if !slices.Equal(got[sequence], want[sequence]) {
				t.Errorf("%s: the scores of sequence %d are others", test.name, sequence)
			}
		}
	}
	many := map[int]collect.Steered{}
	for sequence := range 16 {
		many[sequence] = s.vector(float64(sequence + 1))
	}
	if _, err := s.region.Steer(many); err == nil {
		t.Error("more vectors than there is room for were taken")
	}
}

// BenchmarkSteerSequences reports the decode speed that four sequences keep as a ratio of processor time to that of a
// run that is armed and adds no vector: kept-all with a vector for all, kept-one with a vector of one of them. The
// pieces of sixteen tokens are computed in alternation. The model is the embedded one, or that of
// LLAMATAP_BENCH_MODEL.
func BenchmarkSteerSequences(b *testing.B) {
	path := os.Getenv("LLAMATAP_BENCH_MODEL")
	if path == "" {
		path = testenv.Model(b)
	}
	s := newSteered(b, path)
	states := []map[int]collect.Steered{nil, {collect.AllSequences: s.vector(1)}, {0: s.vector(1)}}
	took := func(state int) float64 {
		s.steer(states[state])
		s.decode(2)
		s.decode(1) // builds the graph
		var began, ended unix.Timespec
		unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &began)
		for range 16 {
			s.decode(1)
		}
		unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ended)
		return float64(ended.Nano() - began.Nano())
	}
	ratios := make([][]float64, len(states))
	for i := 0; b.Loop(); i++ {
		times := make([]float64, len(states))
		for k := range states {
			state := (i + k) % len(states)
			times[state] = took(state)
		}
		for state, ns := range times {
			ratios[state] = append(ratios[state], times[0]/ns)
		}
	}
	for state, name := range []string{"", "kept-all", "kept-one"} {
		if slices.Sort(ratios[state]); name != "" {
			n := len(ratios[state])
			b.ReportMetric(ratios[state][n/2], name)
			b.ReportMetric(ratios[state][n/4], name+"-quartile-1")
			b.ReportMetric(ratios[state][n*3/4], name+"-quartile-3")
		}
	}
}
