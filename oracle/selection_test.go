//go:build linux

package oracle

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// unselected is the run that selections are compared with, which is recorded once. Tests only read it.
var unselected struct {
	sync.Mutex
	outcome
}

// selected is a run of the default model with a selection, and the same run without.
func selected(t *testing.T, tap ...string) (some, all *capture) {
	t.Helper()
	args := []string{"-m", testenv.Model(t), "-p", prompt, "-n", "6", "--temp", "0", "-t", "1", "-c", "512", "-ub", "8"}
	some = record(t, append(tap, exact...), args...).sealed(t)
	unselected.Lock()
	defer unselected.Unlock()
	if unselected.dirs == nil {
		out := filepath.Join(made.dir, "unselected")
		unselected.outcome = finish(t, command(t, slices.Concat([]string{"run"}, everything, args)...), out).good(t)
	}
	return some, unselected.capture(t)
}

// a wanted reports whether a tensor of the whole run is to be captured.
type wanted func(*tensor) bool

// wantSelection demands those tensors, with the bits that the whole run has, and no others.
func wantSelection(t *testing.T, some, all *capture, want wanted) {
	t.Helper()
	got, whole := some.tensors(t), all.tensors(t)
	count := 0
	for k, x := range whole {
		g := got[k]
		switch {
		case want(x) != (g != nil):
			t.Errorf("%v, layer %d, %v: captured %v, want %v", k, x.Layer, x.Component, g != nil, want(x))
		case g != nil:
			count++
			if g.NE != x.NE || g.Name != x.Name || !sameBits(g.values, x.values) {
				t.Errorf("%v: named %s, want %s; %s", k, g.Name, x.Name, firstDifference(g.values, x.values))
			}
		}
	}
	if count == 0 || count == len(whole) || count != len(got) {
		t.Errorf("%d of %d tensors were selected, %d captured", count, len(whole), len(got))
	}
	wantIDs(t, "tokens of the run", some.ids(), all.ids())
}

func TestLayers(t *testing.T) {
	some, all := selected(t, "--tap-layers", "1-2,4")
	wantSelection(t, some, all, func(x *tensor) bool { return slices.Contains([]int32{1, 2, 4}, x.Layer) })
}

func TestGranularity(t *testing.T) {
	for name, component := range map[string]ggmlhooks.Component{"attention_only": ggmlhooks.ComponentAttention,
		"mlp_only": ggmlhooks.ComponentMLP} {
		some, all := selected(t, "--tap-granularity", name)
		wantSelection(t, some, all, func(x *tensor) bool { return x.Component == component })
	}
}

func TestGlobs(t *testing.T) {
	some, all := selected(t, "--tap-tensors", "l_out-[1-3],ffn_?p,result_output", "--tap-layers", "0-2")
	wantSelection(t, some, all, func(x *tensor) bool {
		return slices.Contains([]string{"l_out-1", "l_out-2", "ffn_up-0", "ffn_up-1", "ffn_up-2"}, x.Node)
	})
}

// TestNames: a node has one name, whatever is selected, and the name selects it. Views have one that nothing else has.
func TestNames(t *testing.T) {
	some, all := selected(t, "--tap-tensors", "Qcur-1#2,norm-0#1")
	wantSelection(t, some, all, func(x *tensor) bool {
		return x.Node == "Qcur-1" && x.Op == "ROPE" || x.Node == "norm-0" && x.Occurrence == 1
	})
	nodes := map[string]key{}
	for _, x := range all.tensors(t) {
		nodes[x.Name] = key{x.Node, x.Op, x.Occurrence, 0}
	}
	for _, tap := range []string{"--tap-attention", "--tap-tensors=Qcur,norm", "--tap-granularity=mlp_only",
		"--tap-layers=1"} {
		some := record(t, append([]string{tap}, exact...), "-m", testenv.Model(t), "-p", prompt, "-n", "3", "-t", "1",
			"-c", "512")
		for _, x := range some.tensors(t) {
			id := key{x.Node, x.Op, x.Occurrence, 0}
			if other, known := nodes[x.Name]; known && other != id || !known && x.Op != "RESHAPE" && x.Op != "NONE" {
				t.Errorf("%s: %s is %v, and where all is captured %v", tap, x.Name, id, other)
			}
			nodes[x.Name] = id
		}
	}
}

