package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/internal/terminal"
)

// reportForm is the form of a report and where it goes. Every command that reads runs has the same flags for it:
// --format, --json, -o FILE.
type reportForm struct {
	form  string
	forms []string
	json  bool
	file  string
}

// define adds the flags. The first form is the default.
func (r *reportForm) define(flags *flag.FlagSet, forms ...string) {
	r.forms = forms
	flags.StringVar(&r.form, "format", forms[0], "write `FORMAT`: "+strings.Join(forms, ", "))
	flags.BoolVar(&r.json, "json", false, "write JSON: --format json")
	flags.StringVar(&r.file, "o", "-", "`FILE` to write; - is standard output")
}

// check reports a form that the command does not write. Its error is a wrong use.
func (r *reportForm) check() error {
	switch {
	case !slices.Contains(r.forms, r.form):
		return exitStatus{Code: 2, Err: fmt.Errorf("--format %.40q: use %s", r.form, strings.Join(r.forms, ", "))}
	case r.json && r.form != r.forms[0] && r.form != "json":
		return exitStatus{Code: 2, Err: fmt.Errorf("--json and --format %s contradict each other: drop one", r.form)}
	case slices.Contains(r.forms, r.file):
		return exitStatus{Code: 2, Err: fmt.Errorf("-o names a file: use --format %s, or -o ./%s for a file of that name", r.file, r.file)}
	case r.json:
		r.form = "json"
	}
	return nil
}

// write writes the report to where it goes. A file is created for its owner alone: reports quote prompts.
func (r *reportForm) write(report func(io.Writer) error) error {
	if r.file == "-" {
		out := bufio.NewWriter(terminal.Out)
		return errors.Join(report(out), out.Flush())
	}
	file, err := os.OpenFile(r.file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("-o %w: give a file in a folder that exists and may be written", err)
	}
	out := bufio.NewWriter(file)
	return errors.Join(report(out), out.Flush(), file.Close())
}
