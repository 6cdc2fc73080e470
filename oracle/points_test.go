//go:build linux

package oracle

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/testenv"
)

// pointModels are the models of Hugging Face that points are compared with. Those whose activation function is GELU
// come second: ggml looks it up in a table of half-precision numbers, and two inputs that differ in their last bit
// may be rounded apart.
var pointModels = [2][]string{
	{"llama", "qwen2", "qwen3", "mixtral", "qwen2moe", "qwen3moe", "olmo2", "phi3"},
	{"gemma2", "gemma3", "phi2", "starcoder2"},
}

// TestPoints compares every named point with PyTorch's: models of transformers with random weights, converted to GGUF.
func TestPoints(t *testing.T) {
	testenv.Slow(t) // PyTorch is large: the set-up of make nightly installs it
	python := testenv.NeedPython(t, "torch", "transformers", "gguf")
	const prompt = "The quick brown fox jumps over it"
	ids := tokenize(t, textFile(t, prompt))
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = strconv.Itoa(int(id))
	}
	dir := t.TempDir()
	args := []string{"testdata/points_hf.py", dir, testenv.Model(t), strings.Join(text, ",")}
	cmd := exec.Command(python, slices.Concat(args, pointModels[0], pointModels[1])...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	for i, models := range pointModels {
		for _, name := range models {
			bound := []float64{1e-4, 1e-3}[i]
			for _, flash := range []string{"off", "on"} {
				if flash == "on" {
					bound = 5e-3 // it reads keys and values in half precision
				}
				t.Run(name+" -fa "+flash, func(t *testing.T) {
					c := record(t, append([]string{"--tap-point", "all"}, exact...), "-m",
						filepath.Join(dir, name+".gguf"), "-p", prompt, "-n", "1", "--temp", "0", "-t", "1",
						"-fa", flash, "-ctk", "f32", "-ctv", "f32")
					if got := c.ids("prefill"); fmt.Sprint(got) != fmt.Sprint(ids) {
						t.Fatalf("tokens %v, and PyTorch was given %v", got, ids)
					}
					comparePoints(t, c, readPoints(t, filepath.Join(dir, name)), len(ids), bound)
				})
			}
		}
	}
}

// TestInterpEngine compares llamatap.interp with interp-engine's eager backend, which runs the same weights in PyTorch:
// captures, greedy generation, lens read-out, refusals.
func TestInterpEngine(t *testing.T) {
	testenv.Slow(t) // PyTorch is large: the set-up of make nightly installs it
	ids := strings.Trim(fmt.Sprint(tokenize(t, textFile(t, "The quick brown fox jumps over it"))), "[]")
	models := []string{"llama", "mixtral", "qwen2moe", "qwen3", "qwen3moe", "phi3", "olmo2", "gemma2"}
	testenv.NeedPython(t, "torch", "transformers", "gguf", "interp_engine")
	cmd := pythonPackage(t, append([]string{"testdata/interp_engine_hf.py", t.TempDir(), testenv.Model(t),
		strings.ReplaceAll(ids, " ", ",")}, models...)...)
	cmd.Env = append(cmd.Env, "HF_HUB_OFFLINE=1")
	out, err := cmd.CombinedOutput()
	if n := strings.Count(string(out), " equal within "); err != nil || n != len(models) {
		t.Errorf("%d of %d models: %v\n%s", n, len(models), err, out)
	}
	t.Logf("%s", out)
}

// TestPeers measures how fast the residual stream is captured beside PyTorch's libraries. It logs rates, and fails
// where one of them does not run or captures something else; speed is no condition.
func TestPeers(t *testing.T) {
	testenv.Slow(t) // PyTorch is large: the set-up of make nightly installs it
	python := testenv.NeedPython(t, "torch", "transformers", "gguf", "interp_engine", "transformer_lens", "nnsight")
	cmd := exec.Command(python, "testdata/peers_hf.py", testenv.NeedBinary(t), t.TempDir(), testenv.Model(t), "2", "1")
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1")
	out, err := cmd.CombinedOutput()
	if n := strings.Count(string(out), "tokens_per_second"); err != nil || n != 9 || strings.Contains(string(out),
		"error") {
		t.Errorf("%d of 9 ran: %v", n, err)
	}
	t.Logf("%s", out)
}