// TestTokenRules compares each captured row with that of the run that captured all.
func TestTokenRules(t *testing.T) {
	for rule, want := range map[string]func(row int64, output bool) bool{
		"last":    func(_ int64, output bool) bool { return output },
		"5:20":    func(row int64, _ bool) bool { return row >= 5 && row < 20 },
		"30:":     func(row int64, _ bool) bool { return row >= 30 },
		"every:3": func(row int64, _ bool) bool { return row%3 == 0 },
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			some, all := selected(t, "--tap-granularity", "full_tensor", "--tap-tokens", rule)
			whole := all.tensors(t)
			rows := map[key][]int64{}
			for i := range some.packets {
				p := &some.packets[i]
				x := whole[keyOf(p)]
				if x == nil {
					t.Fatalf("%v is too much", keyOf(p))
				}
				if p.Rows == ggmlhooks.RowsNone {
					continue
				}
				values, err := some.stream.Float32(p, nil)
				if err != nil {
					t.Fatal(err)
				}
				for row := range int64(p.TokenCount) {
					rows[keyOf(p)] = append(rows[keyOf(p)], p.TokenFirst+row)
					if !sameBits(rowOf(p, values, row), rowOf(&x.Packet, x.values, p.TokenFirst+row-x.TokenFirst)) {
						t.Errorf("%v: row of token %d differs", keyOf(p), p.TokenFirst+row)
					}
				}
			}
			checked := 0
			for _, e := range all.execs() {
				for k, x := range whole {
					if k.exec != e.Exec || x.Rows == ggmlhooks.RowsNone {
						continue
					}
					checked++
					var chosen []int64
					for _, row := range e.Rows {
						if (x.Rows == ggmlhooks.RowsTokens || row.Output) && want(row.Index, row.Output) {
							chosen = append(chosen, row.Index)
						}
					}
					if !slices.Equal(rows[k], chosen) {
						t.Errorf("%v: rows of tokens %v, want %v", k, rows[k], chosen)
					}
				}
			}
			if checked < 100 {
				t.Errorf("only %d tensors with rows", checked)
			}
		})
	}
}

// rowOf takes one row out of a tensor's values.
func rowOf(p *stream.Packet, values []float32, row int64) []float32 {
	inner, outer := int64(1), int64(1)
	for d, n := range p.NE {
		switch {
		case d < int(p.RowDim):
			inner *= n
		case d > int(p.RowDim):
			outer *= n
		}
	}
	var out []float32
	for o := range outer {
		at := (o*p.NE[p.RowDim] + row) * inner
		out = append(out, values[at:at+inner]...)
	}
	return out
}

