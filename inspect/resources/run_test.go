package resources

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recorded makes a run directory with files, sealed or not.
func recorded(t *testing.T, out string, at time.Time, seal bool, files ...string) string {
	t.Helper()
	d, err := rundir.Create(out, "model-f16", at)
	check(t, err)
	for _, name := range files {
		check(t, d.WriteJSON(name, strings.Repeat("x", 100)))
	}
	check(t, d.WriteJSON(rundir.MetadataName, rundir.Metadata{
		Version: rundir.MetadataVersion, Created: at, RunID: filepath.Base(d.Path()),
		Model:  rundir.Model{Name: "small"},
		Tokens: &rundir.Tokens{Prompt: 3, Generated: 4}, Losses: []rundir.Loss{},
		Config: map[string]any{"recorders": []string{"resource", "kv"}},
	}))
	check(t, d.Seal())
	if !seal {
		check(t, os.Remove(filepath.Join(d.Path(), rundir.ManifestName)))
	}
	return d.Path()
}

func TestReadRun(t *testing.T) {
	out := t.TempDir()
	first := recorded(t, out, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), true, "resource.jsonl", "resource.1.jsonl",
		"kv_block_lifecycle.parquet")
	second := recorded(t, out, time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC), false, "host_waits.jsonl")
	found := rundir.Find(out)
	if len(found) != 2 || found[0] != second || found[1] != first {
		t.Fatalf("found %q, newest first", found)
	}
	r, err := ReadRun(first)
	check(t, err)
	if r.State != StateSealed || r.Model != "small" || *r.Tokens != 7 || len(r.Recorders) != 2 || r.Lossy ||
		len(r.Data) != 2 || r.Bytes < 300 {
		t.Errorf("%+v", r)
	}
	for _, d := range r.Data {
		if d.What == "resource events" && d.Bytes < 200 || d.Command == "" {
			t.Errorf("%+v", d)
		}
	}
	other, err := ReadRun(second)
	check(t, err)
	if other.State != StateCutOff || !strings.HasPrefix(other.Data[0].Command, "llamatap host waits ") {
		t.Errorf("%+v", other)
	}
	check(t, os.WriteFile(filepath.Join(second, rundir.ManifestName), []byte("{"), 0o600))
	if other, err = ReadRun(second); err != nil || other.State != StateDamaged {
		t.Errorf("with a damaged manifest: %+v, %v", other, err)
	}
	defer func(was *time.Location) { time.Local = was }(time.Local)
	time.Local = time.FixedZone("", 2*3600)
	var text, table bytes.Buffer
	check(t, errors.Join(r.WriteText(&text), WriteRuns(&table, []*Run{other, r})))
	for _, want := range []string{"small", "7", "llamatap kv " + first, "llamatap resource summary " + first} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	if lines := strings.Split(table.String(), "\n"); !strings.HasPrefix(lines[1], other.ID) ||
		!strings.HasPrefix(lines[2], r.ID) || !strings.Contains(lines[2], "  2026-01-02 05:04:05  ") {
		t.Errorf("%s", table.String())
	}
}

// TestDatasetRun: a run whose tensors went to a dataset names its folder.
func TestDatasetRun(t *testing.T) {
	r := newRun("run_1", "run_1", StateSealed)
	r.describe(&rundir.Metadata{Extra: map[string]json.RawMessage{"dataset": []byte(`{"path": "/data/set"}`)}})
	var text bytes.Buffer
	check(t, r.WriteText(&text))
	if r.Dataset != "/data/set" || !strings.Contains(text.String(), "dataset  /data/set\n") {
		t.Errorf("%+v\n%s", r, text.String())
	}
}

// TestSteeredRun: a run that was steered and captured nothing names the vectors that acted.
func TestSteeredRun(t *testing.T) {
	r := newRun("run_1", "run_1", StateSealed)
	r.describe(&rundir.Metadata{Steering: []rundir.Steering{
		{Number: 1, Vector: &rundir.Vector{File: "a.gguf", Scale: 0.5, Layers: "1-5"}, FirstExec: new(uint64(3))},
		{Number: 2, Vector: &rundir.Vector{File: "b.gguf", Scale: 1, Layers: "1-5"}},
	}})
	var text bytes.Buffer
	check(t, r.WriteText(&text))
	if got := text.String(); !strings.Contains(got, "steering  0.5 × a.gguf, layers 1-5") ||
		strings.Contains(got, "b.gguf") {
		t.Error(got)
	}
}

func TestReadNoRun(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "a.txt"), nil, 0o600))
	if _, err := ReadRun(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder without a run: %v", err)
	}
}
