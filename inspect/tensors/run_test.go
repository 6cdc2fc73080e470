package tensors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// TestDamagedManifest: a run whose manifest is not what was sealed is called sealed by no reader.
func TestDamagedManifest(t *testing.T) {
	path := sealed(t)
	name := filepath.Join(path, rundir.ManifestName)
	text, err := os.ReadFile(name)
	check(t, err)
	for _, damaged := range []string{strings.Replace(string(text), `"sealed": "2`, `"sealed": "1`, 1), "{"} {
		check(t, os.WriteFile(name, []byte(damaged), 0o600))
		r, err := Open(path)
		check(t, err)
		s, err := Summarize(r, Filter{})
		check(t, errors.Join(err, r.Close()))
		v, err := Verify(path)
		check(t, err)
		var out bytes.Buffer
		check(t, s.WriteText(&out))
		if s.Sealed || v.Sealed || len(s.Damage) != 1 || v.Findings[0].What != s.Damage[0] ||
			!strings.Contains(out.String(), "NOT SEALED: manifest.json is damaged") {
			t.Errorf("%v, %+v, %+v:\n%s", s.Sealed, s.Damage, v, out.String())
		}
	}
}

func TestSummarize(t *testing.T) {
	for _, id := range []codec.ID{codec.None, codec.LZ4, codec.Zstd, codec.ZstdShuffle} {
		f := fixture{codec: id}
		s, err := Summarize(f.open(t), Filter{})
		check(t, err)
		// Per micro-batch: 2 l_out, Qcur, kq, 2 pieces of logits, state, sample, quantised.
		if s.Kind != KindRun || !s.Sealed || s.Packets != 27 || s.Tokens != 5 || s.TokensByPhase["prefill"] != 3 ||
			s.TokensByPhase["decode"] != 2 || s.Requests != 2 ||
			s.Lost || s.Losses == nil || len(s.Losses) != 0 || s.Model != "fixture" || s.PacketsPerToken != 27.0/5 {
			t.Errorf("%v: %+v", id, s)
		}
		// Elements by token 4+4+4+6, by micro-batch 6+3+2, quantised bytes 34.
		if want := int64(2*(5*(4+4+4+6)+3*(6+3+2)) + 3*34); s.BytesRaw != want {
			t.Errorf("%v: %d raw bytes, not %d", id, s.BytesRaw, want)
		}
		if want := int64(4*(5*(4+4+4+6)+3*(6+3+2)) + 3*34); s.BytesSource != want {
			t.Errorf("%v: %d bytes from tensors, not %d", id, s.BytesSource, want)
		}
		if id == codec.None && (s.BytesStored != s.BytesRaw || s.Ratio != 1) {
			t.Errorf("uncompressed: %d stored, ratio %v", s.BytesStored, s.Ratio)
		}
		if len(s.Layers) != 3 || s.Layers[0].Layer != -1 || s.Layers[1].Layer != 0 || s.Layers[2].Layer != 1 {
			t.Fatalf("layers are %+v", s.Layers)
		}
		var names []string
		for _, x := range s.Layers[1].Tensors {
			names = append(names, fmt.Sprintf("%s %s %d tokens", x.Name, shapeText(x.Shape), x.Tokens))
		}
		if got := strings.Join(names,
			", "); got != "l_out-0 4x* 5 tokens, Qcur-0#2 2x2x* 5 tokens, kq-0 2x*x3 5 tokens" {
			t.Errorf("layer 0 holds %s", got)
		}
		if c := s.Layers[1].Components; len(c) != 2 || c[0].Tensors != 1 || c[1].Tensors != 2 || c[1].Packets != 6 {
			t.Errorf("components of layer 0: %+v", c)
		}
		if x := s.Layers[0].Tensors[0]; x.Tokens != 3 || x.Packets != 6 {
			t.Errorf("the logits in pieces: %+v", x)
		}
	}
}

// TestSummaryJSONKeys holds the keys that scripts rely on.
func TestSummaryJSONKeys(t *testing.T) {
	f := fixture{}
	s, err := Summarize(f.open(t), Filter{})
	check(t, err)
	data, err := json.Marshal(s)
	check(t, err)
	var got map[string]any
	check(t, json.Unmarshal(data, &got))
	for _, key := range []string{"packets", "bytes_raw", "bytes_stored", "ratio", "tokens", "losses", "layers", "lossy",
		"sealed"} {
		if _, ok := got[key]; !ok {
			t.Errorf("no key %s in %s", key, data)
		}
	}
	if _, isList := got["losses"].([]any); !isList {
		t.Errorf("losses is no list: %s", data)
	}
}