// TestPointsSelected captures points by name: these tensors and no others, whole graphs, the values that a run of all
// tensors has, from the runner and from a preloaded program. What a model lacks is named once.
func TestPointsSelected(t *testing.T) {
	cut := regexp.MustCompile(`"cut_graph": ?[1-9]`)
	for _, c := range testenv.ByDay([]struct {
		arch, points, want, lacks string
		more                      []string
	}{
		{"llama", "resid_post,blocks.1.mlp.hook_post,attn_gate", "ffn_swiglu-1 l_out-0 l_out-1",
			"attn_gate (layers 0-1): the outputs of heads have no gate", nil},
		{"jamba", "attn_out,lm_head,resid_pre", "ffn_inp-2 l_out-0 l_out-1 result_output",
			"attn_out (layers 1): the layer has no attention", []string{"--tap-layer", "1-2"}},
		{"qwen3moe", "expert_indices,expert_weights.0,blocks.99.hook_resid_mid",
			"Vcur-0#2 Vcur-1#2 ffn_moe_topk-0 ffn_moe_topk-1 ffn_moe_weights_norm-0",
			"resid_mid (layers 99): the model has layers 0 to 1",
			[]string{"--tap-tensor", "Vcur#2"}},
	}, 2) {
		t.Run(c.arch, func(t *testing.T) {
			args := []string{"-m", synthetic(t, c.arch, gguf.F16, nil), "-p", "One two three four", "-n", "3",
				"--temp", "0", "-t", "1"}
			all := record(t, everything, args...).tensors(t)
			tap := slices.Concat(exact, c.more, []string{"--tap-point", c.points})
			for _, run := range []*capture{record(t, tap, args...),
				tapped(t, tap, "llama-completion", append(args, "-no-cnv")...)} {
				names := map[string]bool{}
				for k, x := range run.tensors(t) {
					names[x.Name] = true
					whole := all[k]
					if whole != nil && !slices.Equal(whole.values, x.values) && run.args[1] == "run" {
						t.Errorf("%v is not what a run of all tensors has", k)
					}
				}
				if got := strings.Join(slices.Sorted(maps.Keys(names)), " "); got != c.want {
					t.Errorf("captured %s, want %s", got, c.want)
				}
				if n := strings.Count(run.stderr, "not captured, "); n != min(len(c.lacks), 1) ||
					!strings.Contains(run.stderr, c.lacks) {
					t.Errorf("%d points are named as missing, want %q\n%s", n, c.lacks, run.stderr)
				}
				if paths := string(run.meta.Extra["capture_paths"]); paths == "" || cut.MatchString(paths) {
					t.Errorf("the graph was cut: %s", paths)
				}
			}
		})
	}
	llamatap(t, "run", "--tap-point", "resid_post", "-m", synthetic(t, "llama", gguf.F16, nil), "-p", "a", "-n", "1",
		"-fa",
		"on", "-ctk", "f32").good(t) // keys are cast: such a node reads itself
	o := llamatap(t, "run", "--tap-point", "attn_gate", "-m", synthetic(t, "llama", gguf.F16, nil), "-p", "a")
	if o.status == 0 || !strings.Contains(o.stderr, "has none of the points") {
		t.Errorf("a model without any of the points: status %d\n%s", o.status, o.stderr)
	}
}

// TestPointsOnDevice finds the same points where the weights lie on a device: the scheduler puts copies between nodes.
func TestPointsOnDevice(t *testing.T) {
	endpoint := testenv.NeedRPC(t)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	tap := []string{"--tap-point", "all"}
	args := []string{"-m", synthetic(t, "qwen3moe", gguf.F16, nil), "-p", "One two", "-n", "2", "--temp", "0"}
	cpu := record(t, tap, args...)
	device := record(t, tap, append(args, "--rpc", endpoint, "-ngl", "99")...)
	got, want := string(device.meta.Extra["points"]), string(cpu.meta.Extra["points"])
	if got != want || !strings.Contains(want, `"resid_post"`) {
		t.Errorf("points on the device\n%s, on the CPU\n%s", got, want)
	}
	if len(device.packets) != len(cpu.packets) {
		t.Errorf("%d tensors from the device, %d from the CPU", len(device.packets), len(cpu.packets))
	}
}

