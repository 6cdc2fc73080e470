package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/testenv/memrun"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// TestPlot: a run that is not sealed, lossy or contaminated is marked so in the picture; a name of no form, and a run
// of which there is nothing to draw, are errors.
func TestPlot(t *testing.T) {
	write := func(m any) string { return (&memrun.Run{Model: "m", Metadata: m}).Write(t, t.TempDir()) }
	cut := write(rundir.Metadata{Version: 1, Lossy: true})
	if err := os.Remove(filepath.Join(cut, rundir.ManifestName)); err != nil {
		t.Fatal(err)
	}
	dirty := write(memory.Metadata{SchemaVersion: table.Version, Metadata: rundir.Metadata{Version: 1},
		Validity: memory.Validity{Class: memory.Contaminated}})
	for dir, want := range map[string]string{write(nil): "", cut: "not sealed (cut off); lossy",
		dirty: "contaminated, not to be published"} {
		var to plotFile
		f := &cli.Flags{}
		to.define(f)
		path := filepath.Join(t.TempDir(), "a.svg")
		if _, err := f.Parse([]string{"--plot", path}); err != nil {
			t.Fatal(err)
		}
		picture := &sheet.Picture{Style: sheet.Screen, Height: 2 * vg.Inch,
			Panels: []*plot.Plot{sheet.Screen.Panel("title")}}
		if err := to.saveRun(picture, dir); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		for _, word := range []string{"contaminated", "not sealed", "lossy"} {
			if err != nil || strings.Contains(string(text), word) != strings.Contains(want, word) {
				t.Errorf("%s: %q, %v", dir, word, err)
			}
		}
		if err := to.saveRun(nil, dir); err == nil || !strings.Contains(err.Error(), "nothing to draw") {
			t.Error(err)
		}
		for _, name := range []string{"a", "a.bmp"} {
			if _, err := f.Parse([]string{"--plot", name}); err == nil || !strings.Contains(err.Error(), "png") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
