package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/rundir"
)

// reportForm is the format of a report and where it is written. Every command that reads runs has the same flags for
// it: --format, --json, -o.
type reportForm struct {
	form string
	file string
}

// define adds the flags. The first format is the default.
func (r *reportForm) define(f *cli.Flags, forms ...string) {
	r.form, r.file = forms[0], "-"
	chosen := ""
	choose := func(form string) error {
		switch {
		case !slices.Contains(forms, form):
			return fmt.Errorf("use %s", strings.Join(forms, ", "))
		case chosen != "" && chosen != form:
			return fmt.Errorf("%s was asked for already: drop one", chosen)
		}
		r.form, chosen = form, form
		return nil
	}
	f.Add("--format "+strings.Join(forms, "|"), choose, "format of the output").Default = forms[0]
	f.Add("--json", func(string) error { return choose("json") }, "the same as --format json")
	f.Add("-o, --output FILE", func(file string) error {
		if slices.Contains(forms, file) {
			return fmt.Errorf("this names a file: use --format %s, or -o ./%s for a file of that name", file, file)
		}
		r.file = file
		return nil
	}, "file to write; - is standard output").Default = "-"
}

// write writes the report to where it goes.
func (r *reportForm) write(report func(io.Writer) error) error {
	return writeTo(r.file, r.form == "npy", report)
}

// forms are how a report is written in each format.
type forms map[string]func(io.Writer) error

// writeAs writes a report in the format that was asked for; JSON is the value, indented, if forms has none.
func (r *reportForm) writeAs(value any, all forms) error {
	if write := all[r.form]; write != nil {
		return r.write(write)
	}
	return r.write(func(out io.Writer) error { return writeJSON(out, value) })
}

// writeTo writes to a file, or to standard output for "" and -, buffered. What is binary is written as it is.
func writeTo(name string, binary bool, write func(io.Writer) error) error {
	buffered := func(out io.Writer) error {
		b := bufio.NewWriterSize(out, 1<<20)
		if err := write(b); err != nil {
			return err
		}
		return b.Flush()
	}
	switch info, err := os.Stat(name); {
	case (name == "" || name == "-") && binary:
		return buffered(os.Stdout)
	case name == "" || name == "-":
		return buffered(present.Out)
	case err == nil && !info.Mode().IsRegular(): // a device or pipe
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("write %s: %w: choose another place with -o", name, err)
		}
		return rundir.ExplainFull(name, errors.Join(buffered(f), f.Close()))
	}
	if err := canWrite(name, "-o"); err != nil {
		return err
	}
	return rundir.WriteFile(name, 0o600, write) // for its owner alone: reports quote prompts
}

// canWrite reports at once that a file cannot be written, and not after what is to be in it was computed.
func canWrite(name, flag string) error {
	if info, err := os.Stat(name); name == "" || name == "-" || err == nil && !info.IsDir() &&
		!info.Mode().IsRegular() {
		return nil
	} else if err == nil && info.IsDir() {
		return fmt.Errorf("write %s: it is a directory: name a file in it with %s", name, flag)
	}
	if err := readsToo(name, flag, os.Args[1:]); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if failure := (*os.PathError)(nil); errors.As(err, &failure) {
		return fmt.Errorf("write %s: %w: choose another place with %s", name, failure.Err, flag)
	} else if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// readsToo refuses to replace a file that the command line names more than once, since the command reads it, or that
// lies in a run, or in a folder that the command line names.
func readsToo(name, flag string, args []string) error {
	out, err := os.Stat(name)
	if err != nil {
		return nil
	}
	folder := filepath.Dir(name)
	for _, file := range []string{rundir.MetadataName, rundir.ManifestName} {
		if _, err := os.Lstat(filepath.Join(folder, file)); err == nil {
			return fmt.Errorf("%s %s is a file of a run, which stays as it is: name another one", flag, name)
		}
	}
	parent, err := os.Stat(folder)
	if err != nil {
		return err
	}
	times := 0
	for _, arg := range args {
		if _, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(arg, "-") {
			arg = value
		}
		given, err := os.Stat(arg)
		if file, _, ok := strings.Cut(arg, ":"); err != nil && ok { // a vector with its scale
			given, err = os.Stat(file)
		}
		switch {
		case err != nil:
		case os.SameFile(given, parent):
			return fmt.Errorf("%s %s is a file of %s, which the command reads: name another one", flag, name, arg)
		case os.SameFile(given, out):
			times++
		}
	}
	if times > 1 {
		return fmt.Errorf("%s %s is a file that the command reads or writes as well: name another one", flag, name)
	}
	return nil
}

// writeJSON writes indented JSON.
func writeJSON(out io.Writer, v any) error {
	encoder := jsonLines(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// jsonLines writes JSON, a line per value.
func jsonLines(out io.Writer) *json.Encoder {
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	return lines
}

// untilInterrupt returns what ends with Ctrl-C, or with one of other signals.
func untilInterrupt(others ...os.Signal) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), append(others, os.Interrupt)...)
}
