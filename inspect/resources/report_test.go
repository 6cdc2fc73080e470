package resources

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/rundir"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden compares everything that is written of a run with golden files.
func TestGolden(t *testing.T) {
	dir := directory(t, map[string]string{rundir.EventsName: aRun().String(), "manifest.json": manifest,
		"metadata.json": metadata})
	r, err := Summarize(t.Context(), dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Path = "RUN"
	outputs := map[string]func(*bytes.Buffer) error{
		"summary.txt": func(b *bytes.Buffer) error { return r.WriteText(b) },
		"summary.json": func(b *bytes.Buffer) error {
			e := json.NewEncoder(b)
			e.SetIndent("", " ")
			return e.Encode(r)
		},
	}
	for _, by := range Tables {
		outputs["summary."+by+".csv"] = func(b *bytes.Buffer) error { return r.WriteCSV(b, by) }
	}
	for name, write := range outputs {
		var got bytes.Buffer
		if err := write(&got); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || got.String() != string(want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got.String(), want)
		}
	}
	for line := range strings.Lines(mustRead(t, "testdata/summary.txt")) {
		if n := len([]rune(line)); n > 101 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

func mustRead(t *testing.T, name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLossesOfGraphs: that graphs were lost is said whatever else was.
func TestLossesOfGraphs(t *testing.T) {
	r := &Report{Losses: []Loss{{"a", "rate", 9}, {"b", "rate", 8}, {"c", "rate", 7}, {"d", "rate", 6},
		{"graph_execution", "rate", 5}, {"e", "rate", 4}}}
	const want = "5 graph_execution events: rate; 9 a events: rate; 8 b events: rate; 7 c events: rate; " +
		"and 2 other causes"
	if got := r.lossText(); got != want || r.Losses[0].Kind != "a" {
		t.Errorf("%q", got)
	}
}

// TestLevelGivenBack: where the event of the level was given back, the level is that of the settings, unless a command
// changed it.
func TestLevelGivenBack(t *testing.T) {
	for _, c := range []struct {
		changes []rundir.Change
		rotated bool
		want    string
	}{
		{nil, true, "[DETAILED]"}, {[]rundir.Change{{Command: "tap"}}, true, "[DETAILED]"}, {nil, false, "[]"},
		{[]rundir.Change{{Command: "level", Level: "VERBOSE"}}, true, "[]"},
	} {
		m := rundir.Metadata{Version: rundir.MetadataVersion, Changes: c.changes, Config: map[string]any{
			"settings": map[string]any{"resource_level": map[string]any{"value": "DETAILED", "source": "flag"}}}}
		if c.rotated {
			m.Rotated = &rundir.Rotated{Parts: map[string]rundir.RotatedParts{rundir.EventsName: {Parts: 1}}}
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		part := 0
		if c.rotated {
			part = 1
		}
		r := summarize(t, map[string]string{rundir.MetadataName: string(text),
			rundir.PartName(rundir.EventsName, part): `{"event":"graph_execution","mono_ns":9,"phase":"decode"}` + "\n"})
		if got := fmt.Sprint(r.Levels); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
