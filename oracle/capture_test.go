//go:build linux

package oracle

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	recorder "github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// A capture is an opened run directory.
type capture struct {
	outcome
	dir      string
	stream   *stream.Reader
	meta     rundir.Metadata
	tokens   []rundir.TokenRecord
	packets  []stream.Packet
	attended []attention
}

// attention is what metadata.json says of one attention.
type attention = recorder.Attention

// capture opens the one run directory that a process left, and lets llamatap verify judge it.
func (o outcome) capture(t *testing.T) *capture {
	t.Helper()
	if len(o.dirs) != 1 {
		t.Fatalf("%q: %d run directories, want 1\n%s", o.args, len(o.dirs), o.stderr)
	}
	c := &capture{outcome: o, dir: o.dirs[0]}
	var err error
	if c.stream, err = stream.Open(filepath.Join(c.dir, "activations.stream")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.stream.Close() })
	for _, fault := range c.stream.Info().Damage {
		t.Errorf("%s: %v", c.dir, fault)
	}
	for _, p := range c.stream.Packets() {
		c.packets = append(c.packets, *p)
	}
	c.load(t, rundir.MetadataName, &c.meta)
	var tokens struct {
		Total  int                  `json:"total_tokens"`
		Tokens []rundir.TokenRecord `json:"tokens"`
	}
	c.load(t, rundir.TokensName, &tokens)
	if c.tokens = tokens.Tokens; tokens.Total != len(c.tokens) {
		t.Errorf("total_tokens is %d, and there are %d", tokens.Total, len(c.tokens))
	}
	if extra := c.meta.Extra["attention"]; extra != nil {
		if err := json.Unmarshal(extra, &c.attended); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *capture) load(t *testing.T, name string, v any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir, name))
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sealed lets llamatap verify judge the run directory.
func (c *capture) sealed(t *testing.T) *capture {
	t.Helper()
	if o := llamatap(t, "verify", c.dir); o.status != 0 {
		t.Errorf("llamatap verify: status %d\n%s%s", o.status, o.stdout, o.stderr)
	}
	return c
}

// A key says which tensor of which execution.
type key struct {
	node, op   string
	occurrence int
	exec       uint64
}

func keyOf(p *stream.Packet) key { return key{p.Node, p.Op, p.Occurrence, p.Exec} }

func (k key) String() string {
	return fmt.Sprintf("%s %s #%d of execution %d", k.node, k.op, k.occurrence, k.exec)
}

// A tensor is all captured packets of a node's execution put together.
type tensor struct {
	stream.Packet
	values []float32
}

// tensors puts together every tensor that was captured.
func (c *capture) tensors(t *testing.T) map[key]*tensor {
	t.Helper()
	all := make(map[key]*tensor)
	for i := range c.packets {
		p := &c.packets[i]
		values, err := c.stream.Float32(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		have := all[keyOf(p)]
		if have == nil {
			all[keyOf(p)] = &tensor{*p, values}
			continue
		}
		have.join(t, p, values)
	}
	return all
}

// join appends the next piece of a tensor: a numbered block, or further rows of the last dimension.
func (x *tensor) join(t *testing.T, p *stream.Packet, values []float32) {
	t.Helper()
	switch {
	case p.Blocks > 1:
		if p.BlockStart != int64(len(x.values)) || p.Block != x.Block+1 {
			t.Fatalf("%v: block %d starts at %d after %d elements", keyOf(p), p.Block, p.BlockStart, len(x.values))
		}
		x.Block = p.Block
	case p.TokenFirst != x.TokenFirst+int64(x.TokenCount):
		t.Fatalf("%v: rows from %d after rows %d to %d", keyOf(p), p.TokenFirst, x.TokenFirst,
			x.TokenFirst+int64(x.TokenCount)-1)
	default:
		x.NE[p.RowDim] += p.NE[p.RowDim]
		x.TokenCount += p.TokenCount
	}
	x.values = append(x.values, values...)
}

// elements is the number of elements that a shape has.
func elements(ne [4]int64) int64 { return ne[0] * ne[1] * ne[2] * ne[3] }

// execs lists the executions that have token rows, in order.
func (c *capture) execs() []*stream.Execution {
	var all []*stream.Execution
	for e := range c.stream.Executions() {
		if len(e.Rows) > 0 {
			copied := *e
			all = append(all, &copied)
		}
	}
	return all
}

// ids are the ids of tokens of some phases, of all phases where none is named.
func (c *capture) ids(phases ...string) []int32 {
	ids := []int32{}
	for _, token := range c.tokens {
		if len(phases) == 0 || slices.Contains(phases, token.Phase.String()) {
			ids = append(ids, token.ID)
		}
	}
	return ids
}

// equalCaptures compares two runs tensor by tensor, bit by bit, and returns how many there were.
func equalCaptures(t *testing.T, what string, got, want *capture) int {
	t.Helper()
	a, b := got.tensors(t), want.tensors(t)
	for k, w := range b {
		g := a[k]
		if g == nil {
			t.Errorf("%s: %v is missing", what, k)
		} else if g.NE != w.NE || !sameBits(g.values, w.values) {
			t.Errorf("%s: %v differs: shapes %v and %v, %s", what, k, g.NE, w.NE, firstDifference(g.values, w.values))
		}
	}
	for k := range a {
		if b[k] == nil {
			t.Errorf("%s: %v is too much", what, k)
		}
	}
	return len(b)
}

// sameBits compares floats as bits, so that NaN equals itself.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

func firstDifference(a, b []float32) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d and %d elements", len(a), len(b))
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return fmt.Sprintf("element %d is %g and %g", i, a[i], b[i])
		}
	}
	return "no difference"
}
