package tensors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// distanceOf compares two rows, cut into two stretches.
func distanceOf(a, b []float32) Distance {
	var sum rowDistance
	half := len(a) / 2
	sum.add(a[:half], b[:half])
	sum.add(a[half:], b[half:])
	return sum.distance()
}

func TestDistance(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		a, b                        []float32
		cosine, most, rms, relative float64
		values, nonFinite           int64
	}{
		{[]float32{1, 2, 3}, []float32{1, 2, 3}, 1, 0, 0, 0, 3, 0},
		{[]float32{3, 4}, []float32{4, 3}, 24. / 25, 1, 1, math.Sqrt(2. / 25), 2, 0},
		{[]float32{1, 0}, []float32{0, 1}, 0, 1, 1, math.Sqrt2, 2, 0},
		{[]float32{1, 1}, []float32{-1, -1}, -1, 2, 2, 2, 2, 0},
		{[]float32{0, 0}, []float32{0, 0}, 1, 0, 0, 0, 2, 0},
		{[]float32{0, 0}, []float32{0, 2}, 0, 2, math.Sqrt2, math.Inf(1), 2, 0},
		{[]float32{nan, 1, inf}, []float32{nan, 1, inf}, 1, 0, 0, 0, 1, 0},
		{[]float32{nan, 1, inf}, []float32{0, 1, -inf}, 1, 0, 0, 0, 1, 2},
	} {
		d := distanceOf(c.a, c.b)
		near := func(name string, got, want float64) {
			t.Helper()
			if got != want && !(math.Abs(got-want) <= 1e-12) {
				t.Errorf("%v against %v: %s %v, want %v", c.a, c.b, name, got, want)
			}
		}
		near("cosine", d.Cosine(), c.cosine)
		near("max", d.Max, c.most)
		near("rms", d.RMS(), c.rms)
		near("relative", d.Relative(), c.relative)
		if d.Values != c.values || d.NonFinite != c.nonFinite {
			t.Errorf("%v against %v: %d values, %d not finite", c.a, c.b, d.Values, d.NonFinite)
		}
		if _, err := json.Marshal(d); err != nil {
			t.Errorf("%v against %v: %v", c.a, c.b, err)
		}
	}
	sum := distanceOf([]float32{3, 4}, []float32{4, 3})
	one := distanceOf([]float32{5}, []float32{5})
	sum.Merge(&one)
	if sum.Rows != 2 || sum.Cosine() != (24./25+1)/2 || sum.CosineMin != 24./25 || sum.RMS() != math.Sqrt(2./3) {
		t.Errorf("merged: %+v, cosine %v, rms %v", sum, sum.Cosine(), sum.RMS())
	}
}

