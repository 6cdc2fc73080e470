//go:build llama

package runner_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/runner"
)

// writeTensors writes a GGUF file of F32 tensors with normal random values of this deviation.
func writeTensors(t *testing.T, name string, meta map[string]any, tensors []gguf.Tensor, deviation float64) string {
	t.Helper()
	var m gguf.Metadata
	for key, value := range meta {
		m.Set(key, value)
	}
	var out bytes.Buffer
	w, err := gguf.NewWriter(&out, &m, tensors)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, uint64(len(tensors))))
	for i := range tensors {
		var data []byte
		for range tensors[i].Values() {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(random.NormFloat64()*deviation)))
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// loraOf writes a random LoRA adapter of rank 4 for the tensors of a model with this suffix.
func loraOf(t *testing.T, model, suffix string, deviation float64) string {
	t.Helper()
	base, err := gguf.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	meta := loraMeta()
	meta["general.architecture"], _ = base.Metadata.Text("general.architecture")
	var tensors []gguf.Tensor
	for _, w := range base.Tensors {
		if strings.HasSuffix(w.Name, suffix) {
			experts := w.Shape[2:]
			tensors = append(tensors, gguf.Tensor{Name: w.Name + ".lora_a", Type: gguf.F32,
				Shape: append([]int64{w.Shape[0], 4}, experts...)},
				gguf.Tensor{Name: w.Name + ".lora_b", Type: gguf.F32,
					Shape: append([]int64{4, w.Shape[1]}, experts...)})
		}
	}
	if len(tensors) == 0 {
		t.Fatalf("no tensor is called …%s", suffix)
	}
	return writeTensors(t, "lora"+suffix+".gguf", meta, tensors, deviation)
}

func loraMeta() map[string]any {
	return map[string]any{"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora",
		"adapter.lora.alpha": float32(8)}
}

// controlVector writes random directions of this width for layers of the embedded model.
func controlVector(t *testing.T, width int64, layers ...int) string {
	t.Helper()
	var tensors []gguf.Tensor
	for _, layer := range layers {
		tensors = append(tensors, gguf.Tensor{Name: "direction." + strconv.Itoa(layer), Type: gguf.F32,
			Shape: []int64{width}})
	}
	return writeTensors(t, "vector.gguf", map[string]any{"general.architecture": "controlvector"}, tensors, 1)
}

// changed compares the embedded model's greedy text with llama-completion's, and wants it to differ from the text
// without args.
func changed(t *testing.T, args ...string) {
	t.Helper()
	base := []string{"-m", testenv.Model(t), "-p", "func (r *Reader) Read(", "-n", "40", "--temp", "0", "-t", "1"}
	text, _ := sameText(t, append(base, args...)...)
	if plain, _ := ours(t, base...); text == plain {
		t.Errorf("%q changes nothing", args)
	}
}

func TestLora(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	query, down := loraOf(t, testenv.Model(t), "attn_q.weight", 0.3),
		loraOf(t, testenv.Model(t), "ffn_down.weight", 0.2)
	for name, args := range map[string][]string{
		"one": {"--lora", query}, "scaled": {"--lora-scaled", down + ":0.5"},
		"negative": {"--lora-scaled", query + ":-1.5"},
		"two":      {"--lora", query + "," + down}, "two flags": {"--lora", query, "--lora-scaled", down + ":2"},
	} {
		t.Run(name, func(t *testing.T) { changed(t, args...) })
	}
	same(t, "-m", testenv.Model(t), "-p", "func", "-n", "20", "--temp", "0", "-t", "1", "--lora-scaled", query+":0")
}

// TestLoraOfExperts has a third dimension, one for each expert.
func TestLoraOfExperts(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	model := synthetic(t, "qwen3moe")
	args := []string{"-m", model, "-p", "func main", "-n", "30", "--temp", "0", "-t", "1", "-c", "256"}
	plain, _ := ours(t, args...)
	if text, _ := sameText(t, append(args, "--lora", loraOf(t, model, "ffn_up_exps.weight", 1))...); text == plain {
		t.Error("the adapter changes nothing")
	}
}

func TestControlVector(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	one, two := controlVector(t, 256, 1, 2, 3, 4, 5), controlVector(t, 256, 3)
	for name, args := range map[string][]string{
		"one": {"--control-vector", one}, "scaled": {"--control-vector-scaled", one + ":-3"},
		"two":             {"--control-vector", one, "--control-vector-scaled", two + ":2"},
		"range":           {"--control-vector", one, "--control-vector-layer-range", "2", "4"},
		"to the end":      {"--control-vector", one, "--control-vector-layer-range", "4", "0"},
		"with an adapter": {"--control-vector", one, "--lora", loraOf(t, testenv.Model(t), "attn_v.weight", 0.3)},
	} {
		t.Run(name, func(t *testing.T) { changed(t, args...) })
	}
}

