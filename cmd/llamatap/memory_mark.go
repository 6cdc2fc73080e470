package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/runner/memory"
)

const memoryMarkHelp = `llamatap memory mark: name what a recorded program does from now on

usage: llamatap memory mark NAME [--run DIR]

Sets a marker in a live recording of 'llamatap memory record': samples from now on are of the phase NAME, until the next marker. The names loading,
prefill, decode, warmup and teardown are phases of trace.parquet as well; any other name stands in markers.jsonl alone. 'llamatap memory RUN --by phase'
shows how long each phase was and what was sampled in it. A program that is recorded, or a script beside it, calls this command.

  llamatap memory mark loading && load && llamatap memory mark decode

flags:
`

// runMemoryMark sets a marker.
func runMemoryMark(args []string) error {
	flags := newFlags("memory mark", memoryMarkHelp)
	path := flags.String("run", "", "`DIR` of the run, or a folder whose newest live recording is meant; without it the recording that started this program, else the newest below "+defaultOut())
	asJSON := flags.Bool("json", false, "print the marker as a line of markers.jsonl")
	names, err := parseAnyFlags(flags, args)
	if err != nil || names == nil {
		return err
	}
	if len(names) != 1 {
		return exitStatus{Code: 2, Err: errors.New("give one name: llamatap memory mark NAME")}
	}
	if *path == "" {
		if *path = os.Getenv(memory.FolderEnv); *path == "" {
			*path = defaultOut()
		}
	}
	if *path == memory.Unrecorded {
		return nil
	}
	dir, mark, err := memory.Mark(*path, names[0])
	if errors.Is(err, memtrace.ErrMark) {
		return exitStatus{Code: 2, Err: err}
	}
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(terminal.Out).Encode(mark)
	}
	fmt.Fprintf(terminal.Err, "llamatap: %s: from now on %s\n", dir, mark.Name)
	return nil
}
