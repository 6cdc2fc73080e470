package activations

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// TestPlanted: what was planted into normal noise is found, and nothing else.
func TestPlanted(t *testing.T) {
	const tokens, width = 64, 128
	random := rand.New(rand.NewPCG(1, 2))
	layers := make([]matrix, 6)
	for i := range layers {
		layers[i] = normal(random, tokens, width)
	}
	for i := range tokens {
		layers[1][i][17] = 40  // an outlier channel
		for k := range width { // three directions, evenly
			layers[3][i][k] = 0
		}
		layers[3][i][50+i%3] = 2
		scale := float32(1 + float64(i%7)) // a correlation of the norms of layers 4 and 5
		for k := range width {
			layers[4][i][k] *= scale
			layers[5][i][k] *= scale
		}
	}
	for i := 0; i < tokens/2; i++ {
		layers[2][i][9] = 30 // in half of the tokens: no outlier channel
	}
	layers[2][5][99] = -5000 // a massive activation
	a, err := Analyze(context.Background(), record(t, layers), Options{MinCorrelation: 0.6, Top: 8})
	check(t, err)
	for i, x := range a.Tensors {
		want := []Channel{}
		if i == 1 {
			want = []Channel{{17, 1, 40, 40}}
		}
		if i == 3 { // one-hot rows: each of the channels is an outlier in a third of the tokens
			if rank := x.Space.EffectiveRank; math.Abs(rank-3) > 1e-3 {
				t.Errorf("effective rank of 3 even directions: %v", rank)
			}
			if sum := x.Space.Explained[0] + x.Space.Explained[1]; math.Abs(sum-1) > 1e-9 {
				t.Errorf("3 points explain %v of their variance in 2 components", sum)
			}
		} else if i != 1 && i != 2 && x.Space.EffectiveRank < 50 { // planted values are directions of their own
			t.Errorf("%s: effective rank %v of noise", x.Name, x.Space.EffectiveRank)
		}
		if !slices.Equal(x.Outliers, want) {
			t.Errorf("%s: outlier channels %v, want %v", x.Name, x.Outliers, want)
		}
	}
	if len(a.Massive) != 1 || a.Massive[0].Tensor != "l_out-2" || a.Massive[0].Token != 5 ||
		a.Massive[0].Channel != 99 || a.Massive[0].Value != -5000 {
		t.Errorf("massive activations: %+v", a.Massive)
	}
	if len(a.Correlations) != 1 || a.Correlations[0].A != "l_out-4" || a.Correlations[0].B != "l_out-5" ||
		a.Correlations[0].R < 0.95 || a.Correlations[0].N != tokens || a.Correlations[0].P > 1e-20 {
		t.Errorf("correlations: %+v", a.Correlations)
	}
	if a.TokenMetadata.Total != tokens || a.TokenMetadata.Tokens[5].Text != "t5" {
		t.Errorf("tokens: %+v", a.TokenMetadata)
	}
}

// TestTokensAreJoined: of a layer that was computed for some tokens, each figure is of those tokens, and so are the
// cosines and correlations with other layers.
func TestTokensAreJoined(t *testing.T) {
	const tokens, width = 12, 16
	random := rand.New(rand.NewPCG(3, 4))
	layers := []matrix{normal(random, tokens, width), normal(random, tokens, width)}
	for i := range tokens {
		for k := range width { // opposite directions, the same norms
			layers[1][i][k] = -layers[0][i][k]
		}
	}
	for i := range tokens/2 - 1 {
		layers[1][i] = nil
	}
	a, err := Analyze(context.Background(), record(t, layers), Options{First: 2, End: -1})
	check(t, err)
	var have []int64
	for _, row := range a.Tensors[1].Rows {
		have = append(have, row.Token)
		if row.Cosine == nil || math.Abs(*row.Cosine+1) > 1e-9 {
			t.Errorf("token %d: cosine %v", row.Token, row.Cosine)
		}
	}
	if want := []int64{5, 6, 7, 8, 9, 10, 11}; !slices.Equal(have, want) {
		t.Errorf("tokens %v, want %v", have, want)
	}
	if n := len(a.Tensors[0].Rows); n != tokens-2 {
		t.Errorf("%d tokens of layer 0", n)
	}
	if c := a.Correlations; len(c) != 1 || math.Abs(c[0].R-1) > 1e-9 || c[0].N != 7 {
		t.Errorf("correlations %+v", c)
	}
}

