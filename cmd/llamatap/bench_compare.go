package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

func benchCompareCommand() *cli.Command {
	return &cli.Command{
		Name: "compare", Summary: "show what changed between two results",
		Usage: "[--fail-if BOUND[,BOUND]] OLD.json NEW.json", Min: 2, Max: 2,
		Needs: "give two results: llamatap bench compare OLD.json NEW.json",
		Text: `The files are what --format json or jsonl of llamatap bench, or -o json of llama-bench wrote. Tests
with the same model, settings and recording are compared, rows of the same test in one file taken together. A figure
is the median with its 95 % interval, delta the change of the medians where the rank-sum test finds one (p < 0.05), ~
elsewhere; it takes at least four repetitions on each side.
`,
		Define: func(f *cli.Flags) func([]string) error {
			var a benchArguments
			f.Add("--fail-if BOUND[,BOUND]", a.addBound,
				"exit with 1 where the ratio new / old is beyond, and not by chance: decode<0.97, "+
					"prefill<0.97, both<0.97 (tests with a prompt and a generation), any<0.97 (all of these), "+
					"ttft>1.1, itl>1.1")
			return func(paths []string) error { return compareResults(a.bounds, paths) }
		},
	}
}

// compareResults compares two results, and judges them.
func compareResults(bounds []bench.Bound, paths []string) (err error) {
	var rows [2][]bench.Row
	for i := range rows {
		if rows[i], err = readRows(paths[i]); err != nil {
			return err
		}
	}
	changes, alone := bench.Compare(rows[0], rows[1])
	bench.WriteChanges(present.Out, changes)
	for _, test := range alone {
		fmt.Fprintf(present.Err, "llamatap: not compared: %s\n", test)
	}
	if len(changes) == 0 {
		return errors.New("the two results have no test with the same settings in common")
	}
	judgements := bench.JudgeChanges(bounds, changes)
	writeJudgements(present.Out, judgements)
	return bench.Blame(bounds, judgements)
}

// readRows reads the rows of one file.
func readRows(path string) ([]bench.Row, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rows, err := bench.ReadRows(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return rows, nil
}
