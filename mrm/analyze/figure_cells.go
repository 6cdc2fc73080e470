package analyze

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/llamatap/llamatap/inspect/sheet"
)

// metricFigure is one metric of the cells of an experiment.
type metricFigure struct {
	Name string // of the file, without its end
	sheet.Cells
}

// DrawAcross draws each metric into a folder: a dot for each mean, with its interval as a bar. It returns the paths
// of the files. A figure of an earlier call that has nothing to draw now, or another form, is removed.
func DrawAcross(metricFigures []metricFigure, dir string, forms []string) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of figures: %w", err)
	}
	for i := range metricFigures {
		var picture *sheet.Picture
		if len(metricFigures[i].Means) > 0 {
			picture = metricFigures[i].Picture()
		}
		saved, err := picture.SaveForms(filepath.Join(dir, metricFigures[i].Name), forms)
		paths = append(paths, saved...)
		if err != nil {
			return paths, err
		}
	}
	return paths, nil
}
