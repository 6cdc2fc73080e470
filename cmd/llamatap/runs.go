package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/object"
	"github.com/llamatap/llamatap/store/rundir"
)

func runsCommand() *cli.Command {
	return &cli.Command{
		Name: "runs", Summary: "list the recorded runs, newest first", Max: 1,
		Usage: "[DIR|s3://BUCKET/PREFIX] [-n N] [--json]",
		Text: `Lists name, model, time of start, tokens, recorders, size and state of the run directories in DIR and
in the folders in it; without DIR, of $LLAMATAP_OUT or llamatap-runs. Tokens are those that the model computed, not
known of a run that was killed; 'llamatap inspect' counts those that were recorded and are there. Of runs in object
storage it reads metadata alone; one that is not sealed is being copied, or its copy was cut off. Every command that
reads a run takes its directory, its name, the last characters of its name after an underscore, or nothing: the newest
run.

  llamatap runs
  llamatap runs -n 5
  llamatap inspect                           the newest run
  llamatap kv run_20261122_113205_8c1f       by its name
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			most := 0
			f.Add("-n N", &most, "only the newest N; 0 is all")
			form.define(f, "text", "json")
			return func(args []string) error {
				folder := strings.Join(args, "")
				if folder == "" {
					folder = cmp.Or(os.Getenv("LLAMATAP_OUT"), config.DefaultOut)
				}
				if most < 0 {
					return cli.Wrongf("-n %d: give a number from 0", most)
				}
				list := runsBelow
				if object.Is(folder) {
					list = runsStored
				}
				runs, err := list(folder, most)
				if err != nil {
					return err
				}
				if form.form == "json" {
					return form.write(func(out io.Writer) error { return writeJSON(out, runs) })
				}
				if len(runs) == 0 {
					if err := unreadable(folder); err != nil {
						return err
					}
					return fmt.Errorf("there are no runs in %s, nor in the folders in it: record one, or give another "+
						"folder", folder)
				}
				return form.write(func(out io.Writer) error { return resources.WriteRuns(out, runs) })
			}
		},
	}
}

// unreadable is why a folder, or one in it, cannot be looked into.
func unreadable(folder string) error {
	entries, err := os.ReadDir(folder)
	if object.Is(folder) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() && err == nil {
			_, err = os.ReadDir(filepath.Join(folder, e.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("look for runs: %w: read them as the user who recorded them", err)
	}
	return nil
}

// runsBelow reads the newest runs below a folder; most is how many at most, 0: all.
func runsBelow(folder string, most int) ([]*resources.Run, error) {
	found := rundir.Find(folder)
	if most > 0 {
		found = found[:min(most, len(found))]
	}
	runs := []*resources.Run{}
	for _, dir := range found {
		r, err := resources.ReadRun(dir)
		if err != nil {
			fmt.Fprintf(present.Err, "llamatap: %v\n", err)
			continue
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// runsStored is runsBelow of a place in object storage. It reads lists of files and metadata.
func runsStored(url string, most int) ([]*resources.Run, error) {
	from, err := openStore(url)
	if err != nil {
		return nil, err
	}
	from.Patience = cachePatience
	ctx, stop := untilInterrupt(syscall.SIGTERM)
	defer stop()
	found, err := from.Runs(ctx)
	if most > 0 {
		found = found[:min(most, len(found))]
	}
	runs := []*resources.Run{}
	for _, place := range found {
		files, m, failed := place.Contents(ctx)
		if failed != nil {
			fmt.Fprintf(present.Err, "llamatap: %v\n", failed)
			continue
		}
		runs = append(runs, resources.StoredRun(place.String(), files, m))
	}
	return runs, err
}

// resolveRun is resolveAny for commands that read one run, and name one where they are given a folder of runs.
func resolveRun(args ...string) (string, error) {
	path, err := resolveAny(args...)
	if err != nil {
		return "", err
	}
	return path, holdsRuns(path)
}

// resolveAny finds the run that the arguments of a command name. For a sealed run it prints the files whose size
// differs from the manifest.
func resolveAny(args ...string) (string, error) {
	dir, err := findRun(args...)
	if err != nil {
		return "", err
	}
	found := rundir.Resized(dir)
	for i, file := range found {
		if i == maxResized {
			fmt.Fprintf(present.Err, "llamatap: and %d more\n", len(found)-i)
			break
		}
		fmt.Fprintf(present.Err, "llamatap: DAMAGE   %s: %s\n", dir, file)
	}
	if len(found) > 0 {
		fmt.Fprintf(present.Err,
			"llamatap: figures of this run may be wrong: copy it again, or see 'llamatap verify %s'\n", dir)
	}
	return dir, nil
}

// maxResized is how many files of another size are named.
const maxResized = 4

// holdsRuns reports that a folder is not a run and has runs below it.
func holdsRuns(folder string) error {
	if _, err := resources.ReadRun(folder); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	runs := rundir.Find(folder)
	if len(runs) == 0 {
		return nil
	}
	return fmt.Errorf("%s is a folder of %s: give one of them, such as the newest, %s", folder,
		present.Plural(len(runs), "run"), runs[0])
}

// findRun finds the run that the arguments of a command name: by a directory or stream, by its name, by what follows
// the last underscore of its name, or the newest for no argument. A run in object storage is copied into the cache.
// A path that is not a run is returned unchanged: opening it reports the error.
func findRun(args ...string) (string, error) {
	name := strings.Join(args, "")
	if object.Is(name) {
		return fetchRun(name)
	}
	if _, err := os.Stat(name); name != "" && (err == nil || strings.ContainsRune(name, filepath.Separator)) {
		return name, nil
	}
	runs := rundir.Find(defaultOut())
	if name == "" {
		if len(runs) == 0 {
			return "", cli.Wrongf("there is no run below %s: give a run directory", defaultOut())
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
	return "", cli.Wrong(errors.New(name + " means several runs: " + strings.Join(found, ", ")))
}
