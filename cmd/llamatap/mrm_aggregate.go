package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/mrm/analyze"
)

// runMRMAggregate puts runs together.
func runMRMAggregate(args []string) error {
	flags := newFlags("mrm aggregate", mrmAggregateHelp)
	var form reportForm
	form.define(flags, "text", "csv", "json")
	out := flags.String("out", "", "write aggregate.csv, aggregate.parquet and aggregate.json into this `FOLDER`")
	dataset := flags.String("dataset", "", "copy the runs into a partitioned dataset in this `FOLDER`")
	list := flags.String("figures", "png,svg", "with --out, draw figures as these `FORMS`, with commas: png, svg, pdf")
	none := flags.Bool("no-figures", false, "draw no figures")
	all := flags.Bool("contaminated", false, "take contaminated runs too, which every row says then")
	rest, err := parseAnyFlags(flags, args)
	if err != nil || rest == nil {
		return err
	}
	if len(rest) == 0 {
		return exitStatus{Code: 2, Err: errors.New("no folder: give one that holds results, as in 'llamatap mrm aggregate results'")}
	}
	if err := form.check(); err != nil {
		return err
	}
	forms, err := sheet.ParseForms(*list)
	if err != nil {
		return exitStatus{Code: 2, Err: fmt.Errorf("--figures: %w", err)}
	}
	if *none {
		forms = nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	found, err := analyze.Find(rest, *all)
	if err != nil {
		return err
	}
	for i := range found.Contaminated {
		r := &found.Contaminated[i]
		fmt.Fprintf(terminal.Err, "llamatap: left out: %s is contaminated (%s)\n", r.Dir, r.Validity.Why())
	}
	if found.Others+found.Unsealed > 0 {
		fmt.Fprintf(terminal.Err, "llamatap: left out: %d runs of no experiment, %d that are not sealed\n", found.Others, found.Unsealed)
	}
	result, err := analyze.Aggregate(ctx, found)
	if errors.Is(err, context.Canceled) {
		return exitStatus{Code: 130, Err: errors.New("interrupted")}
	}
	if err != nil {
		return err
	}
	if *dataset != "" {
		n, err := analyze.ExportDataset(found.Runs, *dataset)
		if err != nil {
			return err
		}
		fmt.Fprintf(terminal.Err, "llamatap: %d runs copied to %s, %d were there already\n", n, *dataset, len(found.Runs)-n)
	}
	if *out != "" {
		return writeAggregate(result, *out, forms)
	}
	return form.write(map[string]func(io.Writer) error{"text": result.WriteText, "csv": result.WriteCSV, "json": result.WriteJSON}[form.form])
}

// writeAggregate writes the result in all forms, and its figures in some. A file is there when it is whole.
func writeAggregate(r *analyze.Aggregated, dir string, forms []string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of the aggregate: %w", err)
	}
	for name, write := range map[string]func(io.Writer) error{"aggregate.csv": r.WriteCSV, "aggregate.parquet": r.WriteParquet, "aggregate.json": r.WriteJSON} {
		file, err := os.CreateTemp(dir, "."+name+".*")
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		err = errors.Join(write(file), file.Close())
		if err == nil {
			err = os.Rename(file.Name(), filepath.Join(dir, name))
		}
		if err != nil {
			os.Remove(file.Name())
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	drawn, err := analyze.DrawAcross(r.Figures(), dir, forms)
	if err != nil {
		return err
	}
	fmt.Fprintf(terminal.Err, "llamatap: %d runs in %d cells: aggregate.csv, aggregate.parquet, aggregate.json and %d figures in %s\n", r.Runs, len(r.Groups), len(drawn), dir)
	return nil
}
