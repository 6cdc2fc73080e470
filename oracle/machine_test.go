//go:build linux

package oracle

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/testenv"
)

// witness keeps all that the tap reports of a short run.
type witness struct {
	graphs  map[uint64]*ggmlhooks.Graph
	execs   []ggmlhooks.Exec
	ends    map[uint64]ggmlhooks.ExecEnd
	times   map[uint64]ggmlhooks.Times
	inputs  map[uint64][]ggmlhooks.Input
	routing map[uint64]map[int][]byte // by execution and node
	buffers map[uint64]ggmlhooks.Buffer
	freed   map[uint64]bool
	samples []ggmlhooks.Sample
	syncs   []ggmlhooks.Sync
	changes []ggmlhooks.SeqChange
	calls   []ggmlhooks.Call
	moved   []ggmlhooks.Moved
}

func (w *witness) Context(*ggmlhooks.Context) error      { return nil }
func (w *witness) Resolve(ggmlhooks.Resolve) error       { return nil }
func (w *witness) Graph(g *ggmlhooks.Graph) error        { w.graphs[g.ID] = g; return nil }
func (w *witness) ExecEnd(e ggmlhooks.ExecEnd) error     { w.ends[e.Number] = e; return nil }
func (w *witness) Buffer(b *ggmlhooks.Buffer) error      { w.buffers[b.ID] = *b; return nil }
func (w *witness) Sync(e ggmlhooks.Sync) error           { w.syncs = append(w.syncs, e); return nil }
func (w *witness) Served(*ggmlhooks.Served) error        { return nil }
func (w *witness) Moved(m *ggmlhooks.Moved) error        { w.moved = append(w.moved, *m); return nil }
func (w *witness) BufferEnd(e ggmlhooks.BufferEnd) error { w.freed[e.ID] = true; return nil }

func (w *witness) Call(c *ggmlhooks.Call) error {
	n := *c
	n.Rows = slices.Clone(c.Rows)
	w.calls = append(w.calls, n)
	return nil
}

func (w *witness) SeqChange(c *ggmlhooks.SeqChange) error {
	w.changes = append(w.changes, *c)
	return nil
}

func (w *witness) Exec(e *ggmlhooks.Exec) error {
	n := *e
	n.Tokens, n.Pos, n.Outputs = slices.Clone(e.Tokens), slices.Clone(e.Pos), slices.Clone(e.Outputs)
	w.execs = append(w.execs, n)
	return nil
}

func (w *witness) Capture(c *ggmlhooks.Capture) error {
	defer c.Release()
	if c.For&ggmlhooks.ForRouting != 0 {
		if w.routing[c.Exec] == nil {
			w.routing[c.Exec] = map[int][]byte{}
		}
		w.routing[c.Exec][c.Node] = slices.Clone(c.Data)
	}
	return nil
}

func (w *witness) Times(n *ggmlhooks.Times) error {
	c := *n
	c.Nodes = slices.Clone(n.Nodes)
	w.times[n.Exec] = c
	return nil
}

func (w *witness) Input(in *ggmlhooks.Input) error {
	c := *in
	c.Values, c.Ranges = slices.Clone(in.Values), slices.Clone(in.Ranges)
	w.inputs[in.Exec] = append(w.inputs[in.Exec], c)
	return nil
}

func (w *witness) Sample(s *ggmlhooks.Sample) error {
	c := *s
	c.Top = slices.Clone(s.Top)
	w.samples = append(w.samples, c)
	return nil
}

func newWitness() *witness {
	return &witness{
		graphs: map[uint64]*ggmlhooks.Graph{}, ends: map[uint64]ggmlhooks.ExecEnd{},
		times: map[uint64]ggmlhooks.Times{}, inputs: map[uint64][]ggmlhooks.Input{},
		routing: map[uint64]map[int][]byte{}, buffers: map[uint64]ggmlhooks.Buffer{}, freed: map[uint64]bool{},
	}
}

// watch runs a program of llama.cpp with the tap preloaded, and returns all that it reported.
func watch(t *testing.T, m collect.Machine, tool string, args ...string) *witness {
	t.Helper()
	tap := filepath.Join(filepath.Dir(testenv.NeedBinary(t)), "libllamatap.so")
	cmd := testenv.NeedTool(t, tool).Command(args...)
	cmd.Args[1] += ":" + tap // behind --preload=
	return watchCommand(t, m, cmd)
}

