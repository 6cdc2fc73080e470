package export

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// longRun writes a run of n tokens in micro-batches of 32: wide-0 and wide-1 of width values each, whose first is
// the token and whose second is the layer. Of wide-1 only tokens that are no multiple of 7 have rows.
func longRun(t testing.TB, n, width int64) string {
	t.Helper()
	d, err := rundir.Create(t.TempDir(), "long", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	check(t, err)
	w, err := stream.Create(filepath.Join(d.Path(), rundir.StreamName), stream.Options{DType: codec.F32})
	check(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	for first := int64(0); first < n; first += 32 {
		count := min(32, n-first)
		e := stream.Execution{Exec: uint64(first), Graph: 1, Phase: label.PhasePrefill, TokenFirst: first}
		for token := first; token < first+count; token++ {
			e.Rows = append(e.Rows, label.Row{Index: token, Token: int32(token % 1000), Pos: int32(token),
				Seqs: []int32{0}, Phase: e.Phase})
		}
		check(t, w.AppendExecution(&e))
		for layer := range int32(2) {
			for token := first; token < first+count; token++ {
				rows := count
				if layer == 1 {
					rows = 1
					if token%7 == 0 {
						continue
					}
				} else if token > first {
					break
				}
				name := fmt.Sprintf("wide-%d", layer)
				p := stream.Packet{Name: name, Node: name, Op: "ADD", Occurrence: 1, Layer: layer,
					Rows: label.RowsTokens, RowDim: 1,
					NE: [4]int64{width, rows, 1, 1}, Exec: e.Exec, Graph: 1, Phase: e.Phase, TokenFirst: token,
					TokenCount: int32(rows)}
				check(t, w.Append(&p, wideRows(rng, token, rows, width, layer), func() {}))
			}
		}
	}
	check(t, w.Close())
	streamSum, indexSum := w.Sums()
	d.AddSum(rundir.StreamName, streamSum.Size, streamSum.SHA256)
	d.AddSum(rundir.StreamName+stream.IndexSuffix, indexSum.Size, indexSum.SHA256)
	check(t, d.Seal())
	return d.Path()
}

func wideRows(rng *rand.Rand, token, rows, width int64, layer int32) []byte {
	data := make([]byte, 0, 4*rows*width)
	for row := range rows {
		for i := range width {
			v := float32(rng.Int32N(1 << 20))
			switch i {
			case 0:
				v = float32(token + row)
			case 1:
				v = float32(layer)
			}
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	return data
}

const checkDataset = `
import glob, json, sys, numpy as np, pyarrow.parquet as pq
folder, n, width, shards = sys.argv[1], *map(int, sys.argv[2:])
names = sorted(glob.glob(folder + "/data/*.parquet"))
info = json.load(open(folder + "/llamatap.json"))
whole = [i for i in range(n) if i % 7]
assert info["rows"] == len(whole) and info["rows_left_out"] == n - len(whole) and info["shards"] == len(names), info
assert shards * 0.8 <= len(names) <= shards, (len(names), shards)
order = []
sizes = []
for name in names:
    t = pq.read_table(name)
    sizes.append(len(t))
    order += t["token_index"].to_pylist()
    for layer in (0, 1):
        a = t[f"wide-{layer}"].combine_chunks().flatten().to_numpy().reshape(len(t), width)
        assert (a[:, 0] == t["token_index"].to_numpy()).all() and (a[:, 1] == layer).all()
    assert (t["token_id"].to_numpy() == t["token_index"].to_numpy() % 1000).all()
assert sorted(order) == whole and order != whole
if len(order) > 1000:
    # a uniform permutation: no correlation of place and token, of neighbours, and shards of about one size
    order = np.array(order)
    bound = 4 / np.sqrt(len(order))
    assert abs(np.corrcoef(np.arange(len(order)), order)[0, 1]) < bound
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < bound
    assert np.var(sizes[:-1]) < 4 * np.mean(sizes), sizes
print(order[:20])
`

// TestDataset: every token that has all tensors is there once, with its own values, in an order of the seed's.
func TestDataset(t *testing.T) {
	python := testenv.NeedPython(t, "numpy", "pyarrow.parquet")
	for _, c := range []struct{ tokens, width, mb, shards int64 }{{40, 8, 0, 1}, {2000, 1000, 1, 16}} {
		path := longRun(t, c.tokens, c.width)
		var orders []string
		seeds := []uint64{0, 1, 0}
		if c.shards > 1 {
			seeds = seeds[:1]
		}
		for _, seed := range seeds {
			out := filepath.Join(t.TempDir(), "set")
			r := exported(t, path, Options{Form: Dataset, Out: out, ShardMB: c.mb, Seed: seed, Complete: true})
			text, err := exec.Command(python, "-c", checkDataset, out, fmt.Sprint(c.tokens), fmt.Sprint(c.width),
				fmt.Sprint(c.shards)).CombinedOutput()
			if err != nil {
				t.Fatalf("%d tokens: %v: %s", c.tokens, err, text)
			}
			orders = append(orders, string(text))
			if r.Tensors != 2 || r.Rows != c.tokens-(c.tokens+6)/7 || len(r.Notes) != 1 {
				t.Errorf("%+v", r)
			}
			leftovers(t, out, "data", "README.md", "llamatap.json")
		}
		if len(orders) == 3 && (orders[0] != orders[2] || orders[0] == orders[1]) {
			t.Errorf("%q", orders)
		}
	}
}

// TestDatasetOfMissingRows: tokens that lack a tensor are an error that names the tensor and the remedies, and
// never silently left out.
func TestDatasetOfMissingRows(t *testing.T) {
	path, out := longRun(t, 40, 8), filepath.Join(t.TempDir(), "set")
	_, err := try(t, path, Options{Form: Dataset, Out: out})
	if err == nil || !strings.Contains(err.Error(), "6 of 40 tokens") || !strings.Contains(err.Error(), "wide-1") ||
		!strings.Contains(err.Error(), "--complete") {
		t.Error(err)
	}
	if r := exported(t, path, Options{Form: Dataset, Out: out,
		Select: Selection{Tensors: []string{"wide-0"}}}); r.Rows != 40 {
		t.Errorf("%+v", r)
	}
}

// TestDatasetNamesRows: a row has its token's text, and its prompt's id where the results of the prompts are given.
func TestDatasetNamesRows(t *testing.T) {
	python := testenv.NeedPython(t, "pyarrow.parquet")
	f := fixture{requests: true}
	path, results, out := f.build(t), filepath.Join(t.TempDir(), "results.jsonl"), filepath.Join(t.TempDir(), "set")
	check(t, os.WriteFile(results, []byte(`{"line":1,"id":"first","seq_id":0,"request":0}`+"\n"+
		`{"line":2,"error":"x"}`+"\n"), 0o600))
	exported(t, path, Options{Form: Dataset, Out: out, Results: results,
		Select: Selection{Tensors: []string{"l_out"}, Ctx: new(uint32)}})
	text, err := exec.Command(python, "-c", `
import glob, sys, pyarrow.parquet as pq
rows = {r["token_index"]: r for n in glob.glob(sys.argv[1] + "/data/*.parquet") for r in pq.read_table(n).to_pylist()}
assert sorted(rows) == [0, 1, 2, 3, 5, 6], rows
for i, r in rows.items():
    assert r["token_text"] == f"<\u00fc{i}>" and r["token_id"] == 100 + i, r
    assert r["prompt_id"] == ("first" if r["seq_id"] == 0 else None), r
`, out).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// TestLoadDataset lets Hugging Face's own library load a dataset.
func TestLoadDataset(t *testing.T) {
	testenv.Slow(t) // a library of 60 MB
	python := testenv.NeedPython(t, "datasets")
	out := filepath.Join(t.TempDir(), "set")
	exported(t, longRun(t, 500, 100), Options{Form: Dataset, Out: out, ShardMB: 1,
		Select: Selection{Tensors: []string{"wide-0"}}})
	cmd := exec.Command(python, "-c", `
import datasets, sys
for ds in (datasets.load_dataset(sys.argv[1], split="train"),
           datasets.load_dataset("parquet", data_files=sys.argv[1] + "/data/*.parquet", split="train")):
    assert len(ds) == 500 and sorted(ds["token_index"]) == list(range(500))
    a = ds.with_format("numpy", columns=["wide-0"])[:]["wide-0"]
    assert a.shape == (500, 100) and a.dtype == "float32" and (a[:, 0] == ds["token_index"]).all()`, out)
	cmd.Env = append(os.Environ(), "HF_HOME="+t.TempDir(), "HF_HUB_OFFLINE=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, text)
	}
}

// TestShards: safetensors in several files, with the index by which Hugging Face's libraries find a tensor.
func TestShards(t *testing.T) {
	python := testenv.NeedPython(t, "safetensors", "numpy")
	path := longRun(t, 300, 1000)
	out := filepath.Join(t.TempDir(), "model.safetensors")
	r := exported(t, path, Options{Form: Safetensors, Out: out, ShardMB: 1})
	if r.Path != out+".index.json" || r.Files != 3 {
		t.Errorf("%+v", r)
	}
	leftovers(t, filepath.Dir(out), "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
		"model.safetensors.index.json")
	text, err := exec.Command(python, "-c", `
import json, os, sys
from safetensors import safe_open
index = json.load(open(sys.argv[1]))
total = 0
for name, file in index["weight_map"].items():
    with safe_open(os.path.join(os.path.dirname(sys.argv[1]), file), "np") as f:
        a = f.get_tensor(name)
        total += a.nbytes
        if name == "wide-0": assert a.shape == (300, 1000) and (a[:, 0] == range(300)).all()
        if name == "wide-1": assert a.shape == (257, 1000) and (a[:, 0] == [i for i in range(300) if i % 7]).all()
assert total == index["metadata"]["total_size"]`, r.Path).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, text)
	}
}

// TestShuffleKey holds keys against SplitMix64's published first outputs of seed 1234567, and their evenness.
func TestShuffleKey(t *testing.T) {
	state := uint64(1234567)
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423} {
		if got := mix(state + uint64(i+1)*0x9e3779b97f4a7c15); got != want {
			t.Errorf("number %d is %d", i, got)
		}
	}
	seen := map[uint64]bool{}
	for token := range int64(10000) {
		key := shuffleKey(3, token)
		if seen[key] {
			t.Fatalf("token %d has another one's key", token)
		}
		seen[key] = true
	}
}

// TestManyTensors fills more files than may be open, through buffers that are smaller than rows.
func TestManyTensors(t *testing.T) {
	f := files{draft: draft{Draft: &rundir.Draft{Dir: t.TempDir()}}, open: map[string]*os.File{}}
	var outs []place
	for i := range 3 * maxOpenFiles {
		name := fmt.Sprint(i)
		check(t, os.WriteFile(f.draft.Path(name), []byte("head"), 0o600))
		outs = append(outs, place{files: &f, name: name, at: 4, limit: 10})
	}
	for round := range 5 {
		for i := range outs {
			check(t, outs[i].write([]byte(fmt.Sprintf("%d:%d.", i, round))))
			if i%50 == round {
				check(t, outs[i].write([]byte("a long row, longer than the buffer")))
			}
		}
	}
	for i := range outs {
		check(t, outs[i].flush())
	}
	check(t, f.close())
	for i := range outs {
		want := "head"
		for round := range 5 {
			want += fmt.Sprintf("%d:%d.", i, round)
			if i%50 == round {
				want += "a long row, longer than the buffer"
			}
		}
		if got, err := os.ReadFile(f.draft.Path(fmt.Sprint(i))); err != nil || string(got) != want {
			t.Fatalf("%d: %q %v", i, got, err)
		}
	}
}