// TestSampledSlices makes the choice of elements again from the seed.
func TestSampledSlices(t *testing.T) {
	some, all := selected(t, "--tap-granularity", "sampled_slices", "--tap-sampling-rate", "0.07", "--tap-seed", "99")
	whole := all.tensors(t)
	seeds := map[uint64]bool{}
	for i := range some.packets {
		p := &some.packets[i]
		values, err := some.stream.Float32(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		x := whole[keyOf(p)]
		if x == nil || p.SampleTotal != int64(len(x.values)) || p.NE != x.NE {
			t.Fatalf("%v: a sample of %d elements", keyOf(p), p.SampleTotal)
		}
		seeds[p.SampleSeed] = true
		indices := label.SampleIndices(nil, p.SampleSeed, p.SampleTotal, ggmlhooks.SampleSize(p.SampleTotal, 0.07))
		if !slices.Equal(indices, p.AppendIndices(nil)) {
			t.Fatalf("%v: the packet says that its elements are %v, want %v", keyOf(p), p.AppendIndices(nil), indices)
		}
		if len(values) != len(indices) {
			t.Fatalf("%v: %d elements, want %d", keyOf(p), len(values), len(indices))
		}
		var want []float32
		for _, at := range indices {
			want = append(want, x.values[at])
		}
		if !sameBits(values, want) {
			t.Errorf("%v: %s", keyOf(p), firstDifference(values, want))
		}
	}
	if len(some.packets) != len(whole) || len(seeds) != len(whole) {
		t.Errorf("%d samples with %d seeds of %d tensors", len(some.packets), len(seeds), len(whole))
	}
}

// TestDrop counts what a pool that is too small for the run loses.
func TestDrop(t *testing.T) {
	args := []string{"-m", synthetic(t, "llama", gguf.F16, nil), "-p", strings.Repeat(long, 12), "-n", "20",
		"--temp", "0", "-t", "1", "-c", "2048"}
	whole := record(t, everything, args...)
	tap := append([]string{"run", "--tap-memory", "8M", "--tap-overflow", "drop", "--tap-workers", "1"}, everything...)
	tap = append(tap, "--tap-codec", "zstd")
	o := llamatap(t, append(tap, args...)...)
	// the recording kept up: on a busy machine the model may be the slower one
	for tries := 0; o.status == 0 && tries < 10; tries++ {
		o = llamatap(t, append(tap, args...)...)
	}
	if o.status != 3 || !strings.Contains(o.stderr, "LOST") {
		t.Fatalf("status %d, want 3 of a lossy run\n%s", o.status, o.stderr)
	}
	if o.stdout != whole.stdout {
		t.Errorf("text %q, want %q", o.stdout, whole.stdout)
	}
	c := o.capture(t)
	var sum, bytes uint64
	for _, loss := range c.stream.Info().Losses {
		sum += loss.Packets
		bytes += loss.Bytes
	}
	// Large tensors go through a small pool in pieces: bytes are what must add up.
	if got, want := bytesOf(c), bytesOf(whole); got+bytes != want || sum == 0 {
		t.Errorf("%d bytes and %d lost (%d packets), want %d in all", got, bytes, sum, want)
	}
	reported := uint64(0)
	for _, loss := range c.meta.Losses {
		reported += loss.Packets
	}
	if !c.meta.Lossy || reported != sum {
		t.Errorf("metadata: lossy %v, %+v lost", c.meta.Lossy, c.meta.Losses)
	}
	if v := llamatap(t, "verify", c.dir); v.status == 0 {
		t.Errorf("llamatap verify finds a lossy run good\n%s", v.stdout)
	}
	wantIDs(t, "tokens", c.ids(), whole.ids())
}

// bytesOf counts what was taken from tensors, set-up apart.
func bytesOf(c *capture) uint64 {
	n := int64(0)
	for i := range c.packets {
		if c.packets[i].Phase.String() != "setup" {
			n += c.packets[i].SrcBytes
		}
	}
	return uint64(n)
}

// TestPresets: each preset makes a run, and two keep the 3× that they promise.
func TestPresets(t *testing.T) {
	least := map[string]float64{"balanced": 3, "max_compression": 3}
	for _, preset := range []string{"fast_capture", "balanced", "max_compression", "attention_analysis",
		"mlp_analysis"} {
		c := record(t, []string{"--tap-preset", preset}, "-p", prompt, "-n", "3", "--temp", "0", "-t", "1").sealed(t)
		if len(c.packets) == 0 || len(c.tokens) == 0 {
			t.Errorf("%s: %d packets, %d tokens", preset, len(c.packets), len(c.tokens))
		}
		taken, stored := int64(0), int64(0)
		for i := range c.packets {
			taken, stored = taken+c.packets[i].SrcBytes, stored+int64(c.packets[i].Stored)
		}
		if ratio := float64(taken) / float64(stored); ratio < least[preset] {
			t.Errorf("%s: %d bytes of tensors stored as %d, %.2f×, want at least %.1f×", preset, taken, stored, ratio,
				least[preset])
		}
	}
}