func TestFilters(t *testing.T) {
	f := fixture{}
	r := f.open(t)
	one := 1
	for _, c := range []struct {
		filter Filter
		want   int64
	}{
		{Filter{Layer: &one}, 12}, {Filter{Tensor: "l_out"}, 6}, {Filter{Tensor: "l_out-1"}, 3},
		{Filter{Layer: &one, Tensor: "*out"}, 6},
		{Filter{Tensor: "Qcur-0#2"}, 3}, {Filter{Tensor: "nothing"}, 0},
	} {
		s, err := Summarize(r, c.filter)
		if err != nil || s.Packets != c.want {
			t.Errorf("%+v: %d packets, %v; not %d", c.filter, s.Packets, err, c.want)
		}
	}
	if _, err := Summarize(r, Filter{Tensor: "[x"}); err == nil {
		t.Error("an unclosed glob was read")
	}
}

// sliceText is a slice's whole JSON, decoded.
func sliceJSON(t *testing.T, r *Run, o SliceOptions) (shape []int64, rows []int64, flat []float64) {
	t.Helper()
	s, err := NewSlice(r, o)
	check(t, err)
	var b bytes.Buffer
	check(t, s.WriteJSON(&b))
	var got struct {
		Shape  []int64 `json:"shape"`
		Rows   []int64 `json:"rows"`
		Values any     `json:"values"`
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, b.String())
	}
	return got.Shape, got.Rows, flatten(nil, got.Values)
}

func flatten(dst []float64, v any) []float64 {
	switch v := v.(type) {
	case float64:
		return append(dst, v)
	case []any:
		for _, x := range v {
			dst = flatten(dst, x)
		}
	}
	return dst
}

// TestSlices compares every element with the value that the fixture gave it.
func TestSlices(t *testing.T) {
	f := fixture{codec: codec.LZ4}
	r := f.open(t)
	zero, one := 0, 1
	for _, c := range []struct {
		name   string
		o      SliceOptions
		tensor int
		shape  string
		rows   string
		add    int64
	}{
		{"all tokens", SliceOptions{Tensor: "l_out-1"}, residual, "[5 4]", "[0 1 2 3 4]", 4},
		{"by layer", SliceOptions{Tensor: "l_out", Layer: &one}, residual, "[5 4]", "[0 1 2 3 4]", 4},
		{"one token", SliceOptions{Tensor: "l_out", Layer: &zero, First: 1, End: 2}, residual, "[1 4]", "[1]", 0},
		{"over the micro-batches", SliceOptions{Tensor: "l_out-0", First: 2, End: 4}, residual, "[2 4]", "[2 3]", 0},
		{"from a token on", SliceOptions{Tensor: "l_out-0", First: 3, End: -1}, residual, "[2 4]", "[3 4]", 0},
		{"heads", SliceOptions{Tensor: "Qcur#2", Layer: &zero}, heads, "[5 2 2]", "[0 1 2 3 4]", 0},
		{"rows in the middle", SliceOptions{Tensor: "kq-0"}, scores, "[5 3 2]", "[0 1 2 3 4]", 0},
		{"rows in the middle, cut", SliceOptions{Tensor: "kq-0", First: 1, End: 4}, scores, "[3 3 2]", "[1 2 3]", 0},
		{"pieces", SliceOptions{Tensor: "result_output"}, logits, "[3 6]", "[2 3 4]", 0},
		{"one row of pieces", SliceOptions{Tensor: "result_output", First: 3, End: 4}, logits, "[1 6]", "[3]", 0},
	} {
		shape, rows, flat := sliceJSON(t, r, c.o)
		if fmt.Sprint(shape) != c.shape || fmt.Sprint(rows) != c.rows {
			t.Errorf("%s: shape %v, rows %v", c.name, shape, rows)
			continue
		}
		per := len(flat) / len(rows)
		for i, v := range flat {
			if want := value(c.tensor, rows[i/per], int64(i%per)+c.add); v != float64(want) {
				t.Errorf("%s: row %d, element %d is %v, not %v", c.name, rows[i/per], i%per, v, want)
				break
			}
		}
	}
}

