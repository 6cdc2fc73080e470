package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

// plotFile is the value of --plot: where what a command prints is drawn; "" for nowhere.
type plotFile string

// define adds the flag.
func (p *plotFile) define(f *cli.Flags) {
	f.Add("--plot FILE", func(file string) error {
		form := strings.TrimPrefix(filepath.Ext(file), ".")
		if form == "" {
			return errors.New("name a file that ends in .png, .svg or .pdf")
		}
		*p = plotFile(file)
		_, err := sheet.ParseForms(form)
		return err
	}, "draw it as well, into a file that ends in .png, .svg or .pdf")
}

// save draws a picture, if one was asked for; nil is that there is nothing to draw.
func (p plotFile) save(picture *sheet.Picture) error {
	switch {
	case p == "":
		return nil
	case picture == nil:
		return fmt.Errorf("--plot %s: there is nothing to draw", string(p))
	}
	if err := picture.Save(string(p)); err != nil {
		return fmt.Errorf("%w: choose another place with --plot", err)
	}
	fmt.Fprintf(present.Err, "llamatap: drawn in %s\n", string(p))
	return nil
}

// saveRun draws a picture of a run, and marks one that is not to be published.
func (p plotFile) saveRun(picture *sheet.Picture, dir string) error {
	if p == "" || picture == nil {
		return p.save(picture)
	}
	var marks []string
	if m, err := memory.ReadMetadata(dir); err == nil && m.Validity.Class == memory.Contaminated {
		marks = append(marks, "contaminated, not to be published: "+m.Validity.Why())
	}
	if run, err := resources.ReadRun(dir); err == nil {
		if run.State != resources.StateSealed {
			marks = append(marks, "not sealed ("+string(run.State)+")")
		}
		if run.Lossy {
			marks = append(marks, "lossy")
		}
	}
	picture.Warning = strings.Join(marks, "; ")
	return p.save(picture)
}