// TestPointsRead reads a run by the names of its points.
func TestPointsRead(t *testing.T) {
	model := synthetic(t, "phi3", gguf.F16, nil)
	tap := []string{"--tap-point", "resid_pre,mlp_pre,final_norm,attn_gate"}
	dir := record(t, tap, "-m", model, "-p", "One two", "-n", "2").dir
	for _, c := range []struct {
		args   []string
		status int
		want   string // texts of the output, separated by " | "
		not    string
	}{
		{[]string{"inspect", dir, "--points"}, 0,
			"resid_pre | embd | final_norm | result_norm | 256x* | heads have no gate", "z"},
		{[]string{"inspect", dir, "--point", "resid_pre", "--layer", "1"}, 0, "l_out-0", "embd"},
		{[]string{"inspect", dir, "--point", "mlp_pre"}, 0, "first half of each row | ffn_up-0 | ffn_up-1", "l_out"},
		{[]string{"export", dir, "--to", "npy", "--layer", "1", "--point", "mlp_pre,final_norm"}, 0,
			"mlp_pre is ffn_up: first half of each row | 1 tensor,", ""},
		{[]string{"inspect", dir, "--point", "attn_gate"}, 1,
			"the model has no attn_gate: the outputs of heads have no gate", ""},
		{[]string{"inspect", dir, "--point", "mlp_out"}, 1,
			"mlp_out is not recorded: there are | --tap-point mlp_out", ""},
		{[]string{"inspect", dir, "--point", "resid_pots"}, 2, "did you mean resid_post?", ""},
		{[]string{"inspect", model, "--points"}, 0, "attn_out_post | mlp_pre | recomputed | flash attention", ""},
	} {
		o := llamatap(t, c.args...)
		rest := o.stdout + o.stderr
		for _, text := range strings.Split(c.want, " | ") {
			if !strings.Contains(rest, text) {
				t.Errorf("%v: no %q in\n%s", c.args, text, o.stdout+o.stderr)
			}
		}
		if o.status != c.status || c.not != "" && strings.Contains(rest, c.not+" ") {
			t.Errorf("%v: status %d, want %d and no %q\n%s", c.args, o.status, c.status, c.not, rest)
		}
	}
}

// TestPointsDocument compares the tables of docs/POINTS.md with what each architecture has.
func TestPointsDocument(t *testing.T) {
	testenv.Slow(t)
	cells := map[string]map[ggmlhooks.Point]string{}
	var reasons []string
	for _, arch := range synth.Archs() {
		c := record(t, []string{"--tap-point", "all"}, "-m", synthetic(t, arch, gguf.F16, nil), "-p", "a", "-n", "1",
			"-fa", "off")
		run, err := tensors.Open(c.dir)
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close()
		rows, err := run.Points()
		if err != nil {
			t.Fatal(err)
		}
		words := map[ggmlhooks.Point][]string{}
		for _, row := range rows {
			word := row.How.String()
			if row.How == ggmlhooks.PointImpossible {
				at := slices.Index(reasons, row.Why)
				if at < 0 {
					at, reasons = len(reasons), append(reasons, row.Why)
				}
				word = strconv.Itoa(at + 1)
			}
			if !slices.Contains(words[row.Point], word) {
				words[row.Point] = append(words[row.Point], word)
			}
		}
		cells[arch] = map[ggmlhooks.Point]string{}
		for p, all := range words {
			slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
			cells[arch][p] = strings.Join(all, ", ")
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| point | %s |\n|---%s|\n", strings.Join(synth.Archs(), " | "),
		strings.Repeat("|---", len(synth.Archs())))
	words := "| point | TransformerLens | what it is |\n|---|---|---|\n"
	for p := range ggmlhooks.NumPoints {
		fmt.Fprintf(&table, "| `%s` |", p)
		for _, arch := range synth.Archs() {
			fmt.Fprintf(&table, " %s |", cells[arch][p])
		}
		table.WriteString("\n")
		lens := p.LensName()
		if lens != "" && !p.Global() {
			lens = "blocks.N." + lens
		}
		words += strings.ReplaceAll(fmt.Sprintf("| `%s` | `%s` | %s |\n", p, lens, p.Meaning()), "| `` |", "| |")
	}
	table.WriteString("\n")
	for i, why := range reasons {
		fmt.Fprintf(&table, "%d. %s\n", i+1, why)
	}
	const path = "../docs/POINTS.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for name, part := range map[string]string{"architectures": table.String(), "points": words} {
		before, rest, begun := strings.Cut(want, "<!-- "+name+" -->\n")
		_, after, ended := strings.Cut(rest, "<!-- /"+name+" -->\n")
		if !begun || !ended {
			t.Fatalf("%s has no part %q", path, name)
		}
		want = before + "<!-- " + name + " -->\n" + part + "<!-- /" + name + " -->\n" + after
	}
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s is not what the architectures have: go test ./oracle -run PointsDocument -update", path)
	}
}

// pointKey names a point of a layer; -1 is the whole model.
type pointKey struct {
	point string
	layer int
}

// pointValues is a point as PyTorch computed it.
type pointValues struct {
	shape  []int
	values []float32
}