func TestSlicesWithoutTokenRows(t *testing.T) {
	f := fixture{}
	r := f.open(t)
	for _, c := range []struct{ name, shape, rows string }{
		{"state-1", "[3 3]", "[2 3 4]"}, {"ffn_out-1", "[3 2]", ""}, {"w_q-1", "[3 34]", ""},
	} {
		shape, rows, _ := sliceJSON(t, r, SliceOptions{Tensor: c.name})
		if fmt.Sprint(shape) != c.shape || c.rows != "" && fmt.Sprint(rows) != c.rows {
			t.Errorf("%s: shape %v, rows %v", c.name, shape, rows)
		}
	}
	shape, rows, flat := sliceJSON(t, r, SliceOptions{Tensor: "state-1", First: 1, End: 2})
	if fmt.Sprint(shape, rows) != "[1 3] [2]" || flat[2] != float64(value(state, 0, 2)) {
		t.Errorf("the execution of token 1: %v %v %v", shape, rows, flat)
	}
}

func TestSliceErrors(t *testing.T) {
	f := fixture{}
	r := f.open(t)
	five := 5
	for _, c := range []struct {
		o    SliceOptions
		want string
	}{
		{SliceOptions{Tensor: "nope"},
			`no tensor "nope": there are Qcur#2, ffn_out, kq, l_out, result_output, state, w_q`},
		{SliceOptions{Tensor: "l_out", Layer: &five}, `nothing is captured in layer 5: 'llamatap inspect`},
		{SliceOptions{Tensor: "result_output", First: 0, End: 2},
			"tensor result_output has no row for token 0 to 1: it has tokens from 2 to 4"},
		{SliceOptions{Tensor: "l_out-0", First: 9, End: 10},
			"tensor l_out-0 has no row for token 9: it has tokens from 0 to 4"},
	} {
		_, err := NewSlice(r, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

func TestSliceText(t *testing.T) {
	f := fixture{}
	r := f.open(t)
	s, err := NewSlice(r, SliceOptions{Tensor: "l_out-0", First: 2, End: 4})
	check(t, err)
	var b strings.Builder
	check(t, s.WriteText(&b))
	want := "l_out-0  f16  (2, 4)  tokens 2-3\n[\n [16, 16.25, 16.5, 16.75]\n [24, 24.25, 24.5, 24.75]\n]\n"
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

func TestMeasureTensors(t *testing.T) {
	f := fixture{codec: codec.Zstd}
	r := f.open(t)
	s, err := Summarize(r, Filter{})
	check(t, err)
	check(t, MeasureTensors(context.Background(), r, Filter{}, s, nil))
	var want Accumulator
	for token := range int64(5) {
		for e := range int64(4) {
			want.Add([]float32{value(residual, token, e+4)})
		}
	}
	for _, x := range s.Layers[2].Tensors {
		switch {
		case x.Name == "w_q-1":
			if x.Stats != nil {
				t.Errorf("statistics of quantised bytes: %+v", x.Stats)
			}
		case x.Name == "l_out-1":
			got := *x.Stats.Moments
			w := *want.Stats().Moments
			if x.Stats.Elements != 20 || math.Abs(got.Mean-w.Mean) > 1e-12 || math.Abs(got.Std-w.Std) > 1e-12 ||
				got.Min != w.Min || got.Max != w.Max {
				t.Errorf("l_out-1: %+v, not %+v", got, w)
			}
		}
	}
}

func TestMeasureByTokenAttributesExactly(t *testing.T) {
	f := fixture{}
	r := f.open(t)
	seen := 0
	err := EachMeasure(context.Background(), r, Filter{Tensor: "kq-0"}, ByToken, func(m *Measure) error {
		token := int64(seen)
		if *m.TokenIndex != token || m.TokenText == nil || *m.TokenText != string(rune('a'+token)) || m.Elements != 6 ||
			m.Min != float64(value(scores, token, 0)) || m.Max != float64(value(scores, token, 5)) {
			t.Errorf("line %d: %+v %+v", seen, m, m.Moments)
		}
		seen++
		return nil
	})
	check(t, err)
	if seen != 5 {
		t.Errorf("%d lines, not one per token", seen)
	}
	packets := 0
	check(t, EachMeasure(context.Background(), r, Filter{}, ByPacket, func(m *Measure) error {
		if m.Packet != packets || (m.Error != "") != (m.Name == "w_q-1") {
			t.Errorf("packet %d: %+v", packets, m)
		}
		packets++
		return nil
	}))
	if packets != 27 {
		t.Errorf("%d packets", packets)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := EachMeasure(ctx, r, Filter{}, ByPacket, func(*Measure) error { return nil }); err == nil {
		t.Error("a cancelled measure ended without error")
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "no")); err == nil ||
		!strings.Contains(err.Error(), filepath.Join(dir, "no")) {
		t.Errorf("absent: %v", err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), rundir.StreamName) {
		t.Errorf("empty folder: %v", err)
	}
	f := fixture{}
	run := f.build(t)
	parent := filepath.Dir(filepath.Dir(run))
	if _, err := Open(parent); err == nil || !strings.Contains(err.Error(),
		"in 1 run below it: give one of them, such as the newest, "+run) {
		t.Errorf("folder of runs: %v", err)
	}
	check(t, os.WriteFile(filepath.Join(run, "metadata.json"), []byte("{"), 0o600))
	if _, err := Open(run); err == nil || !strings.Contains(err.Error(), "metadata.json") {
		t.Errorf("broken metadata: %v", err)
	}
}

// TestOpenKilledEarly opens runs whose process was killed before the index had its header.
func TestOpenKilledEarly(t *testing.T) {
	for _, names := range [][]string{{rundir.StreamName}, {rundir.StreamName, rundir.StreamName + stream.IndexSuffix}} {
		dir := t.TempDir()
		for _, name := range names {
			check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		}
		_, err := Open(dir)
		if !errors.Is(err, ErrNotARun) || !strings.Contains(err.Error(), "killed") ||
			!strings.Contains(err.Error(), "llamatap verify --repair "+dir) {
			t.Errorf("with %q: %v", names, err)
		}
	}
}

// TestTornStreamIsReadAndSaidToBe cuts a run's stream and index as a crash may.
func TestTornStreamIsReadAndSaidToBe(t *testing.T) {
	f := fixture{}
	dir := f.build(t)
	index := filepath.Join(dir, rundir.StreamName+stream.IndexSuffix)
	info, err := os.Stat(index)
	check(t, err)
	check(t, os.Truncate(index, info.Size()*2/3))
	s, err := Summarize(f.open(t), Filter{})
	check(t, err)
	if s.Packets == 0 || s.Packets >= 27 || len(s.Damage) == 0 {
		t.Errorf("%d packets, damage %q", s.Packets, s.Damage)
	}
	v, err := Verify(dir)
	check(t, err)
	if v.OK {
		t.Error("a torn index verifies")
	}
	checkOnce(t, v)
}

// checkOnce demands that no finding is printed twice, also not as a part of another one.
func checkOnce(t *testing.T, v *Verification) {
	t.Helper()
	for i, a := range v.Findings {
		for j, b := range v.Findings {
			if i != j && strings.Contains(a.What, b.What) {
				t.Errorf("%q is reported again: %q", b.What, a.What)
			}
		}
	}
}

// TestForeignStream reads STRAP-LLM's test vectors without index.
func TestForeignStream(t *testing.T) {
	vectors := "\x00\x06\x00\x00\x00\x06layer1\x00\x3c\x00\xc0\x00\x38" + "\x00\x00\x00\x00\x00\x04\x00\x00\xff\x7b" +
		"\x00\x0f\x00\x00\x00\x02blk.0.attn_norm\x55\x35"
	name := filepath.Join(t.TempDir(), "gen.stream")
	check(t, os.WriteFile(name, []byte(vectors), 0o600))
	check(t, os.WriteFile(strings.TrimSuffix(name, ".stream")+"_tokens.json",
		[]byte(`{"total_tokens": 2, "tokens": []}`), 0o600))
	r, err := Open(name)
	check(t, err)
	defer r.Close()
	s, err := Summarize(r, Filter{})
	check(t, err)
	if r.Kind != KindForeign || s.Packets != 3 || s.BytesStored != 12 || s.Assumed == "" || s.Tokens != 2 ||
		s.PacketsPerToken != 1.5 {
		t.Errorf("%+v", s)
	}
	if s.BytesSource != 0 {
		t.Errorf("%d bytes are said to come from tensors, and nothing says so", s.BytesSource)
	}
	_, _, flat := sliceJSON(t, r, SliceOptions{Tensor: "layer1"})
	if fmt.Sprint(flat) != "[1 -2 0.5]" {
		t.Errorf("layer1 holds %v", flat)
	}
	if _, rows, _ := sliceJSON(t, r, SliceOptions{Tensor: "blk.0.attn_norm"}); fmt.Sprint(rows) != "[2]" {
		t.Errorf("the third packet has the number %v", rows)
	}
	lines := 0
	check(t, EachMeasure(context.Background(), r, Filter{}, ByPacket, func(m *Measure) error {
		lines++
		if m.TokenIndex != nil {
			t.Errorf("packet %d is given to token %d, and nothing says so", m.Packet, *m.TokenIndex)
		}
		return nil
	}))
	if lines != 3 {
		t.Errorf("%d lines", lines)
	}
}

// TestLossy: values that are stored with an error make a run lossy, and it says by what and within which bound.
func TestLossy(t *testing.T) {
	for _, row := range []struct {
		o    stream.Options
		want string
	}{
		{stream.Options{DType: codec.F32}, "[]"}, {stream.Options{DType: codec.F32, Codec: codec.LZ4}, "[]"},
		{stream.Options{DType: codec.F16}, "[{dtype f16 0 }]"},
		{stream.Options{Codec: codec.Q}, "[{codec q 0.002 nrmse}]"},
	} {
		name := filepath.Join(t.TempDir(), "a.stream")
		w, err := stream.Create(name, row.o)
		check(t, err)
		check(t, w.AppendExecution(&stream.Execution{Exec: 1, Rows: []label.Row{{Seqs: []int32{0}}}}))
		p := stream.Packet{Name: "l_out-0", Node: "l_out-0", Exec: 1, Rows: label.RowsTokens, RowDim: 1,
			NE: [4]int64{256, 1, 1, 1}, TokenCount: 1}
		values := make([]float32, 256)
		for i := range values {
			values[i] = float32(math.Sin(float64(i)))
		}
		check(t, w.Append(&p, floats(values...), nil))
		check(t, w.Close())
		r := mustOpen(t, name)
		r.Metadata = &rundir.Metadata{Config: map[string]any{"settings": map[string]any{
			"error": map[string]any{"value": 0.002}, "error_metric": map[string]any{"value": "nrmse"}}}}
		s, err := Summarize(r, Filter{})
		check(t, err)
		if fmt.Sprint(s.Altered) != row.want || s.Lossy != (row.want != "[]") || s.Lost {
			t.Errorf("%+v: lossy %v, lost %v, %v", row.o, s.Lossy, s.Lost, s.Altered)
		}
	}
}

// TestForeignRows: without an index the packet of a prompt holds the rows of several tokens, and those of generated
// tokens one.
func TestForeignRows(t *testing.T) {
	for _, row := range []struct {
		lengths []int
		want    string
		axis    string
	}{
		{[]int{6, 2, 2}, "(5, 2)", "rows 0-4"}, {[]int{6, 4}, "(5, 2)", "rows 0-4"},
		{[]int{2, 2}, "(2, 2)", "packets 0-1"}, {[]int{3, 2}, "(5, 1)", "rows 0-4"},
	} {
		var file, all []byte
		for _, n := range row.lengths {
			file = append(file, 0, 5, 0, 0, 0, byte(2*n))
			file = append(file, "layer"...)
			for range n {
				file = append(file, byte(len(all)), 0x3c)
				all = append(all, byte(len(all)), 0x3c)
			}
		}
		name := filepath.Join(t.TempDir(), "gen.stream")
		check(t, os.WriteFile(name, file, 0o600))
		r, err := Open(name)
		check(t, err)
		defer r.Close()
		s, err := NewSlice(r, SliceOptions{Tensor: "layer"})
		if err != nil {
			t.Errorf("%v: %v", row.lengths, err)
			continue
		}
		var text, npy bytes.Buffer
		check(t, errors.Join(s.WriteText(&text), s.WriteNPY(&npy)))
		if !strings.Contains(text.String(), row.want) || !strings.Contains(text.String(), row.axis) ||
			!bytes.HasSuffix(npy.Bytes(), all) {
			t.Errorf("%v: %s", row.lengths, text.String())
		}
	}
}

// TestSliceKinds: the rows of a tensor may be tokens in one micro-batch and none in another, as a recurrent state's.
func TestSliceKinds(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.stream")
	w, err := stream.Create(name, stream.Options{DType: codec.F32})
	check(t, err)
	at := int64(0)
	for exec, n := range []int64{3, 2} { // tokens of one sequence, then one of each of two sequences
		p := stream.Packet{Name: "state", Node: "state", Exec: uint64(exec + 7), TokenFirst: at, TokenCount: int32(n),
			NE: [4]int64{2, 3, 1, 1}}
		if n == 2 {
			p.Rows, p.RowDim, p.NE[2] = label.RowsTokens, 2, n
		}
		e := stream.Execution{Exec: p.Exec, Phase: label.PhasePrefill, TokenFirst: at}
		for range n {
			e.Rows = append(e.Rows, label.Row{Index: at, Pos: int32(at), Seqs: []int32{0}, Phase: e.Phase})
			at++
		}
		check(t, w.AppendExecution(&e))
		check(t, w.Append(&p, floats(make([]float32, elements(p.NE))...), nil))
	}
	check(t, w.Close())
	for _, c := range []struct {
		first, end int64
		want       string
	}{
		{0, 0, "rows differ, one per execution and one per token: choose tokens of one kind with --token"},
		{1, 2, "execution [1 3 2] [7]"},
		{3, 5, "token [2 3 2] [3 4]"},
		{4, -1, "token [1 3 2] [4]"},
	} {
		s, err := NewSlice(mustOpen(t, name), SliceOptions{Tensor: "state", First: c.first, End: c.end})
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprintf("%s %v %v", s.Axis, s.Shape, s.labels())
		}
		if !strings.HasSuffix(got, c.want) {
			t.Errorf("%d:%d: %s, not %s", c.first, c.end, got, c.want)
		}
	}
}

// TestSliceUnitDimensions: rows whose shapes differ by dimensions of one are rows of one array. The first release
// stored the written rows of caches so, where a micro-batch had one token.
func TestSliceUnitDimensions(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.stream")
	w, err := stream.Create(name, stream.Options{DType: codec.F32})
	check(t, err)
	at := int64(0)
	for exec, p := range []stream.Packet{{RowDim: 1, NE: [4]int64{2, 3, 1, 1}}, {RowDim: 2, NE: [4]int64{2, 1, 1, 1}}} {
		n := p.NE[p.RowDim]
		p.Name, p.Node, p.Exec, p.Rows, p.TokenFirst, p.TokenCount = "cache", "cache", uint64(exec), label.RowsTokens,
			at, int32(n)
		e := stream.Execution{Exec: p.Exec, Phase: label.PhasePrefill, TokenFirst: at}
		for range n {
			e.Rows = append(e.Rows, label.Row{Index: at, Pos: int32(at), Seqs: []int32{0}, Phase: e.Phase})
			at++
		}
		check(t, w.AppendExecution(&e))
		check(t, w.Append(&p, floats(make([]float32, 2*n)...), nil))
	}
	check(t, w.Close())
	s, err := NewSlice(mustOpen(t, name), SliceOptions{Tensor: "cache"})
	if err != nil || fmt.Sprint(s.Shape) != "[4 2]" {
		t.Errorf("%v, %v", s, err)
	}
}

func TestVerify(t *testing.T) {
	find := func(v *Verification, kind FindingKind, text string) bool {
		for _, f := range v.Findings {
			if f.Kind == kind && strings.Contains(f.What, text) {
				return true
			}
		}
		return false
	}
	corrupt := func(name string, at int64) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			data, err := os.ReadFile(path)
			check(t, err)
			if at < 0 {
				at += int64(len(data))
			}
			data[at] ^= 0x10
			check(t, os.WriteFile(path, data, 0o600))
		}
	}
	tokens := func(change func(list []any) []any) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			rewrite(t, filepath.Join(dir, rundir.TokensName), func(v map[string]any) {
				v["tokens"] = change(v["tokens"].([]any))
			})
		}
	}
	for _, c := range []struct {
		name   string
		losses []stream.Loss
		change func(*testing.T, string)
		kind   FindingKind
		text   string
	}{
		{"whole", nil, func(*testing.T, string) {}, "", ""},
		{"loss", []stream.Loss{{Cause: "pool full", Packets: 3, Bytes: 99, FirstExec: 2, LastExec: 3}},
			func(*testing.T, string) {}, Lost, "3 packets (99 bytes) were not recorded: pool full"},
		{"unsealed", nil, func(t *testing.T, dir string) { check(t, os.Remove(filepath.Join(dir, "manifest.json"))) },
			Unsealed, "there is no manifest.json"},
		{"payload", nil, corrupt(rundir.StreamName, -3), Damage, ""},
		{"manifest sees it", nil, corrupt(rundir.StreamName, -3), Damage, rundir.StreamName +
			" has another size or SHA-256"},
		{"packet header", nil, corrupt(rundir.StreamName, 1), Damage, ""},
		{"index", nil, corrupt(rundir.StreamName+".idx", 60), Damage, ""},
		{"index record", nil, corrupt(rundir.StreamName+".idx", 400), Damage, "corrupt"},
		{"no index", nil, func(t *testing.T, dir string) {
			check(t,
				os.Remove(filepath.Join(dir, rundir.StreamName+".idx")))
		}, Damage, "index"},
		{"missing file", nil, func(t *testing.T, dir string) {
			check(t,
				os.Remove(filepath.Join(dir, "metadata.json")))
		}, Damage, "metadata.json is in the manifest"},
		{"stream cut short", nil, func(t *testing.T,
			dir string) {
			check(t, os.Truncate(filepath.Join(dir, rundir.StreamName), 100))
		}, Damage, ""},
		{"no stream", nil, func(t *testing.T, dir string) {
			check(t,
				os.Remove(filepath.Join(dir, rundir.StreamName)))
		}, Damage, rundir.StreamName + " is in the manifest"},
		{"token missing", nil, tokens(func(l []any) []any { return l[:4] }), Damage,
			"it lacks 1 token of the index, such as 4"},
		{"token count", nil, tokens(func(l []any) []any { return l[:4] }), Damage,
			"total_tokens is 5, and the list has 4 tokens"},
		{"token twice", nil, tokens(func(l []any) []any { l[4] = l[3]; return l }), Damage,
			"token 3 is not in the index, or stands twice"},
		{"token id", nil, tokens(func(l []any) []any { l[1].(map[string]any)["token_id"] = 7; return l }), Damage,
			"token 1 has id 7, and the index says 101"},
		{"token position", nil, tokens(func(l []any) []any { l[1].(map[string]any)["pos"] = 7; return l }), Damage,
			"token 1 has position 7, and the index says 1"},
		{"token sequence", nil, tokens(func(l []any) []any { l[1].(map[string]any)["seq_id"] = 7; return l }), Damage,
			"token 1 has sequence 7, and the index says [0]"},
		{"token phase", nil, tokens(func(l []any) []any { l[1].(map[string]any)["phase"] = "decode"; return l }),
			Damage, "token 1 has phase decode, and the index says prefill"},
		{"token request", nil, tokens(func(l []any) []any { l[1].(map[string]any)["request"] = 7; return l }), Damage,
			"token 1 has request 7, and the index says 0"},
		{"later file", nil, func(t *testing.T, dir string) {
			check(t,
				os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600))
		}, Note, "notes.txt is not in the manifest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture{losses: c.losses}
			dir := f.build(t)
			c.change(t, dir)
			v, err := Verify(dir)
			check(t, err)
			if v.OK != (c.kind == "" || c.kind == Note) {
				t.Errorf("ok is %v: %+v", v.OK, v.Findings)
			}
			checkOnce(t, v)
			if c.kind != "" && !find(v, c.kind, c.text) {
				t.Errorf("not found: %s %q in %+v", c.kind, c.text, v.Findings)
			}
			if c.kind == "" && (len(v.Findings) > 0 || v.Packets != 27 || v.Tokens != 5 || v.Files != 4) {
				t.Errorf("%+v", v)
			}
		})
	}
	if _, err := Verify(t.TempDir()); err == nil {
		t.Error("an empty folder was verified")
	}
}
