package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/mrm/analyze"
	"github.com/llamatap/llamatap/store/rundir"
)

// aggregation is what llamatap mrm aggregate was asked for.
type aggregation struct {
	reportForm
	out, dataset string
	forms        []string
	contaminated bool
}

func mrmAggregateCommand() *cli.Command {
	return &cli.Command{
		Name: "aggregate", Summary: "combine sealed runs of experiments",
		Usage: "DIR|s3://BUCKET/PREFIX… [flags]", Min: 1, Max: -1,
		Needs: "no folder: give one that holds results, as in 'llamatap mrm aggregate results'",
		Text: `Reads all sealed runs below the folders, in results/MODEL/RUN as in model_id=…/run_id=…, checks each
file against its manifest and each table's version, leaves contaminated runs out, and writes for each cell of the
matrix the mean of every metric over its repetitions, with its 95 % interval: Student's t, or Wilson's for the share
of runs that have a label. --dataset copies the runs into a dataset partitioned model_id=/run_id=, for DuckDB, Spark
and pandas.

  llamatap mrm aggregate results
  llamatap mrm aggregate results --format csv -o metrics.csv
  llamatap mrm aggregate results --out aggregate          aggregate.csv, .parquet, .json and figures in a folder, and
                                                          run_values: the figures of each run, partitioned
  llamatap mrm aggregate results --dataset dataset
`,
		Define: func(f *cli.Flags) func([]string) error {
			a := &aggregation{}
			none := false
			a.forms, _ = sheet.ParseForms(defaultFigures)
			a.define(f, "text", "csv", "json")
			f.Add("--out FOLDER", &a.out, "write aggregate.csv, .parquet, .json and run_values into this folder")
			f.Add("--dataset FOLDER", &a.dataset, "copy the runs into a partitioned dataset in this folder")
			defineFigures(f, &a.forms, &none)
			f.Add("--contaminated", &a.contaminated, "include contaminated runs, marked in every row")
			return func(args []string) error {
				if none {
					a.forms = nil
				}
				return a.run(args)
			}
		},
	}
}

// run combines runs.
func (a *aggregation) run(rest []string) error {
	ctx, stop := untilInterrupt()
	defer stop()
	rest, err := fetchFolders(rest)
	if err != nil {
		return err
	}
	found, err := analyze.Find(rest, a.contaminated)
	if err != nil {
		return err
	}
	for i := range found.Contaminated {
		r := &found.Contaminated[i]
		fmt.Fprintf(present.Err, "llamatap: left out: %s is contaminated (%s)\n", r.Dir, r.Validity.Why())
	}
	if found.Others+found.Unsealed > 0 {
		fmt.Fprintf(present.Err, "llamatap: left out: %s of no experiment, %d that are not sealed\n",
			present.Plural(found.Others, "run"), found.Unsealed)
	}
	bar := present.NewProgress(progressTerminal(true), "aggregating")
	result, err := analyze.Aggregate(ctx, found, bar.Of)
	bar.Done()
	if err != nil {
		return err
	}
	if a.dataset != "" {
		n, err := analyze.ExportDataset(found.Runs, a.dataset)
		if err != nil {
			return err
		}
		fmt.Fprintf(present.Err, "llamatap: %s copied to %s, %d were there already\n", present.Plural(n, "run"),
			a.dataset, len(found.Runs)-n)
	}
	if a.out != "" {
		return writeAggregate(result, a.out, a.forms)
	}
	return a.writeAs(nil, forms{"text": result.WriteText, "csv": result.WriteCSV, "json": result.WriteJSON})
}

// writeAggregate writes the result in all forms, and its figures in some.
func writeAggregate(r *analyze.Aggregated, dir string, forms []string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of the aggregate: %w", err)
	}
	for name, write := range map[string]func(io.Writer) error{"aggregate.csv": r.WriteCSV,
		"aggregate.parquet": r.WriteParquet, "aggregate.json": r.WriteJSON} {
		if err := rundir.WriteFile(filepath.Join(dir, name), 0o600, write); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	if err := r.WriteRuns(dir); err != nil {
		return err
	}
	drawn, err := analyze.DrawAcross(r.Figures(), dir, forms)
	if err != nil {
		return err
	}
	fmt.Fprintf(present.Err, "llamatap: %s in %s: aggregate.csv, aggregate.parquet, aggregate.json, "+
		"run_values and %s in %s\n", present.Plural(r.Runs, "run"), present.Plural(len(r.Groups), "cell"),
		present.Plural(len(drawn), "figure"), dir)
	return nil
}
