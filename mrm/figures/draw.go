package figures

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/sheet"
)

// all are the figures, by the names of their files.
var all = []struct {
	name string
	draw func(*Data) *sheet.Picture // nil where there is nothing to draw
}{
	{"retention_cdf", retention},
	{"access_heatmap", heatMap},
	{"working_set", workingSet},
	{"read_write_by_phase", phases},
	{"kv_block_lives", kvLives},
	{"suitability", suitability},
	{"refresh_by_retention", refreshing},
}

// Names are the figures.
func Names() (names []string) {
	for _, f := range all {
		names = append(names, f.name)
	}
	return names
}

// ParseForms reads a list of forms ([sheet.Forms]) with commas; "" is all.
func ParseForms(list string) ([]string, error) {
	var forms []string
	for form := range strings.SplitSeq(list, ",") {
		switch form = strings.ToLower(strings.TrimSpace(form)); {
		case form == "":
		case !slices.Contains(sheet.Forms, form):
			last := len(sheet.Forms) - 1
			return nil, fmt.Errorf("unsupported image format %.20q: use %s or %s", form, strings.Join(sheet.Forms[:last], ", "), sheet.Forms[last])
		case !slices.Contains(forms, form):
			forms = append(forms, form)
		}
	}
	if forms == nil {
		return sheet.Forms, nil
	}
	return forms, nil
}

// Draw draws the figures that there is something to draw for, in these forms, into a folder that it makes where there is none, and returns
// the paths of the files. A figure of an earlier time that there is nothing to draw for any more is removed.
func Draw(d *Data, dir string, forms []string) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of figures: %w", err)
	}
	for _, f := range all {
		picture := f.draw(d)
		if picture != nil {
			picture.Warning, picture.Note = d.Warning, d.Note
		}
		saved, err := save(picture, filepath.Join(dir, f.name), forms)
		paths = append(paths, saved...)
		if err != nil {
			return paths, err
		}
	}
	return paths, nil
}

// save writes a picture in these forms, and removes it in all others; in all forms if it is nil.
func save(picture *sheet.Picture, base string, forms []string) (paths []string, err error) {
	for _, form := range sheet.Forms {
		path := base + "." + form
		if picture == nil || !slices.Contains(forms, form) {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return paths, fmt.Errorf("remove an old figure: %w", err)
			}
			continue
		}
		if err := picture.Save(path); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}