// watchCommand runs a program that has the tap in it. This process keeps its priority, which [collect.Start] would
// lower for good.
func watchCommand(t *testing.T, m collect.Machine, cmd *exec.Cmd) *witness {
	t.Helper()
	w := newWitness()
	watchSink(t, m, w, cmd)
	if len(w.execs) == 0 {
		t.Fatalf("%s: nothing was executed", cmd)
	}
	return w
}

// watchSink hands all that the tap reports to a sink.
func watchSink(t *testing.T, m collect.Machine, sink ggmlhooks.Sink, cmd *exec.Cmd) {
	t.Helper()
	region, err := collect.NewRegion(collect.Options{Start: collect.Wish{Off: true, Machine: m}, MemoryBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.ExtraFiles = []*os.File{region.File(), region.Life()}
	cmd.Env = append(cmd.Environ(), collect.FDVariable+"=3,4")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	reader := collect.NewReader(region, sink)
	for running := true; running; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%s: %v: %s", cmd, err, out.String())
			}
			running = false
		default:
			reader.Sleep(time.Millisecond)
		}
		if _, err := reader.Drain(); err != nil {
			cmd.Process.Kill()
			t.Fatal(err)
		}
	}
	if losses := region.Stats().Losses; len(losses) != 0 {
		t.Fatalf("%s: lost: %+v: %s", cmd, losses, out.String())
	}
}

// allOfIt is all that the tap can report besides tensors.
var allOfIt = collect.Machine{Looking: ggmlhooks.LookOps, LookEvery: 1, Cells: true, Routing: true, Samples: true,
	Moves: true}

// TestMachineTimes: every node that computes is timed once per execution, in order, inside of its graph; some views
// too.
func TestMachineTimes(t *testing.T) {
	model := testenv.Model(t)
	for _, looking := range []ggmlhooks.Looking{ggmlhooks.LookOps, ggmlhooks.LookRanges} {
		w := watch(t, collect.Machine{Looking: looking, LookEvery: 1}, "llama-completion", "-m", model, "-p",
			"One two three",
			"-n", "6", "-no-cnv", "--temp", "0", "-t", "2")
		for _, e := range w.execs {
			g, end, times := w.graphs[e.Graph], w.ends[e.Number], w.times[e.Number]
			if end.BeginNS < e.MonoNS || end.MonoNS < end.BeginNS || times.BeginNS != end.BeginNS || end.Async {
				t.Fatalf("execution %d: entry %d, %+v, times from %d on", e.Number, e.MonoNS, end, times.BeginNS)
			}
			last, before, computed, idle := int64(0), int32(-1), 0, 0
			for _, n := range times.Nodes {
				if n.DoneNS < last || n.LeftNS < n.DoneNS || n.LeftNS > end.MonoNS-end.BeginNS || n.Node <= before {
					t.Fatalf("execution %d: node %d from %d to %d, behind node %d at %d, in a graph of %d ns", e.Number,
						n.Node, n.DoneNS, n.LeftNS, before, last, end.MonoNS-end.BeginNS)
				}
				last, before = n.LeftNS, n.Node
				if g.Nodes[n.Node].Computed {
					computed++
				} else if idle++; !g.Nodes[n.Node].View {
					t.Errorf("node %s is timed", g.Nodes[n.Node].Name)
				}
			}
			all := 0
			for i := range g.Nodes {
				if g.Nodes[i].Computed {
					all++
				}
			}
			if looking == ggmlhooks.LookOps && computed != all || looking == ggmlhooks.LookRanges && (computed < 13 ||
				computed > all/2) || idle == 0 {
				t.Errorf("%d of %d nodes and %d views are timed", computed, all, idle)
			}
		}
	}
}

