package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	held "github.com/llamatap/llamatap/inspect/report"
	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/store/rundir"
)

const runsHelp = `llamatap runs: the runs that were recorded, newest first

usage: llamatap runs [DIR] [-n N] [--json]

Lists name, model, tokens, recorders, size and state of the run directories below DIR; without it, below $LLAMATAP_OUT or llamatap-runs.
Every command that reads a run takes its directory, its name, the last four characters of its name, or nothing: the newest run.

  llamatap runs
  llamatap runs -n 5
  llamatap inspect                           the newest run
  llamatap kv run_20261122_113205_8c1f       by its name

flags:
`

// runRuns lists runs.
func runRuns(args []string) error {
	flags := newFlags("runs", runsHelp)
	most := flags.Int("n", 0, "only the newest `N`; 0 is all")
	asJSON := flags.Bool("json", false, "write JSON")
	rest, err := parseAnyFlags(flags, args)
	if err != nil || rest == nil {
		return err
	}
	if len(rest) > 1 || *most < 0 {
		return exitStatus{Code: 2, Err: errors.New("give one folder of runs at most, and -n from 0; 'llamatap runs --help' shows how")}
	}
	folder := defaultOut()
	if len(rest) == 1 {
		folder = rest[0]
	}
	found := rundir.Find(folder)
	if *most > 0 {
		found = found[:min(*most, len(found))]
	}
	runs := []*held.Run{}
	for _, dir := range found {
		r, err := held.Read(dir)
		if err != nil {
			fmt.Fprintf(terminal.Err, "llamatap: %v\n", err)
			continue
		}
		runs = append(runs, r)
	}
	if *asJSON {
		return writeJSON(terminal.Out, runs)
	}
	if len(runs) == 0 {
		return fmt.Errorf("there are no runs below %s: record one, or give another folder", folder)
	}
	return held.WriteTable(terminal.Out, runs)
}

// parseRunPath reads flags and the one run that a command reads: a directory or stream, a run's name or the last
// characters of it, or nothing for the newest. After --help it returns "" and no error.
func parseRunPath(flags *flag.FlagSet, args []string) (string, error) {
	rest, err := parseAnyFlags(flags, args)
	switch {
	case err != nil || rest == nil:
		return "", err
	case len(rest) > 1:
		err = fmt.Errorf("%d arguments where one run belongs; 'llamatap %s --help' shows how", len(rest), flags.Name())
		return "", exitStatus{Code: 2, Err: err}
	case len(rest) == 1:
		return resolveRun(rest[0])
	}
	return resolveRun("")
}

// resolveRun finds the run that an argument means: see parseRunPath. What is no run is returned as it is: who opens
// it says what is wrong.
func resolveRun(name string) (string, error) {
	if _, err := os.Stat(name); name != "" && (err == nil || strings.ContainsRune(name, filepath.Separator)) {
		return name, nil
	}
	runs := rundir.Find(defaultOut())
	if name == "" {
		if len(runs) == 0 {
			return "", exitStatus{Code: 2, Err: fmt.Errorf("there is no run below %s: give a run directory", defaultOut())}
		}
		return runs[0], nil
	}
	var found []string
	for _, run := range runs {
		if id := filepath.Base(run); id == name || strings.HasSuffix(id, "_"+name) {
			found = append(found, run)
		}
	}
	switch len(found) {
	case 0:
		return name, nil
	case 1:
		return found[0], nil
	}
	return "", exitStatus{Code: 2, Err: fmt.Errorf("%q means several runs: %s", name, strings.Join(found, ", "))}
}
