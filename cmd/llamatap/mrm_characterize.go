package main

import (
	"fmt"

	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/mrm/analyze"
)

func mrmCharacterizeCommand() *cli.Command {
	return &cli.Command{
		Name: "characterize", Summary: "make a data set that can be published from sealed runs of experiments",
		Usage: "DIR|s3://BUCKET/PREFIX… --out FOLDER [flags]", Min: 1, Max: -1,
		Needs: "no folder: give one that holds results, as in 'llamatap mrm characterize results --out dataset'",
		Text: `Reads the ledgers of all sealed runs below the folders, and writes one row for each run, phase and type
of region: read:write, retention with censoring, write-once, reuse distance, working set, bytes per token. With it come
how far samples agree with the ledgers, a schema, figures, a data card and checksums. docs/DATASET.md describes it.

  llamatap mrm characterize results --out dataset
`,
		Define: func(f *cli.Flags) func([]string) error {
			out, isAll, none := "", false, false
			forms, _ := sheet.ParseForms(defaultFigures)
			f.Add("--out FOLDER", &out, "folder of the data set")
			defineFigures(f, &forms, &none)
			f.Add("--contaminated", &isAll, "include contaminated runs, whose times are marked")
			return func(args []string) error {
				if none {
					forms = nil
				}
				return characterize(args, out, isAll, forms)
			}
		},
	}
}

// characterize writes a data set.
func characterize(dirs []string, out string, isAll bool, forms []string) error {
	if out == "" {
		return fmt.Errorf("no folder of the data set: give one with --out FOLDER")
	}
	ctx, stop := untilInterrupt()
	defer stop()
	dirs, err := fetchFolders(dirs)
	if err != nil {
		return err
	}
	found, err := analyze.Find(dirs, isAll)
	if err != nil {
		return err
	}
	bar := present.NewProgress(progressTerminal(true), "characterizing")
	c, err := analyze.Characterize(ctx, found, bar.Of)
	bar.Done()
	if err != nil {
		return err
	}
	if err := c.Save(out, forms); err != nil {
		return err
	}
	fmt.Fprintf(present.Err, "llamatap: %s in %s; left out: %d contaminated, %d without a ledger, %d of no "+
		"experiment\n", present.Plural(c.Runs, "run"), out, len(found.Contaminated), len(c.NoLedger), found.Others)
	return nil
}
