package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// chosenRows lists what a selection chooses: per tensor its rows' tokens, -1 for what is no single token's.
func chosenRows(t *testing.T, path string, s Selection) (map[string][]int64, error) {
	t.Helper()
	run, err := tensors.Open(path)
	check(t, err)
	defer run.Close()
	from := source{run: run, ctx: context.Background(), choose: &s}
	got := map[string][]int64{}
	err = from.eachPiece(func(p *piece) error {
		for i := range p.rows {
			got[p.Name] = append(got[p.Name], p.rows[i].index)
		}
		return nil
	})
	if err == nil && len(got) == 0 {
		err = from.emptySelectionError()
	}
	return got, err
}

func TestSelection(t *testing.T) {
	f := fixture{}
	path := f.build(t)
	layer0, _ := ggmlhooks.ParseLayerSet("0")
	zero, one := uint32(0), uint32(1)
	for name, c := range map[string]struct {
		s    Selection
		want map[string][]int64
	}{
		"tensor, both contexts": {Selection{Tensors: []string{"l_out-0"}},
			map[string][]int64{"l_out-0": {0, 1, 2, 3, 4, 5, 6}}},
		"without suffix": {Selection{Tensors: []string{"l_out"}, Ctx: &zero},
			map[string][]int64{"l_out-0": {0, 1, 2, 3, 5, 6}, "l_out-1": {0, 1, 2, 3, 5, 6}}},
		"other context": {Selection{Ctx: &one}, map[string][]int64{"l_out-0": {4}}},
		"layer and component": {Selection{Layers: layer0, Components: []label.Component{label.ComponentResidual}},
			map[string][]int64{"l_out-0": {0, 1, 2, 3, 4, 5, 6}}},
		"no layer": {Selection{NoLayer: true, Tokens: []Tokens{{2, 4}}},
			map[string][]int64{"result_output": {2, 3}, "inp_tokens": {2, 3}}},
		"sequence in a batch": {Selection{Tensors: []string{"kq"}, Seqs: []int32{1}},
			map[string][]int64{"kq-0": {2, 6}}},
		"phase": {Selection{Tensors: []string{"l_out-1"}, Phases: []label.Phase{label.PhaseDecode}},
			map[string][]int64{"l_out-1": {3, 5, 6}}},
		"tokens": {Selection{Tensors: []string{"l_out-1"}, Tokens: []Tokens{{1, 2}, {5, -1}}},
			map[string][]int64{"l_out-1": {1, 5, 6}}},
		"no rows": {Selection{Tensors: []string{"state", "ffn_*"}, Tokens: []Tokens{{1, 4}}},
			map[string][]int64{"state-1": {-1, 3}, "ffn_out-1": {-1, 3}}},
	} {
		got, err := chosenRows(t, path, c.s)
		if err != nil || len(got) != len(c.want) {
			t.Errorf("%s: %v %v", name, got, err)
			continue
		}
		for tensor, rows := range c.want {
			if !slices.Equal(got[tensor], rows) {
				t.Errorf("%s: of %s %v, want %v", name, tensor, got[tensor], rows)
			}
		}
	}
	want := "nothing is chosen; there are layers none,0-1, components attention, input, mlp, output, residual, ssm, " +
		"phases decode, prefill, " +
		"contexts 0-1, sequences 0-1, tokens 0 to 6, tensors Qcur#2, cache (view), ffn_out, grows, inp_tokens, kq, " +
		"l_out, result_output, state, w_q"
	if _, err := chosenRows(t, path, Selection{Seqs: []int32{7}}); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	want = "no tensor is named nope; there are Qcur#2, cache (view), ffn_out, grows, inp_tokens, kq, l_out, " +
		"result_output, state, w_q"
	if _, err := chosenRows(t, path, Selection{Tensors: []string{"l_out", "nope"}}); err == nil ||
		!strings.HasSuffix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if out, err := try(t, path, Options{Form: NPY, Select: Selection{Tensors: []string{"l_out", "nope"}}}); err == nil {
		t.Errorf("exported without nope: %v", out)
	}
}

