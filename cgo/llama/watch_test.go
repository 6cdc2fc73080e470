//go:build llama

package llama

import (
	"errors"
	"reflect"
	"slices"
	"testing"
)

// TestWatch: a context reads and changes the rows of one sequence at a node, cuts change no bit of the others, and a
// graph that is not the one that sites were made for is an error.
func TestWatch(t *testing.T) {
	m := loadDefault(t)
	const sequences = 3
	x := newContext(t, m, func(p *ContextParams) { p.Watch, p.Sequences, p.Size = true, sequences, 256*sequences })
	prompt, err := m.Vocab().Tokenize("func main() {", true, false)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBatch(sequences*len(prompt), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	logits := func(sites ...WatchSite) (all [sequences][]float32) {
		t.Helper()
		x.Memory().Clear(false)
		b.Reset()
		for seq := range Seq(sequences) {
			for i, token := range prompt {
				if err := b.Add(token, Pos(i), i == len(prompt)-1, seq); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := x.DecodeWatched(b, sites); err != nil {
			t.Fatal(err)
		}
		for seq := range all {
			l, err := x.Logits((seq+1)*len(prompt) - 1)
			if err != nil {
				t.Fatal(err)
			}
			all[seq] = slices.Clone(l)
		}
		return all
	}
	plain := logits()
	g, err := x.Graph()
	x.Memory().Clear(false)
	planErr := x.Plan(b)
	if planned, plannedErr := x.Graph(); errors.Join(err, planErr, plannedErr) != nil ||
		!reflect.DeepEqual(g.Nodes, planned.Nodes) || !slices.Equal(g.Root, planned.Root) {
		t.Fatal("a graph that is not computed is another one:", err, planErr, plannedErr)
	}
	var sites []WatchSite
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Computed && n.Op == "ADD" {
			sites = append(sites, WatchSite{Node: i, Read: make([]byte, 4*n.NE[0]),
				Writes: []WatchWrite{{Kind: WatchKeep, Bytes: int(4 * n.NE[0])}}})
		}
	}
	if cut := logits(sites...); len(sites) < 2*m.Layers() || !slices.EqualFunc(cut[:], plain[:], slices.Equal) {
		t.Errorf("%d cuts change the logits", len(sites))
	}
	if !slices.ContainsFunc(sites[3].Read, func(b byte) bool { return b != 0 }) {
		t.Error("nothing was read")
	}
	last := uint64(4 * m.Width() * (2*len(prompt) - 1)) // row of the last token of sequence 1
	sites[2].Writes = []WatchWrite{{Offset: last, Values: make([]float32, m.Width())}}
	changed := logits(sites...)
	for seq := range changed {
		if same := slices.Equal(changed[seq], plain[seq]); same != (seq != 1) {
			t.Errorf("a write to sequence 1: logits of sequence %d are the same: %v", seq, same)
		}
	}
	for _, wrong := range []WatchSite{{Node: len(g.Nodes)}, {Node: 3, Writes: []WatchWrite{{Offset: 1 << 40,
		Values: []float32{1}}}}} {
		x.Memory().Clear(false)
		if err := x.DecodeWatched(b, []WatchSite{wrong}); !errors.Is(err, ErrWatch) {
			t.Errorf("site %+v: %v", wrong, err)
		}
	}
}
