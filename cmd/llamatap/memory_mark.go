package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/runner/memory"
)

func memoryMarkCommand() *cli.Command {
	return &cli.Command{
		Name: "mark", Summary: "name the phase of a recorded program from now on", Usage: "NAME [--run DIR]", Min: 1,
		Max: 1, Needs: "no name: give one",
		Text: `Sets a marker in a live recording of 'llamatap memory record': samples from now on are of the phase
NAME, until the next marker. The names loading, prefill, decode, warmup and teardown are phases of trace.parquet as
well; other names are in markers.jsonl alone. 'llamatap memory RUN --by phase' shows how long each phase was and what
was sampled in it. The recorded program, or a script that runs alongside, calls this command.

  llamatap memory mark loading && load && llamatap memory mark decode
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			path := ""
			f.Add("--run DIR", &path,
				"the run, or a folder whose newest live recording is marked (default: the recording that started this "+
					"program, else the newest below "+defaultOut()+")")
			form.define(f, "text", "json")
			return func(args []string) error {
				if path == "" {
					path = os.Getenv(memory.FolderEnv)
				}
				if path == "" {
					path = defaultOut()
				}
				if path == memory.Unrecorded {
					return nil
				}
				dir, mark, err := memory.Mark(path, args[0])
				switch {
				case errors.Is(err, memtrace.ErrMark):
					return cli.Wrong(err)
				case err != nil:
					return err
				case form.form == "json":
					return form.write(func(out io.Writer) error { return jsonLines(out).Encode(mark) })
				}
				fmt.Fprintf(present.Err, "llamatap: %s: from now on %s\n", dir, mark.Name)
				return nil
			}
		},
	}
}