// TestPlaces: where exports go, what is replaced, and what is remembered of them.
func TestPlaces(t *testing.T) {
	f := fixture{}
	path := f.build(t)
	for _, form := range []Form{NPY, Parquet} {
		if _, err := try(t, path, Options{Form: form}); err != nil {
			t.Fatal(err)
		}
		if _, err := try(t, path, Options{Form: form}); !errors.Is(err, ErrExists) {
			t.Errorf("%s: written twice: %v", form, err)
		}
		r, err := try(t, path, Options{Form: form, Force: true, Version: "1", Command: []string{"x"},
			Select: Selection{Tensors: []string{"l_out-1"}}})
		if err != nil || r.Tensors != 1 || r.Rows != 6 {
			t.Fatalf("%s: %+v %v", form, r, err)
		}
	}
	data, err := os.ReadFile(filepath.Join(path, rundir.DerivedName))
	check(t, err)
	var derived Derived
	check(t, json.Unmarshal(data, &derived))
	if len(derived.Files) != 2 || derived.Files[0].Path != "derived/npy" ||
		derived.Files[1].Path != "derived/activations.parquet" ||
		derived.Files[1].Llamatap != "1" || derived.Files[1].Command[0] != "x" ||
		len(derived.Files[1].Source.Manifest) != 64 {
		t.Errorf("%+v", derived)
	}
	if v, err := tensors.Verify(path); err != nil || !v.OK {
		t.Errorf("%+v %v: a run of which something was derived is whole", v, err)
	}
	leftovers(t, filepath.Join(path, "derived"), "npy", "activations.parquet")
}

// leftovers fails if a folder holds something else than names.
func leftovers(t *testing.T, folder string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains(names, entry.Name()) {
			t.Errorf("%s is left in %s", entry.Name(), folder)
		}
	}
}

// TestCutOff: an export that is interrupted anywhere, or fails, leaves nothing.
func TestCutOff(t *testing.T) {
	f := fixture{}
	path := f.build(t)
	run, err := tensors.Open(path)
	check(t, err)
	defer run.Close()
	for _, form := range Forms {
		folder := t.TempDir()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		o := Options{Form: form, Out: filepath.Join(folder, "x.stream"),
			Select: Selection{Tensors: []string{"l_out-1"}}}
		if _, err := Write(ctx, run, o); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", form, err)
		}
		o.Select.Tensors = []string{"none"}
		if _, err := Write(context.Background(), run, o); err == nil ||
			!strings.Contains(err.Error(), "there are layers") {
			t.Errorf("%s: %v", form, err)
		}
		leftovers(t, folder)
	}
}

// TestSameBytes: an export depends on the capture and the choices, on nothing else.
func TestSameBytes(t *testing.T) {
	f := fixture{}
	path := f.build(t)
	for _, form := range Forms {
		var first map[string]string
		for _, name := range []string{"a", "b"} {
			out := filepath.Join(t.TempDir(), "x.stream")
			exported(t, path, Options{Form: form, Out: out, Seed: 5,
				Select: Selection{Tensors: []string{"l_out-1", "Qcur*"}}})
			files := tree(t, filepath.Dir(out))
			if first == nil {
				first = files
			} else if len(first) == 0 || !equal(first, files) {
				t.Errorf("%s: export %s differs", form, name)
			}
		}
	}
}

// TestDatasetOfRun: a dataset calls the model as the run does, so that both can be trained on together, and has the
// run's metadata, which say what its points are.
func TestDatasetOfRun(t *testing.T) {
	f := fixture{}
	path, out := f.build(t), filepath.Join(t.TempDir(), "set")
	exported(t, path, Options{Form: Dataset, Out: out, Select: Selection{Tensors: []string{"l_out-1"}}})
	run, err := tensors.Open(path)
	check(t, err)
	defer run.Close()
	summary, err := tensors.Summarize(run, tensors.Filter{})
	check(t, err)
	var about struct {
		Provenance
		Run rundir.Metadata `json:"run"`
	}
	text, err := os.ReadFile(filepath.Join(out, "llamatap.json"))
	check(t, err)
	if check(t, json.Unmarshal(text, &about)); about.Model != summary.Model || about.Model != "fixture" {
		t.Errorf("the dataset is of %q, the run of %q", about.Model, summary.Model)
	}
	if !reflect.DeepEqual(&about.Run, run.Metadata) {
		t.Errorf("the dataset has %+v, the run %+v", about.Run, run.Metadata)
	}
}

