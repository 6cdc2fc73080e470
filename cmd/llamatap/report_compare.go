package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"

	runreport "github.com/llamatap/llamatap/inspect/report"
	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

// compareRuns writes what differs between two runs, as text by default.
func compareRuns(paths [2]string, brief bool, form *reportForm, chosen bool) error {
	if !chosen {
		form.form = "text"
	}
	isPicture := slices.Contains(sheet.Forms, form.form)
	if isPicture && filepath.Ext(form.file) != "."+form.form {
		return cli.Wrongf("--format %s is written to a file: name one that ends in .%[1]s with -o", form.form)
	}
	var runs [2]*runreport.Run
	ctx, stop := untilInterrupt()
	defer stop()
	for i := range runs {
		path, err := resolveRun(paths[i])
		if err != nil {
			return err
		}
		bar := present.NewProgress(progressTerminal(true), "reading "+"ab"[i:i+1])
		runs[i], err = runreport.Read(ctx, path, bar.Of)
		bar.Done()
		if err != nil {
			return err
		}
	}
	c, err := runreport.Compare(ctx, runs[0], runs[1])
	if err != nil {
		return err
	}
	if isPicture {
		return c.Save(form.file)
	}
	if brief {
		return form.write(func(out io.Writer) error {
			_, err := fmt.Fprintf(out, "a: %s\nb: %s\n", c.A.Verdict, c.B.Verdict)
			return err
		})
	}
	return form.writeAs(c, forms{"md": c.WriteMarkdown, "html": c.WriteHTML, "text": c.WriteText})
}
