package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/export"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/rundir"
)

// exportTimeline writes when a run did what, for a tool that shows time.
func (a *exportArgs) exportTimeline(ctx context.Context, run, suffix string) error {
	if err := a.onlyFlags("resource events", "--to", "--output", "--force", "--max-size"); err != nil {
		return err
	}
	var r *export.TimelineResult
	out, err := a.writeFile(run, suffix, func(file io.Writer) (err error) {
		bar := present.NewProgress(progressTerminal(true), "exporting")
		defer bar.Done()
		r, err = export.WriteTimeline(ctx, run, file, export.TimelineOptions{Format: a.to, MaxBytes: int64(a.maxSize),
			Progress: bar.Of})
		return err
	})
	if err != nil {
		return err
	}
	present.Printf("%s: %s, %d of them timed inside, %s, %s, %s\n", out, present.Plural(r.Graphs, "graph"),
		r.TimedGraphs, present.Plural(r.Tokens, "token"), present.Plural(r.Spans, "span"), present.Bytes(r.Bytes))
	if left := r.LeftOut(); left != "" {
		present.Printf("note: %s\n", left)
	}
	_, err = present.Printf("%s", howToOpen(a.to, out))
	return err
}

// writeFile writes the file of an export, out: by default one in the current folder, named after the run.
func (a *exportArgs) writeFile(run, suffix string, write func(io.Writer) error) (out string, err error) {
	if out = a.options.Out; out == "" {
		full, err := filepath.Abs(run) // of ".", too
		if err != nil {
			return "", err
		}
		out = strings.TrimSuffix(filepath.Base(full), ".jsonl") + suffix
	}
	switch info, err := os.Lstat(out); {
	case err == nil && !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: not a regular file: name another one with -o", out)
	case err == nil && !a.options.Force:
		return "", fmt.Errorf("%s: %w: name another file with -o, or give --force", out, os.ErrExist)
	}
	if err := canWrite(out, "-o"); err != nil {
		return "", err
	}
	return out, rundir.WriteFile(out, 0o600, write) // for its owner alone: it has the texts of tokens
}

// exportMooncake writes a run's requests as a Mooncake trace.
func (a *exportArgs) exportMooncake(ctx context.Context, run string) error {
	if err := a.onlyFlags("requests", "--to", "--output", "--force"); err != nil {
		return err
	}
	var r *export.Result
	out, err := a.writeFile(run, ".mooncake.jsonl", func(file io.Writer) (err error) {
		r, err = export.Mooncake(ctx, run, file)
		return err
	})
	if err != nil {
		return err
	}
	for _, note := range r.Notes {
		present.Printf("note: %s\n", note)
	}
	_, err = present.Printf("%s: %s; replay with 'llamatap bench --trace %s --url URL'\n", out,
		present.Plural(r.Rows, "request"), out)
	return err
}

// onlyFlags refuses flags that choose tensors.
func (a *exportArgs) onlyFlags(what string, names ...string) error {
	for _, flag := range a.flags.List {
		if name := flag.Names[len(flag.Names)-1]; a.flags.Given(name) && !slices.Contains(names, name) {
			return cli.Wrongf("%s chooses tensors: --to %s exports %s, leave it out", name, a.to, what)
		}
	}
	return nil
}

// howToOpen returns the instructions for viewing a timeline.
func howToOpen(format, path string) string {
	switch format {
	case export.Perfetto:
		// the port from which the Perfetto UI may fetch a local trace
		query := url.Values{"url": {"http://127.0.0.1:9001/" + filepath.Base(path)},
			"startupCommands": {`[{"id":"dev.perfetto.ExpandTracksByRegex","args":["Context.*"]},` +
				`{"id":"dev.perfetto.PinTracksByRegex","args":["tokens of sequence.*"]}]`}}
		return fmt.Sprintf("open it in https://ui.perfetto.dev, or serve it and follow the link:\n"+
			"  python3 -m http.server --bind 127.0.0.1 --directory %q 9001\n  https://ui.perfetto.dev/#!/?%s\n",
			filepath.Dir(path), query.Encode())
	case export.Chrome:
		return "open it in chrome://tracing or https://ui.perfetto.dev\n"
	case export.Speedscope:
		return "open it in https://www.speedscope.app, or with 'speedscope FILE'\n"
	}
	return fmt.Sprintf("open it with 'go tool pprof -http=: %s'; -diff_base OTHER compares two runs\n", path)
}