func TestDiffSame(t *testing.T) {
	a, b := (&fixture{}).build(t), (&fixture{codec: codec.LZ4}).build(t)
	one, other := mustOpen(t, a), mustOpen(t, b)
	rows := 0
	d, err := Compare(context.Background(), one, other, DiffOptions{}, func(r *RowDiff) error {
		rows++
		if r.Max != 0 || r.CosineMin != 1 || r.Token != r.Other || r.ID != int32(100+r.Token) ||
			r.Pos != int32(r.Token) {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if d.Tokens != 5 || d.OnlyA+d.OnlyB+d.OtherID != 0 || rows == 0 || d.Total.Rows != int64(rows) ||
		len(d.NamesOnlyA)+len(d.NamesOnlyB) != 0 {
		t.Errorf("%+v, %d rows", d, rows)
	}
	reasons := map[string]bool{}
	for _, s := range d.Skipped {
		reasons[s.Reason] = true
	}
	for _, reason := range []string{"it holds samples", "it was stored in pieces", "it is block-quantised",
		"it has no rows of tokens"} {
		if !reasons[reason] {
			t.Errorf("nothing was left out because %s: %+v", reason, d.Skipped)
		}
	}
}

func mustOpen(t *testing.T, path string) *Run {
	t.Helper()
	r, err := Open(path)
	check(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// batches writes a stream of one tensor, rows of two values, in micro-batches of the given sizes; the token at
// position i of sequence 0 has the id of ids[i] and the values i × scale and 1.
func batches(t *testing.T, name string, scale float32, ids []int32, sizes ...int) string {
	t.Helper()
	return nodeBatches(t, stream.Packet{Name: name, Node: name}, scale, ids, sizes...)
}

// nodeBatches is batches of a node.
func nodeBatches(t *testing.T, node stream.Packet, scale float32, ids []int32, sizes ...int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.stream")
	w, err := stream.Create(path, stream.Options{DType: codec.F32})
	check(t, err)
	at := 0
	for exec, n := range sizes {
		e := stream.Execution{Exec: uint64(exec), Phase: label.PhasePrefill, TokenFirst: int64(at)}
		p := node
		p.Rows, p.RowDim, p.NE, p.Exec = label.RowsTokens, 1, [4]int64{2, int64(n), 1, 1}, e.Exec
		p.TokenFirst, p.TokenCount = int64(at), int32(n)
		if node.RowDim == 2 {
			p.RowDim, p.NE = 2, [4]int64{1, 2, int64(n), 1}
		}
		var data []byte
		for range n {
			e.Rows = append(e.Rows, label.Row{Index: int64(at), Token: ids[at], Pos: int32(at), Seqs: []int32{0},
				Phase: e.Phase})
			data = append(data, floats(float32(at)*scale, 1)...)
			at++
		}
		check(t, w.AppendExecution(&e))
		check(t, w.Append(&p, data, nil))
	}
	check(t, w.Close())
	return path
}

func floats(values ...float32) (b []byte) {
	for _, v := range values {
		bits := math.Float32bits(v)
		b = append(b, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
	}
	return b
}

// Rows belong together by place and token, however they were batched.
func TestDiffBatches(t *testing.T) {
	a := mustOpen(t, batches(t, "l_out-0", 1, []int32{1, 2, 3, 4, 5, 6}, 4, 1, 1))
	b := mustOpen(t, batches(t, "l_out-0", 2, []int32{1, 2, 9, 4, 5}, 1, 2, 2))
	var got []string
	d, err := Compare(context.Background(), a, b, DiffOptions{}, func(r *RowDiff) error {
		got = append(got, fmt.Sprintf("%d %g", r.Token, r.Max))
		return nil
	})
	check(t, err)
	if text := strings.Join(got, ", "); text != "0 0, 1 1, 3 3, 4 4" || d.Tokens != 4 || d.OtherID != 1 ||
		d.OnlyA != 1 || d.OnlyB != 0 {
		t.Errorf("rows %s, %+v", got, d)
	}
	for _, by := range []DiffBy{DiffByLayer, DiffByTensor, DiffByToken} {
		groups, err := NewDiffGroups(a, by)
		check(t, err)
		d, err := Compare(context.Background(), a, b, DiffOptions{}, groups.Add)
		check(t, err)
		lines := groups.Lines()
		if want := map[DiffBy]int{DiffByLayer: 1, DiffByTensor: 1, DiffByToken: 4}[by]; len(lines) != want {
			t.Errorf("%d lines by %s, want %d", len(lines), by, want)
		}
		var out bytes.Buffer
		check(t, WriteDiff(&out, d, by, lines))
		for _, want := range []string{"4 in common, 1 places with another token, 1 in a only", "all", "max |a-b|"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("by %s: %q is not in\n%s", by, want, out.String())
			}
		}
	}
}

func TestDiffApart(t *testing.T) {
	a := mustOpen(t, batches(t, "l_out-0", 1, []int32{1, 2}, 2))
	b := mustOpen(t, batches(t, "l_out-0", 1, []int32{3, 4}, 2))
	other := mustOpen(t, batches(t, "ffn_out-0", 1, []int32{1, 2}, 2))
	all := func(*RowDiff) error { return nil }
	if _, err := Compare(context.Background(), a, b, DiffOptions{}, all); !errors.Is(err, ErrNoTokens) {
		t.Errorf("other tokens: %v", err)
	}
	d, err := Compare(context.Background(), a, other, DiffOptions{}, all)
	if err != nil || d.Tensors != 0 || len(d.NamesOnlyA) != 1 || len(d.NamesOnlyB) != 1 {
		t.Errorf("other names: %+v, %v", d, err)
	}
	if text, err := json.Marshal(d.Total); err != nil || string(text) != `{"rows":0}` {
		t.Errorf("figures of no rows: %s, %v", text, err)
	}
	var text strings.Builder
	if err := WriteDiff(&text, d, DiffByTensor, nil); err != nil || !strings.Contains(text.String(), " 0       -") {
		t.Errorf("figures of no rows: %v\n%s", err, text.String())
	}
	if _, err := Compare(context.Background(), a, b, DiffOptions{Filter: Filter{Tensor: "["}}, all); err == nil {
		t.Error("a broken glob is taken")
	}
	stopped, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Compare(stopped, a, a, DiffOptions{}, all); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Rows of one name are compared only where they are of one node: the same op, occurrence and shape.
func TestDiffOtherNode(t *testing.T) {
	ids := []int32{1, 2}
	node := func(name, node, op string, occurrence int) stream.Packet {
		return stream.Packet{Name: name, Node: node, Op: op, Occurrence: occurrence}
	}
	turned := node("Qcur-0", "Qcur-0", "MUL_MAT", 1)
	turned.RowDim = 2
	later := node("node_24", "node_24", "ADD", 1)
	later.Layer = 1
	for name, row := range map[string]struct {
		a, b     stream.Packet
		compared bool
	}{
		"the same":             {node("Qcur-0", "Qcur-0", "MUL_MAT", 1), node("Qcur-0", "Qcur-0", "MUL_MAT", 1), true},
		"named by a selection": {node("Qcur-0", "Qcur-0", "ROPE", 1), node("Qcur-0#2", "Qcur-0", "ROPE", 1), true},
		"another op":           {node("Qcur-0", "Qcur-0", "MUL_MAT", 1), node("Qcur-0", "Qcur-0", "ROPE", 1), false},
		"another occurrence": {node("norm-0", "norm-0", "RMS_NORM", 1), node("norm-0", "norm-0", "RMS_NORM", 2),
			false},
		"another shape": {node("Qcur-0", "Qcur-0", "MUL_MAT", 1), turned, false},
		"another layer": {node("node_24", "node_24", "ADD", 1), later, false},
		"numbered by the graph": {node("kqv_out-0", "node_24", "MUL_MAT", 1),
			node("kqv_out-0", "node_29", "MUL_MAT", 1), true},
	} {
		a, b := mustOpen(t, nodeBatches(t, row.a, 1, ids, 2)), mustOpen(t, nodeBatches(t, row.b, 1, ids, 2))
		d, err := Compare(context.Background(), a, b, DiffOptions{}, func(*RowDiff) error { return nil })
		check(t, err)
		skipped := 0
		for _, s := range d.Skipped {
			skipped += s.Rows
		}
		if want := len(ids); row.compared && (d.Total.Rows != int64(want) || skipped != 0) || !row.compared &&
			(d.Total.Rows != 0 || skipped != want) {
			t.Errorf("%s: %d rows compared, %d refused: %+v", name, d.Total.Rows, skipped, d.Skipped)
		}
	}
}
