package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
)

func TestSynthWritesWhatWasAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	err := call("synth", "-o", path, "--arch", "qwen3moe", "--params", "tiny", "--type", "Q8_0", "--seed", "7",
		"--layers", "2",
		"--width", "128", "--heads", "8", "--kv-heads", "4", "--ff", "96", "--experts", "3", "--vocab", "2100",
		"--infill", "--quiet")
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	id := gguf.Identify(f, path)
	want := gguf.Identity{Name: "synth-qwen3moe-tiny", Architecture: "qwen3moe", FileType: "Q8_0",
		SizeLabel: id.SizeLabel, Layers: 2,
		Width: 128, Vocab: 2100, Context: 2048, Heads: 8, KVHeads: 4, FF: 96, Experts: 3, ExpertsUsed: 2,
		Parameters: id.Parameters, TensorBytes: id.TensorBytes}
	if id != want {
		t.Errorf("got  %+v\nwant %+v", id, want)
	}
	if id, _ := f.Metadata.Int("tokenizer.ggml.fim_pre_token_id"); id < 2000 {
		t.Errorf("token of infill: %d", id)
	}
	if up, _ := f.Tensor("blk.1.ffn_up_exps.weight"); up.Type != gguf.Q8_0 || up.Values() != 128*96*3 {
		t.Errorf("experts are %v", up)
	}
}

func TestSynthRefuses(t *testing.T) {
	folder := t.TempDir()
	out := filepath.Join(folder, "m.gguf")
	for _, c := range []struct {
		facts  string
		status int
		args   []string
	}{
		{"-o", 2, nil},
		{`"more"`, 2, []string{"-o", out, "more"}},
		{"--colour", 2, []string{"-o", out, "--colour"}},
		{`"gpt9"`, 2, []string{"-o", out, "--arch", "gpt9"}},
		{`"2b"`, 2, []string{"-o", out, "--params", "2b"}},
		{`"q9"`, 2, []string{"-o", out, "--type", "q9"}},
		{"iq4_nl", 2, []string{"-o", out, "--type", "iq4_nl"}},
		{"llama", 2, []string{"-o", out, "--experts", "4"}},
		{"vocab | 5", 2, []string{"-o", out, "--vocab", "5"}},
		{folder, 1, []string{"-o", folder}},
		{filepath.Join(folder, "none"), 1, []string{"-o", filepath.Join(folder, "none", "m.gguf")}},
	} {
		refused(t, strings.Join(append([]string{"synth"}, c.args...), " "), c.status, c.facts)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