// TestNotFinite: values that are not finite are counted below the tables, by tensor.
func TestNotFinite(t *testing.T) {
	layers := make([]matrix, maxBroken+3)
	for i := range layers {
		layers[i] = normal(rand.New(rand.NewPCG(5, uint64(i))), 4, 8)
		if i > 0 {
			layers[i][1][2], layers[i][3][0] = float32(math.NaN()), float32(math.Inf(-1))
		}
	}
	a, err := Analyze(context.Background(), record(t, layers), Options{})
	check(t, err)
	for _, write := range []func(io.Writer, string) error{a.WriteText, a.WriteMarkdown} {
		for by, want := range map[string]string{"tensor": "left out of all figures", "layer": "have no rank"} {
			var out strings.Builder
			check(t, write(&out, by))
			text := strings.ReplaceAll(strings.Join(strings.Fields(out.String()), " "), "\\_", "_")
			for _, want := range []string{want, "l_out-1: 1 NaN, 1 infinite of 32;", "; 4 values of other tensors."} {
				if !strings.Contains(text, want) || strings.Contains(text, "l_out-0: ") {
					t.Errorf("%s: no %q in %s", by, want, text)
				}
			}
		}
	}
}

// TestContexts: tensors of two contexts that have the same names are not mixed.
func TestContexts(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	target, draft := []matrix{normal(random, 12, 8), normal(random, 12, 8)}, []matrix{normal(random, 10, 4)}
	r := record(t, target, draft)
	a, err := Analyze(context.Background(), r, Options{})
	check(t, err)
	one := uint32(1)
	b, err := Analyze(context.Background(), r, Options{Filter: tensors.Filter{Ctx: &one}})
	check(t, err)
	var names []string
	for _, x := range append(a.Tensors, b.Tensors...) {
		names = append(names, fmt.Sprint(x.Name, " ", len(x.Rows), "×", x.Width, " from ", x.Rows[0].Token))
	}
	if got, want := strings.Join(names, ", "), "l_out-0 12×8 from 0, l_out-1 12×8 from 0, "+
		"l_out-0 (ctx 1) 10×4 from 12, l_out-0 (ctx 1) 10×4 from 12"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if len(a.Correlations) != 1 || a.Tensors[2].Cosine != nil || a.Tensors[1].Cosine.N != 12 {
		t.Errorf("%+v %+v", a.Correlations, a.Tensors[2].Cosine)
	}
}