// TestMachinePlaces: every tensor lies in a reported buffer, weights in one of weights, and inside of it.
func TestMachinePlaces(t *testing.T) {
	w := watch(t, collect.Machine{}, "llama-completion", "-m", testenv.Model(t), "-p", "One two three", "-n", "4",
		"-no-cnv", "--temp", "0", "-t", "2")
	check := func(what string, p ggmlhooks.Place, ne [4]int64, nb [4]uint64) ggmlhooks.Buffer {
		t.Helper()
		b, ok := w.buffers[p.Buffer]
		end := p.Offset
		for d := range ne {
			end += uint64(max(ne[d]-1, 0)) * nb[d]
		}
		if !ok || end >= b.Size {
			t.Errorf("%s lies at %d to %d of buffer %d (%+v)", what, p.Offset, end, p.Buffer, b)
		}
		return b
	}
	weights := 0
	for _, g := range w.graphs {
		for i := range g.Leafs {
			l := &g.Leafs[i]
			b := check(l.Name, l.Place, [4]int64{1, l.NE[1], l.NE[2], l.NE[3]}, l.NB)
			if strings.HasSuffix(l.Name, ".weight") {
				weights++
				if b.Usage != ggmlhooks.BufferWeights {
					t.Errorf("%s lies in a buffer of %v", l.Name, b.Usage)
				}
			}
		}
		for i := range g.Nodes {
			check(fmt.Sprintf("node %d (%s %s)", i, g.Nodes[i].Op, g.Nodes[i].Name), g.Nodes[i].Place,
				[4]int64{1, 1, 1, 1}, g.Nodes[i].NB)
		}
	}
	if weights == 0 || len(w.buffers) < 3 || len(w.freed) == 0 {
		t.Errorf("%d weights, %d buffers, %d freed", weights, len(w.buffers), len(w.freed))
	}
}

// TestMachineCells: an unbroken run of one sequence writes cell n for its n-th token, and reads all cells up to it;
// with flash attention and without, where V lies transposed.
func TestMachineCells(t *testing.T) {
	for _, fa := range []string{"on", "off"} {
		w := watch(t, allOfIt, "llama-completion", "-m", testenv.Model(t), "-p", "One two three four five", "-n", "5",
			"-no-cnv", "--temp", "0", "-t", "2", "-ub", "4", "-b", "8",
			"-fa", fa, "--no-warmup")
		seen := 0
		for _, e := range w.execs {
			kinds := map[ggmlhooks.InputKind]int{}
			for _, in := range w.inputs[e.Number] {
				kinds[in.Kind]++
				for i, pos := range e.Pos {
					if in.Kind == ggmlhooks.InputCells && (len(in.Values) != len(e.Pos) || in.Values[i] != int64(pos)) {
						t.Fatalf("-fa %s: positions %v are written to cells %v by %+v", fa, e.Pos, in.Values,
							w.graphs[e.Graph].Leafs[in.Leaf])
					}
					if want := (ggmlhooks.CellRange{Row: int32(i), First: 0,
						End: pos + 1}); in.Kind == ggmlhooks.InputMask && (len(in.Ranges) != len(e.Pos) ||
						in.Ranges[i] != want) {
						t.Fatalf("-fa %s: positions %v read %+v", fa, e.Pos, in.Ranges)
					}
				}
			}
			if kinds[ggmlhooks.InputCells] != 2 || kinds[ggmlhooks.InputMask] != 1 {
				t.Errorf("-fa %s: an execution of %d tokens has %v", fa, len(e.Tokens), kinds)
			}
			seen += len(e.Tokens)
		}
		if seen < 10 {
			t.Errorf("-fa %s: %d tokens were computed", fa, seen)
		}
	}
}

// TestMachineSamples: the token that is recorded as chosen is the one that the next batch has, and the most likely one
// of a greedy chain.
func TestMachineSamples(t *testing.T) {
	w := watch(t, allOfIt, "llama-completion", "-m", testenv.Model(t), "-p", "One two three", "-n", "8", "-no-cnv",
		"--temp", "0", "-t", "2", "--no-warmup")
	var decoded []int32
	for _, e := range w.execs[1:] {
		decoded = append(decoded, e.Tokens...)
	}
	var chosen []int32
	for _, s := range w.samples {
		chosen = append(chosen, s.Token)
		if len(s.Top) == 0 || s.Top[0].Token != s.Token || s.InSize < s.OutSize || s.Ctx != w.execs[0].Ctx {
			t.Errorf("sample %+v", s)
		}
	}
	if len(chosen) < 7 || !slices.Equal(chosen[:len(decoded)], decoded) {
		t.Errorf("chosen %v, decoded %v", chosen, decoded)
	}
}