func readPoints(t *testing.T, path string) map[pointKey]pointValues {
	t.Helper()
	var index [][4]json.RawMessage
	text, err := os.ReadFile(path + ".json")
	if err == nil {
		err = json.Unmarshal(text, &index)
	}
	data, readErr := os.ReadFile(path + ".f32")
	if err != nil || readErr != nil {
		t.Fatal(err, readErr)
	}
	points := map[pointKey]pointValues{}
	for _, entry := range index {
		var k pointKey
		var r pointValues
		var at int
		for i, to := range []any{&k.point, &k.layer, &r.shape, &at} {
			if err := json.Unmarshal(entry[i], to); err != nil {
				t.Fatal(err)
			}
		}
		n := 1
		for _, d := range r.shape {
			n *= d
		}
		for i := range n {
			r.values = append(r.values, math.Float32frombits(binary.LittleEndian.Uint32(data[at+4*i:])))
		}
		points[k] = r
	}
	return points
}

// comparePoints compares the points of a run's prompt with PyTorch's. Every one that PyTorch has must be there, but for
// those that flash attention does not form.
func comparePoints(t *testing.T, c *capture, want map[pointKey]pointValues, tokens int, bound float64) {
	t.Helper()
	prompt := map[string]*tensor{}
	for _, x := range c.tensors(t) {
		if x.Phase.String() == "prefill" {
			prompt[x.Name] = x
		}
	}
	var points []ggmlhooks.PointRecord
	if err := json.Unmarshal(c.meta.Extra["points"], &points); err != nil {
		t.Fatal(err)
	}
	worst, compared := 0.0, map[string]bool{}
	for _, p := range points {
		k := pointKey{p.Point.String(), p.LayerNumber()}
		ref, known := want[k]
		delete(want, k)
		x := prompt[p.Tensor]
		switch {
		case p.Tensor == "" && known && !strings.Contains(p.Why, "flash attention"):
			t.Errorf("%v: impossible (%s), and PyTorch has it", k, p.Why)
		case p.Tensor == "":
		case !known:
			t.Errorf("%v: %s, and PyTorch has no such point", k, p.Tensor)
		case x == nil:
			t.Errorf("%v: %s was not captured", k, p.Tensor)
		default:
			d, err := pointDistance(x, &p, ref, tokens)
			if err != nil || !(d <= bound) {
				t.Errorf("%v: %s differs by %.2g: %v", k, p.Tensor, d, err)
			}
			worst, compared[k.point] = max(worst, d), true
		}
	}
	for k := range want {
		t.Errorf("%v is nowhere in the run's metadata", k)
	}
	if len(compared) < 15 {
		t.Errorf("%d points were compared", len(compared))
	}
	t.Logf("%d points equal within %.2g", len(compared), worst)
}

// pointDistance is the largest difference of a captured point from PyTorch's, relative to PyTorch's largest value.
func pointDistance(x *tensor, p *ggmlhooks.PointRecord, ref pointValues, tokens int) (float64, error) {
	got, want := x.values, ref.values
	switch point := p.Point.String(); {
	case point == "attn_scores" || point == "attn_probs":
		heads, cells := int(x.NE[2]), int(x.NE[0])
		if len(ref.shape) != 3 || ref.shape[0] != heads || int(x.NE[1]) != tokens {
			return 0, fmt.Errorf("shape %v, PyTorch's is %v", x.NE, ref.shape)
		}
		scale := 1.0
		if point == "attn_scores" {
			number, _, _ := strings.Cut(strings.TrimPrefix(p.Why, "times "), ",")
			var err error
			if scale, err = strconv.ParseFloat(number, 64); err != nil {
				return 0, err
			}
		}
		var visible, expected []float32 // a token sees itself and those before it
		for row := range heads * tokens {
			for cell := range row%tokens + 1 {
				visible = append(visible, float32(scale)*got[row*cells+cell])
				expected = append(expected, want[row*tokens+cell])
			}
		}
		got, want = visible, expected
	case strings.Contains(p.Why, "half of each row"):
		width := int(x.NE[0])
		var half []float32
		for row := 0; row < len(got); row += width {
			first := map[bool]int{true: 0, false: width / 2}[strings.HasPrefix(p.Why, "first")]
			half = append(half, got[row+first:row+first+width/2]...)
		}
		got = half
	}
	if len(got) < len(want) { // of the last layer, that of the last token alone
		want = want[len(want)-len(want)/tokens:]
	}
	if len(got) != len(want) {
		return 0, fmt.Errorf("%d values of shape %v, PyTorch has %d", len(got), x.NE, len(want))
	}
	var differs, largest float64
	for i := range want {
		differs = max(differs, math.Abs(float64(got[i])-float64(want[i])))
		largest = max(largest, math.Abs(float64(want[i])))
	}
	return differs / largest, nil
}