// TestNumPyAgrees recomputes every figure of random layers with NumPy and SciPy, from the arrays that export writes.
func TestNumPyAgrees(t *testing.T) {
	interpreter := testenv.NeedPython(t, "numpy", "scipy")
	const tokens, width = 40, 24
	random := rand.New(rand.NewPCG(5, 6))
	layers := make([]matrix, 4)
	for i := range layers {
		layers[i] = normal(random, tokens, width)
		for k, row := range layers[i] {
			row[k%width] = 0
			row[3] *= 50
			row[(k+i)%width] += float32(k * k)
		}
	}
	r := record(t, layers)
	dir := t.TempDir()
	for i := range layers {
		s, err := tensors.NewSlice(r, tensors.SliceOptions{Tensor: fmt.Sprint("l_out-", i)})
		check(t, err)
		var b bytes.Buffer
		check(t, s.WriteNPY(&b))
		check(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".npy")), b.Bytes(), 0o600))
	}
	a, err := Analyze(context.Background(), r, Options{})
	check(t, err)
	text, err := json.Marshal(a)
	check(t, err)
	name := filepath.Join(dir, "analysis.json")
	check(t, os.WriteFile(name, text, 0o600))
	out, err := exec.Command(interpreter, "-c", `
import json, sys, numpy as np, scipy.stats
dir = sys.argv[1]
a = json.load(open(dir + "/analysis.json"))
X = [np.load(f"{dir}/{i}.npy").astype(np.float64) for i in range(4)]
checked = 0
def same(what, got, want):
    global checked
    checked += 1
    assert np.allclose(got, want, rtol=1e-7, atol=1e-9), (what, got, want)
norms = [np.linalg.norm(x, axis=1) for x in X]
for i, (t, x) in enumerate(zip(a["tensors"], X)):
    rows = t["rows"]
    for key, f in dict(l2_norm=norms[i], mean=x.mean(1), std=x.std(1), max=x.max(1), min=x.min(1),
                       sparsity=(x == 0).mean(1)).items():
        same((i, key), [r[key] for r in rows], f)
    for key, v in dict(l2_norm=np.linalg.norm(x), mean=x.mean(), std=x.std(), sparsity=(x == 0).mean()).items():
        same((i, "all", key), t[key], v)
    if i:
        c = (x * X[i - 1]).sum(1) / norms[i] / norms[i - 1]
        same((i, "cosine"), [r["cosine"] for r in rows], c)
        same((i, "cosines"), [t["cosine"]["mean"], t["cosine"]["min"]], [c.mean(), c.min()])
    s = np.linalg.svd(x, compute_uv=False)
    p = s / s.sum()
    same((i, "rank"), t["space"]["effective_rank"], np.exp(-(p * np.log(p)).sum()))
    u, s, vt = np.linalg.svd(x - x.mean(0), full_matrices=False)
    same((i, "explained"), t["space"]["explained_variance"], (s ** 2 / (s ** 2).sum())[:2])
    pc = np.array([r["principal_components"] for r in rows])
    want = (u * s)[:, :2]
    want *= np.sign(want[np.abs(want).argmax(0), [0, 1]])
    same((i, "components"), pc, want)
    rms = np.sqrt((x ** 2).mean(1))[:, None]
    share = (np.abs(x) > 6 * rms).mean(0)
    found = {c["channel"]: c for c in t["outlier_channels"]}
    assert set(found) == set(np.flatnonzero(share > 0.5)), (i, found, share)
    for k, c in found.items():
        same((i, k), [c["share"], c["mean"], c["largest"]], [share[k], x[:, k].mean(), np.abs(x[:, k]).max()])
    size = np.abs(x)
    for tok, k in np.argwhere((size >= 100) & (size >= 1000 * np.median(size, axis=1)[:, None])):
        m = [m for m in a["massive"] if (m["layer_name"], m["token_index"], m["channel"]) == (t["layer_name"], tok, k)]
        assert len(m) == 1, (i, tok, k)
        same((i, "massive"), [m[0]["value"], m[0]["median"]], [x[tok, k], np.median(size[tok])])
        a["massive"].remove(m[0])
assert not a["massive"], a["massive"]
pairs = {(c["layer_a"], c["layer_b"]): c for c in a["correlations"]}
assert len(pairs) == 6 and [c["correlation"] for c in a["correlations"]] == sorted(
    (c["correlation"] for c in pairs.values()), reverse=True)
for i in range(4):
    for k in range(i):
        c, want = pairs[f"l_out-{k}", f"l_out-{i}"], scipy.stats.pearsonr(norms[k], norms[i])
        assert c["n"] == 40
        same((k, i), [c["correlation"], c["p"]], want)
# the stream, as STRAP-LLM reads it: lengths of name and payload, big-endian, name, payload
import struct
data, at, sizes = open(sys.argv[2], "rb").read(), 0, {}
while at < len(data):
    name, payload = struct.unpack_from(">HI", data, at)
    sizes.setdefault(data[at + 6:at + 6 + name].decode(), []).append(payload)
    at += 6 + name + payload
assert a["per_layer"] == {k: {"count": len(v), "bytes": sum(v)} for k, v in sizes.items()}
packets, total = sum(map(len, sizes.values())), sum(map(sum, sizes.values()))
assert (a["packets"], a["total_compressed_bytes"]) == (packets, total)
assert (a["packets_per_token"], a["bytes_per_token"]) == (packets / 40, total / 40)
assert a["token_metadata"]["total_tokens"] == 40
print(checked)
`, dir, filepath.Join(r.Path, rundir.StreamName)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if n, err := strconv.Atoi(string(bytes.TrimSpace(out))); err != nil || n < 60 {
		t.Errorf("%s figures compared", out)
	}
}

// TestSampledRows: of more tokens than are sampled, the sampled ones lie evenly, the last part included.
func TestSampledRows(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	a, err := Analyze(context.Background(), record(t, []matrix{normal(random, 1000, 4)}), Options{First: 100, End: 900})
	check(t, err)
	var places []int64
	for _, row := range a.Tensors[0].Rows {
		if row.Component != nil {
			places = append(places, row.Token)
		}
	}
	if len(places) != sampledTokens || places[0] != 100 || places[len(places)-1] < 895 {
		t.Errorf("%d tokens sampled, %v to %v", len(places), places[0], places[len(places)-1])
	}
	for i, at := range places[1:] {
		if step := at - places[i]; step < 3 || step > 4 {
			t.Errorf("a step of %d at token %d", step, at)
		}
	}
}

// TestNothingChosen: what cannot be analysed is an error that says what to do.
func TestNothingChosen(t *testing.T) {
	r := record(t, []matrix{normal(rand.New(rand.NewPCG(9, 9)), 4, 4)})
	for what, o := range map[string]Options{"no such tensor": {Filter: tensors.Filter{Tensor: "nothing"}},
		"no such token": {First: 100, End: -1}} {
		if a, err := Analyze(context.Background(), r, o); err == nil {
			t.Errorf("%s: %+v", what, a)
		}
	}
}