// TestCacheTypes compares the text of every type of K and V caches. F32 and F16 caches may well give the same text.
func TestCacheTypes(t *testing.T) {
	base := []string{"-m", testenv.Model(t), "-p", longPrompt + "func (r *Reader) ", "-n", "24", "--temp", "0", "-t",
		"1"}
	for _, pair := range brief(testenv.ByDay([][2]string{
		{"f32", "f32"}, {"bf16", "bf16"}, {"q8_0", "q8_0"}, {"q5_1", "q5_1"}, {"q5_0", "q5_0"}, {"q4_1", "q4_1"},
		{"q4_0", "q4_0"}, {"iq4_nl", "iq4_nl"}, {"q4_0", "f16"}, {"f16", "q5_0"},
	}, 5), 1) {
		t.Run(pair[0]+" "+pair[1], func(t *testing.T) { same(t, append(base, "-ctk", pair[0], "-ctv", pair[1])...) })
	}
}

func TestRope(t *testing.T) {
	testenv.Once(t, "TestGreedyPrompts")
	for name, args := range map[string][]string{
		"linear":    {"--rope-scaling", "linear", "--rope-scale", "4"},
		"none":      {"--rope-scaling", "none", "--rope-freq-base", "500"},
		"frequency": {"--rope-freq-base", "100000", "--rope-freq-scale", "0.3"},
		"yarn":      {"--rope-scaling", "yarn", "--rope-scale", "8", "--yarn-orig-ctx", "64"},
		"yarn, all set": {"--rope-scaling", "yarn", "--rope-scale", "4", "--yarn-orig-ctx", "64", "--yarn-ext-factor",
			"0.5", "--yarn-attn-factor", "1.5", "--yarn-beta-slow", "2", "--yarn-beta-fast", "16"},
	} {
		t.Run(name, func(t *testing.T) { changed(t, args...) })
	}
}

func TestAdapterErrors(t *testing.T) {
	narrow := []gguf.Tensor{{Name: "blk.0.attn_q.weight.lora_a", Type: gguf.F32, Shape: []int64{8, 4}},
		{Name: "blk.0.attn_q.weight.lora_b", Type: gguf.F32, Shape: []int64{4, 8}}}
	lora := func(change func(map[string]any)) []string {
		meta := loraMeta()
		change(meta)
		return []string{"--lora", writeTensors(t, "lora.gguf", meta, narrow, 1)}
	}
	vector := func(tensor gguf.Tensor) []string {
		return []string{"--control-vector", writeTensors(t, "vector.gguf", nil, []gguf.Tensor{tensor}, 1)}
	}
	tests := []struct {
		name string
		args []string
		is   error
		want string
	}{
		{"missing", []string{"--lora", "/nope.gguf"}, os.ErrNotExist, "/nope.gguf"},
		{"a model", []string{"--lora", testenv.Model(t)}, nil, "general.type is not"},
		{"of another model", lora(func(map[string]any) {}), llama.ErrAdapter, "incorrect shape"},
		{"of another architecture", lora(func(m map[string]any) { m["general.architecture"] = "qwen3" }), nil,
			`is not "llama"`},
		{"a number for a text", lora(func(m map[string]any) { m["adapter.type"] = int32(1) }), nil,
			"adapter.type is not"},
		{"a text for a number", lora(func(m map[string]any) { m["adapter.lora.alpha"] = "8" }), nil, "32-bit float"},
		{"whole numbers", []string{"--lora", writeTensors(t, "lora.gguf", loraMeta(),
			[]gguf.Tensor{{Name: "blk.0.attn_q.weight.lora_a", Type: gguf.I32, Shape: []int64{256, 4}}}, 1)},
			gguf.ErrMalformed, "no adapter can have this type"},
		{"no vector", []string{"--control-vector", "/nope.gguf"}, os.ErrNotExist, "/nope.gguf"},
		{"a model as vector", []string{"--control-vector", testenv.Model(t)}, nil, "direction.LAYER"},
		{"a vector without tensors", []string{"--control-vector", writeTensors(t, "empty.gguf", nil, nil, 1)}, nil,
			"no tensors"},
		{"a narrow vector", []string{"--control-vector", controlVector(t, 64, 1)}, nil, "this model is 256 wide"},
		{"layer 0", []string{"--control-vector", controlVector(t, 256, 0)}, nil, "from 1 on"},
		{"two dimensions", vector(gguf.Tensor{Name: "direction.1", Type: gguf.F32, Shape: []int64{256, 2}}), nil,
			"not a row of F32"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := runner.Run(context.Background(),
				runner.Options{Config: parse(t, append([]string{"-p", "a", "-n", "1", "-t", "1"}, test.args...)...)})
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Fatalf("got %v, want one line with %q", err, test.want)
			}
			t.Log(err)
		})
	}
}
