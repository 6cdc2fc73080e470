package analyze

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/llamatap/llamatap/inspect/sheet"
)

// runFigures are the figures, by the names of their files.
var runFigures = []struct {
	name string
	draw func(*figureData) *sheet.Picture // nil where there is nothing to draw
}{
	{"retention_cdf", retention},
	{"access_heatmap", heatMap},
	{"working_set", workingSet},
	{"read_write_by_phase", phases},
	{"kv_block_lives", kvLives},
	{"suitability", suitability},
	{"refresh_by_retention", refreshing},
}

// drawFigures draws the figures that there is something to draw for, in these forms, into a folder that it makes where
// there is none, and returns the paths of the files. A figure of an earlier time that there is nothing to draw for
// any more is removed.
func drawFigures(d *figureData, dir string, forms []string) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of figures: %w", err)
	}
	for _, f := range runFigures {
		picture := f.draw(d)
		if picture != nil {
			picture.Warning, picture.Note = d.Warning, d.Note
		}
		saved, err := picture.SaveForms(filepath.Join(dir, f.name), forms)
		paths = append(paths, saved...)
		if err != nil {
			return paths, err
		}
	}
	return paths, nil
}