func tree(t *testing.T, folder string) map[string]string {
	files := map[string]string{}
	check(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, folder)] = string(data)
		return err
	}))
	return files
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for name, data := range a {
		if b[name] != data {
			return false
		}
	}
	return true
}

// TestTorn: of a run whose writer was stopped everything whole is exported, and what is not is reported.
func TestTorn(t *testing.T) {
	whole, torn := fixture{}, fixture{cut: true}
	one, other := whole.build(t), torn.build(t)
	for _, form := range []Form{NPY, Safetensors, Parquet, Arrow, Strap} {
		out := t.TempDir()
		chosen := Selection{}
		if form == Strap {
			chosen.Ctx = new(uint32) // its streams are of one context
		}
		a := exported(t, one, Options{Form: form, Select: chosen, Out: filepath.Join(out, "a.stream")})
		b := exported(t, other, Options{Form: form, Select: chosen, Out: filepath.Join(out, "b.stream")})
		if a.Rows != b.Rows || a.Tensors != b.Tensors {
			t.Errorf("%s: %d rows of %d tensors, %d of %d belong", form, b.Rows, b.Tensors, a.Rows, a.Tensors)
		}
		if !slices.ContainsFunc(b.Notes, func(note string) bool {
			return strings.HasPrefix(note,
				"of half-0 pieces are missing")
		}) {
			t.Errorf("%s: %q", form, b.Notes)
		}
		if form == Strap && !slices.Contains(b.Notes, "the capture has no tokens file, so this has none") {
			t.Errorf("%q", b.Notes)
		}
	}
}

// TestForeign exports a stream without index, as STRAP-LLM writes it.
func TestForeign(t *testing.T) {
	name := filepath.Join(t.TempDir(), "gen.stream")
	packet := []byte("\x00\x06\x00\x00\x00\x06layer1\x00\x3c\x00\xc0\x00\x38") // 1, -2, 0.5
	longer := []byte("\x00\x06\x00\x00\x00\x04layer1\x00\x3c\x00\xc0")
	check(t, os.WriteFile(name, slices.Concat(packet, packet, longer), 0o600))
	if _, err := try(t, name, Options{Form: NPY}); err == nil || !strings.Contains(err.Error(), "say with -o") {
		t.Error(err)
	}
	out := filepath.Join(t.TempDir(), "x")
	third := Options{Form: NPY, Out: out}
	third.Select.Layers.Add(3)
	if _, err := try(t, name, third); err == nil ||
		!strings.Contains(err.Error(), "choose it by name, such as layer1") {
		t.Errorf("its layers are not known, and the error is %v", err)
	}
	if r := exported(t, name, Options{Form: NPY, Out: out}); r.Tensors != 1 || r.Rows != 3 {
		t.Errorf("%+v", r)
	}
	data, err := os.ReadFile(filepath.Join(out, "layer1@3.npy"))
	check(t, err)
	if !bytes.HasSuffix(data, []byte("\x00\x3c\x00\xc0\x00\x38\x00\x3c\x00\xc0\x00\x38")) {
		t.Errorf("% x", data)
	}
	again := filepath.Join(t.TempDir(), "x.stream")
	exported(t, name, Options{Form: Strap, Out: again})
	if data, err = os.ReadFile(again); err != nil || !bytes.Equal(data, slices.Concat(packet, packet, longer)) {
		t.Errorf("% x %v", data, err)
	}
}

