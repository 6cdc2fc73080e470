package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
	// The file appears under its name only when it is complete, and for its owner alone: reports quote prompts.
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w: choose another place with -o", name, err)
	}
	defer os.Remove(f.Name()) // gone already after the renaming
	if err := errors.Join(buffered(f), f.Close()); err != nil {
		return rundir.ExplainFull(name, err)
	}
	return os.Rename(f.Name(), name)
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

// choice returns what stores one of some words.
func choice(to *string, words ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("use %s", strings.Join(words, ", "))
		}
		*to = s
		return nil
	}
}
