package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/bench/result"
	"github.com/llamatap/llamatap/internal/terminal"
)

// runBenchCompare compares two results, and judges them.
func runBenchCompare(args []string) error {
	flags := flag.NewFlagSet("bench compare", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var a benchArguments
	flags.Var(listValue(a.addBound), "fail-if", "")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return compareHelp(terminal.Out)
	}
	if err == nil && flags.NArg() != 2 {
		err = errors.New("give two results: llamatap bench compare OLD.json NEW.json")
	}
	if err != nil {
		return exitStatus{Code: 2, Err: err}
	}
	var rows [2][]result.Row
	for i := range rows {
		if rows[i], err = readRows(flags.Arg(i)); err != nil {
			return err
		}
	}
	changes, alone := bench.Compare(rows[0], rows[1])
	bench.WriteChanges(terminal.Out, changes)
	for _, test := range alone {
		fmt.Fprintf(terminal.Err, "llamatap: not compared: %s\n", test)
	}
	if len(changes) == 0 {
		return errors.New("the two results have no test with the same settings in common")
	}
	judgements := bench.JudgeChanges(a.bounds, changes)
	writeJudgements(terminal.Out, judgements)
	return bench.Blame(a.bounds, judgements)
}

// readRows reads the rows of one file.
func readRows(path string) ([]result.Row, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rows, err := result.Read(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return rows, nil
}

func compareHelp(out io.Writer) error {
	_, err := fmt.Fprint(out, `llamatap bench compare: what changed between two results

usage: llamatap bench compare [--fail-if BOUND[,BOUND]] OLD.json NEW.json

The files are what -o json or -o jsonl of llamatap bench or of llama-bench wrote. Tests with the same model, settings and recording are
compared, rows of the same test in one file taken together. A figure is the median with its 95 % interval, delta the change of the
medians where the rank-sum test finds one (p < 0.05), ~ elsewhere; four repetitions on each side are the fewest that can show one.

  --fail-if BOUND   exit with 1 where the ratio new / old is beyond, and not by chance: decode<0.97, prefill<0.97, both<0.97 (tests with a
                    prompt and a generation), any<0.97 (all of these), ttft>1.1, itl>1.1
`)
	return err
}
