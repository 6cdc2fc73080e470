//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// evil acts on a terminal: it clears it, sets its title, begins a C1 sequence, moves the cursor and reverses text.
const evil = "\x1b[2J\x1b]0;owned\x07\u009b31m\r\b\u202e"

// hostileRun writes a run directory in which every text that can be is evil, its own name too.
func hostileRun(t *testing.T) string {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	d, err := rundir.Create(t.TempDir(), "m", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	check(err)
	const name = "activations.stream"
	w, err := stream.Create(filepath.Join(d.Path(), name), stream.Options{Workers: 1})
	check(err)
	rows := []ggmlhooks.Row{{Index: 0, Token: 1, Seqs: []int32{0}, Phase: ggmlhooks.PhasePrefill}}
	check(w.AppendExecution(&stream.Execution{Exec: 1, Graph: 1, Phase: ggmlhooks.PhasePrefill, Rows: rows}))
	for _, node := range []string{"l_out-0", evil + "-1"} {
		check(w.Append(&stream.Packet{Name: node, Node: node, Op: evil, Occurrence: 1, Exec: 1, Graph: 1,
			Phase: ggmlhooks.PhasePrefill, TokenCount: 1,
			Rows: ggmlhooks.RowsTokens, RowDim: 1, NE: [4]int64{2, 1, 1, 1}}, make([]byte, 8), nil))
	}
	check(w.AppendLoss(stream.Loss{Cause: evil, Packets: 2, Bytes: 3}))
	check(w.Close())
	streamSum, indexSum := w.Sums()
	d.AddSum(name, streamSum.Size, streamSum.SHA256)
	d.AddSum(name+stream.IndexSuffix, indexSum.Size, indexSum.SHA256)
	check(d.WriteJSON(rundir.TokensName, map[string]any{"total_tokens": 1,
		"tokens": []any{map[string]any{"token_index": 0, "token_id": 1, "token_text": evil, "phase": "prefill",
			"seq": 0, "pos": 0}}}))
	meta := map[string]any{"version": rundir.MetadataVersion, "created": "2026-01-02T03:04:05Z", "run_id": d.ID(),
		"model":  map[string]any{"name": evil, "arch": evil, "path": evil},
		"losses": []any{map[string]any{"cause": evil, "packets": 2, "bytes": 3}}, "lossy": true,
		"command": []string{evil},
		"streams": []any{map[string]any{"name": name, "packets": 2, "codec": evil, "dtype": "f16"}}}
	check(d.WriteJSON(rundir.MetadataName, meta))
	event := func(fields map[string]any) []byte {
		text, err := json.Marshal(fields)
		check(err)
		return append(text, '\n')
	}
	log := event(map[string]any{"event": "resource_session_start", "timestamp": "1", "unix_ns": 1, "mono_ns": 1,
		"session_id": evil, "level": "DETAILED", "events_version": 1})
	log = append(log, event(map[string]any{"event": "compute_execution", "timestamp": "1", "unix_ns": 2, "mono_ns": 2,
		"ctx": 0, "source": "computed", "exec": 1, "layer_id": 0, "component_type": evil,
		"operation_type": evil, "phase": evil, "node_count": 1, "time_source": "node", "duration_ns": 9})...)
	log = append(log, event(map[string]any{"event": evil})...)
	check(os.WriteFile(filepath.Join(d.Path(), "resource.jsonl"), log, 0o600))
	for _, file := range []string{"trace.parquet", "metrics.csv", "kv_block_lifecycle.parquet", "region_map.parquet",
		"control.jsonl", "llamatap_host.jsonl"} {
		check(os.WriteFile(filepath.Join(d.Path(), file), []byte(evil), 0o600))
	}
	check(d.Seal())
	whole := filepath.Join(filepath.Dir(d.Path()), "run_"+strings.ReplaceAll(evil, "/", ""))
	check(os.Rename(d.Path(), whole))
	return whole
}

// TestOutputActsOnNoTerminal: whatever names a run, a model or a configuration holds, no command writes a control
// character but newline and tab.
func TestOutputActsOnNoTerminal(t *testing.T) {
	run, folder := hostileRun(t), t.TempDir()
	model, config, prompts := filepath.Join(folder, evil+".gguf"), filepath.Join(folder, evil+".yaml"),
		filepath.Join(folder, "prompts")
	renamed := bytes.Replace(llamatap.DefaultModel, []byte("gopher-6m"), []byte("\x1b[2Jxyz\r\b"), 1)
	broken, steer := filepath.Join(folder, "broken.gguf"), filepath.Join(folder, "steer.gguf")
	var vector bytes.Buffer
	if err := (&gguf.ControlVector{Model: evil, Directions: map[int][]float32{1: {1}}}).Write(&vector); err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{model: renamed, steer: vector.Bytes(),
		broken:  bytes.Replace(renamed, []byte("llama.block_count"), []byte("\x1b[2J.block_countt"), 1),
		config:  []byte("experiment:\n  name: \"\\e[2J\\a\"\n\"\\e[2J\": \"\\e[3J\"\n"),
		prompts: []byte(`{"id":"` + "\x7f\u009b" + `","prompt":"a","` + "\x7f" + `":1}` + "\n")} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"inspect", run}, {"inspect", run, "--json"}, {"inspect", run, "--stats"}, {"inspect", run, "--tensor", "*"},
		{"inspect", filepath.Dir(run)}, {"analyze", run, "--by", "token"}, {"analyze", run, "--format", "md"},
		{"causal", "-m", model, "--clean", "a", "--points", "resid_post.0", "-t", "1"}, {"causal", "--points", evil},
		{"causal", "-m", broken, "--clean", "a"}, {"compare-models", broken, broken, "-f", broken},
		{"vector", steer}, {"vector", steer, "--json"}, {"vector", run, evil, "-o", evil},
		{"verify", run}, {"verify", run, "--json"}, {"cat", run, "--tensor", "l_out-0"}, {"cat", run, "--tensor", evil},
		{"cat", run, "--tensor", evil + "-1"},
		{"cat", run, "--tensor", evil + "-1", "--format", "json"}, {"diff", run, run},
		{"diff", run, run, "--by", "tensor"}, {"export", run, "--to", "npy", "-o", filepath.Join(folder, "npy")},
		{"export", run, "--to", "dataset", "-o", filepath.Join(folder, evil)}, {"export", run, "--to", evil},
		{"kv", run}, {"memory", run}, {"memory", run, "--json"}, {"resource", "summary", run},
		{"resource", "summary", run, "--format", "csv", "--by", "component"},
		{"resource", "summary", run, "--json"},
		{"host", "analyze", run, "--no-charts"}, {"host", "waits", run}, {"host", evil}, {"ctl", run, "status"},
		{"ctl", filepath.Dir(run), "status"}, {"serve", filepath.Join(run, evil)},
		{"mrm", "validate", "--config", config}, {"mrm", "plan", "--config", config}, {"mrm", "analyze", run},
		{"mrm", "aggregate", filepath.Dir(run), "--out", folder},
		{"bench", "compare", config, config}, {"bench", "-f", config}, {"verify", "--repair", run},
		{"run", "--resume", run}, {evil}, {"help", evil},
		{"run", "-m", model, "-n", "1", "-p", "a", "--tap-tensors", "l_out-0", "--tap-out", folder},
		{"run", "-m", model, "-n", "1", "-p", "a", "--tap-tensors", evil, "--tap-out", folder},
		{"run", "-m", broken, "-n", "1", "-p", "a"}, {"run", "-m", broken, "-n", "1", "-p", "a", "-v"},
		{"run", "--prompts", prompts, "-n", "1"}, {"run", "--" + evil}, {"exec", evil},
	} {
		var stdout, stderr bytes.Buffer
		cmd := self(args...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run() // most fail, and say why
		for name, text := range map[string]string{"stdout": stdout.String(), "stderr": stderr.String()} {
			at := strings.IndexFunc(text, func(r rune) bool {
				return r == unicode.ReplacementChar || r == '\u202e' || unicode.IsControl(r) && r != '\n' && r != '\t'
			})
			if at >= 0 {
				t.Errorf("%q: %s has a control character: %.200q", args, name, text[max(0, at-40):])
			}
		}
		if stdout.Len()+stderr.Len() == 0 {
			t.Errorf("%q wrote nothing: it shows nothing", args)
		}
	}
}