// TestRefused: what a form cannot hold is refused, with what to do.
func TestRefused(t *testing.T) {
	f := fixture{}
	path := f.build(t)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Form: "csv"}, `--to "csv": use one of [npy safetensors parquet arrow strap dataset]`},
		{Options{}, "no form: give one with --to"},
		{Options{Form: Dataset, Select: Selection{Tensors: []string{"l_out-1", "state"}}},
			"tensor state-1 has no row for every token: leave it out"},
		{Options{Form: Dataset, Select: Selection{Tensors: []string{"ffn_out"}}},
			"tensor ffn_out-1 has no row for every token: leave it out"},
		{Options{Form: Dataset, Select: Selection{Tensors: []string{"l_out-0"}}},
			"tensors of contexts 0 and 1 are chosen: choose one with --ctx"},
		{Options{Form: Dataset, Select: Selection{Tensors: []string{"grows"}}},
			"tensor grows-0 has rows of several shapes or types"},
		{Options{Form: Dataset, Select: Selection{Tensors: []string{"l_out-1", "result_output"},
			Tokens: []Tokens{{0, 1}, {2, 3}}, Seqs: []int32{0, 1}}, Complete: true}, ""},
		{Options{Form: Strap, Out: filepath.Join(t.TempDir(), "x.bin")}, "STRAP-LLM's streams end in .stream"},
		{Options{Form: NPY, Select: Selection{Tensors: []string{"[a"}}}, "a [ is not closed"},
		{Options{Form: NPY, Out: "/proc/no/such"}, "choose another place with -o"},
	} {
		_, err := try(t, path, c.o)
		if c.want == "" && err == nil {
			continue
		}
		if err == nil || c.want == "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.o.Form, err, c.want)
		}
	}
}

// TestRefusedLeavesNothing: of an export that fails no folder is left, not even those above it.
func TestRefusedLeavesNothing(t *testing.T) {
	f, out := fixture{}, t.TempDir()
	path := f.build(t)
	if _, err := try(t, path, Options{Form: Dataset, Out: filepath.Join(out, "a", "b"),
		Select: Selection{Tensors: []string{"state"}}}); err == nil {
		t.Fatal("it was exported")
	}
	check(t, os.Mkdir(filepath.Join(out, "mine"), 0o700))
	_, err := MRMTrace(t.Context(), path, filepath.Join(out, "mine", "c"), false)
	if !errors.Is(err, memory.ErrNoTrace) {
		t.Errorf("a run without accesses: %v", err)
	}
	for folder, want := range map[string]int{out: 1, filepath.Join(out, "mine"): 0} {
		if left, err := os.ReadDir(folder); err != nil || len(left) != want {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

// TestAxes: rows that are tokens in one micro-batch and executions in another, as a recurrent state's are, become an
// array of each, though their shapes are equal.
func TestAxes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.stream")
	w, err := stream.Create(path, stream.Options{DType: codec.F32})
	check(t, err)
	for exec, tokens := range []int64{1, 2} {
		p := stream.Packet{Name: "state", Node: "state", Exec: uint64(exec + 7), TokenFirst: int64(exec),
			TokenCount: int32(tokens), NE: [4]int64{2, 3, 1, 1}}
		e := stream.Execution{Exec: p.Exec, Phase: label.PhasePrefill, TokenFirst: p.TokenFirst}
		if tokens == 2 {
			p.Rows, p.RowDim, p.NE[2] = label.RowsTokens, 2, tokens
		}
		for i := range tokens {
			e.Rows = append(e.Rows, label.Row{Index: p.TokenFirst + i, Seqs: []int32{int32(i)}, Phase: e.Phase})
		}
		check(t, w.AppendExecution(&e))
		check(t, w.Append(&p, make([]byte, 4*p.NE[0]*p.NE[1]*p.NE[2]), nil))
	}
	check(t, w.Close())
	folder := filepath.Join(t.TempDir(), "arrays")
	if r := exported(t, path, Options{Form: NPY, Out: folder}); r.Tensors != 1 || r.Rows != 3 {
		t.Errorf("%d rows of %d tensors", r.Rows, r.Tensors)
	}
	var index struct{ Arrays []struct{ Name, Axis string } }
	data, err := os.ReadFile(filepath.Join(folder, "index.json"))
	check(t, err)
	check(t, json.Unmarshal(data, &index))
	if got := fmt.Sprint(index.Arrays); got != "[{state@execution execution} {state@token token}]" {
		t.Errorf("%s in %s", got, data)
	}
}
