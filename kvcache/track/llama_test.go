//go:build llama && linux

package track

import (
	"bytes"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/testenv"
)

// synth makes a model of random weights.
func synth(t *testing.T, arch string) string {
	t.Helper()
	if arch == "" {
		return testenv.Model(t)
	}
	path := filepath.Join(t.TempDir(), arch+".gguf")
	if out, err := exec.Command(testenv.NeedBinary(t), "synth", "-o", path, "--arch", arch, "--quiet").
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// watcher is a recorder that keeps the positions of every sequence whenever the clock of its reports may have
// passed a step of the program.
type watcher struct {
	*Recorder
	t    *testing.T
	seqs int
	was  []state
}

// state is what was known up to a time.
type state struct {
	until int64 // the next report
	low   []int32
	high  []int32
	known []bool
}

// note keeps what is known before something of this time is taken in.
func (w *watcher) note(ns int64) {
	s := state{until: ns}
	x := w.ctxs[0]
	for seq := range int32(w.seqs) {
		low, high, known := int32(-1), int32(-1), true
		if x != nil {
			low, high, known = x.posRange(seq)
		}
		s.low, s.high, s.known = append(s.low, low), append(s.high, high), append(s.known, known)
	}
	w.was = append(w.was, s)
}

func (w *watcher) Begin(x *ggmlhooks.Execution) error {
	w.note(x.MonoNS)
	return w.Recorder.Begin(x)
}

func (w *watcher) SeqChange(c *ggmlhooks.SeqChange) error {
	w.note(c.MonoNS)
	return w.Recorder.SeqChange(c)
}

func (w *watcher) BufferEnd(e ggmlhooks.BufferEnd) error {
	w.note(e.MonoNS)
	return w.Recorder.BufferEnd(e)
}

// TestPositions lets a program do random things to several sequences, and compares after each what is known of
// their positions with what llama_memory_seq_pos_min and _max say.
func TestPositions(t *testing.T) {
	testenv.NeedLlama(t)
	all := map[string]order{
		"unified":       {Unified: true},
		"streams":       {},
		"transposed":    {NoFlash: true, Unified: true},
		"transposed/4":  {NoFlash: true},
		"quantised":     {Unified: true, TypeK: "q8_0"},
		"micro-batches": {Unified: true, Micro: 4},
		"window":        {Model: "gemma2", Unified: true},
		"windows":       {Model: "gemma2"},
		"full window":   {Model: "gemma2", Unified: true, Full: true},
		"recurrent":     {Model: "mamba", Unified: true},
		"hybrid":        {Model: "jamba", Unified: true},
	}
	for _, name := range testenv.Brief(testenv.ByDay(slices.Sorted(maps.Keys(all)), 5), 2) {
		o := all[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := synth(t, o.Model)
			for seed := range seeds() {
				positions(t, model, o, seed)
			}
		})
	}
}

func positions(t *testing.T, model string, o order, seed uint64) {
	t.Helper()
	o.Model, o.Sequences, o.Size, o.Steps, o.Seed, o.Folder = model, 4, 512, 150, seed, t.TempDir()
	if o.Micro == 0 {
		o.Micro = 64
	}
	var out bytes.Buffer
	r, err := NewRecorder(Options{Out: &out, Block: 8})
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{Recorder: r, t: t, seqs: o.Sequences}
	steps := run(t, o, ggmlhooks.NewAssembler(0, w), collect.Machine{Cells: true})
	w.note(1 << 62)
	snapshot := r.Snapshot()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	at, known, compared := 0, 0, 0
	for i, s := range steps {
		for at < len(w.was) && w.was[at].until < s.NS {
			at++
		}
		for seq := range o.Sequences {
			compared++
			is := w.was[at]
			if !is.known[seq] {
				if !s.Loaded[seq] {
					t.Errorf("seed %d, step %d (%s): sequence %d is not known", seed, i, s.What, seq)
				}
				continue
			}
			known++
			if is.low[seq] != s.Low[seq] || is.high[seq] != s.High[seq] {
				t.Fatalf("seed %d, step %d (%s): sequence %d has positions %d to %d, llama.cpp says %d to %d\n%s", seed,
					i, s.What, seq, is.low[seq], is.high[seq], s.Low[seq], s.High[seq], story(steps[:i+1]))
			}
		}
	}
	if known*6 < compared || len(steps) < o.Steps/2 {
		t.Errorf("only %d of %d ranges in %d steps are known", known, compared, len(steps))
	}
	if d := snapshot.Doubts; d.Outside != 0 || d.Differ != 0 || d.Unknown != 0 || d.Unplaced != 0 {
		t.Errorf("doubts: %+v", d)
	}
	if len(snapshot.Freed) == 0 || snapshot.Freed[0].Cells == 0 || len(snapshot.Caches) != 0 {
		t.Errorf("caches: %+v, freed: %+v", snapshot.Caches, snapshot.Freed)
	}
}

func story(steps []step) (text string) {
	for _, s := range steps[max(0, len(steps)-12):] {
		text += fmt.Sprintf("  %s %v %v\n", s.What, s.Low, s.High)
	}
	return text
}

// seeds is how many walks are taken: two, and many nightly.
func seeds() uint64 {
	if testenv.Nightly() {
		return 40
	}
	return uint64(len(testenv.Brief([]int{1, 2}, 1)))
}
