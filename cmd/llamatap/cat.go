package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/terminal"
)

const catHelp = `llamatap cat: one captured tensor

usage: llamatap cat DIR|FILE.stream --tensor NAME [--layer N] [--token I|A:B] [--format text|npy|json] [-o FILE]

The array's first axis runs over tokens (over executions, for a tensor whose rows are no tokens); the other axes are
in C order, the reverse of ggml's. A stream without index has no shapes: packets of several lengths are shown as rows
of their greatest common divisor. text shows shape and corner values, npy is a NumPy file with the elements as stored,
json has all values.

  llamatap cat RUN --tensor l_out --layer 3
  llamatap cat RUN --tensor l_out-3 --token 0:8 --format npy -o l_out-3.npy
  llamatap cat RUN --tensor result_output --token 12 --format json

flags:
`

// catArgs are the arguments of 'llamatap cat'.
type catArgs struct {
	path  string
	form  reportForm
	slice tensors.SliceOptions
}

// runCat writes one tensor.
func runCat(args []string) error {
	a, err := parseCat(args)
	if err != nil || a == nil {
		return err
	}
	run, err := tensors.Open(a.path)
	if err != nil {
		return err
	}
	defer run.Close()
	slice, err := run.Slice(a.slice)
	if err != nil {
		return err
	}
	return writeTo(a.form.file, a.form.form == "npy", func(out io.Writer) error { return a.write(slice, out) })
}

func parseCat(args []string) (*catArgs, error) {
	var a catArgs
	flags := newFlags("cat", catHelp)
	flags.StringVar(&a.slice.Tensor, "tensor", "", "`NAME` of the tensor (needed), with or without layer suffix: l_out-3, Qcur-0#2, result_output")
	layer := flags.String("layer", "", "layer `N`, where the name has no suffix")
	token := flags.String("token", "", "only token `I`, or A:B (from A, before B; either side may be empty); default all")
	ctx := flags.String("ctx", "", "context `N`, where several have the tensor")
	a.form.define(flags, "text", "npy", "json")
	path, err := parseRunPath(flags, args)
	if err != nil || path == "" {
		return nil, err
	}
	a.path = path
	if err := a.form.check(); err != nil {
		return nil, err
	}
	if err := a.settle(*layer, *token, *ctx); err != nil {
		return nil, exitStatus{Code: 2, Err: err}
	}
	return &a, nil
}

// settle parses the flags that need it and checks the rest.
func (a *catArgs) settle(layer, token, ctx string) (err error) {
	if a.slice.Tensor == "" {
		return fmt.Errorf("no tensor: give its name with --tensor; 'llamatap inspect %s --tensor \"*\"' lists them", a.path)
	}
	if a.slice.Layer, err = parseLayerFlag(layer); err != nil {
		return err
	}
	if a.slice.First, a.slice.End, err = parseTokens(token); err != nil {
		return err
	}
	if a.slice.Ctx, err = parseCtx(ctx); err != nil {
		return err
	}
	if a.form.form == "npy" && (a.form.file == "" || a.form.file == "-") && term.IsTerminal(int(os.Stdout.Fd())) {
		return errors.New("npy is binary and standard output is a terminal: give a file with -o FILE.npy")
	}
	return nil
}

// parseCtx reads the number of a context; nil for "".
func parseCtx(text string) (*uint32, error) {
	if text == "" {
		return nil, nil
	}
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("--ctx %q: give the number of a context, from 0", text)
	}
	ctx := uint32(number)
	return &ctx, nil
}

// parseTokens reads I or A:B; End 0 is no choice, -1 no end.
func parseTokens(text string) (first, end int64, err error) {
	if text == "" {
		return 0, 0, nil
	}
	wrong := fmt.Errorf("--token %q: give a token index from 0, or A:B with B above A (B itself is left out)", text)
	from, to, isRange := strings.Cut(text, ":")
	if first, err = strconv.ParseInt(from, 10, 64); err != nil && (from != "" || !isRange) || first < 0 {
		return 0, 0, wrong
	}
	switch {
	case !isRange:
		return first, first + 1, nil
	case to == "":
		return first, -1, nil
	}
	if end, err = strconv.ParseInt(to, 10, 64); err != nil || end <= first {
		return 0, 0, wrong
	}
	return first, end, nil
}

func (a *catArgs) write(s *tensors.Slice, out io.Writer) error {
	switch a.form.form {
	case "npy":
		return s.WriteNPY(out)
	case "json":
		return s.WriteJSON(out)
	}
	return s.WriteText(out)
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
	if name == "" || name == "-" {
		if binary {
			return buffered(os.Stdout)
		}
		return buffered(terminal.Out)
	}
	return writeWhole(name, buffered)
}

// writeWhole writes a file that appears under its name only when it is complete. A device or pipe is written as it is.
func writeWhole(name string, write func(io.Writer) error) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return writeInPlace(name, write)
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w: choose another place with -o", name, err)
	}
	defer os.Remove(f.Name()) // gone already after the renaming
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func writeInPlace(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w: choose another place with -o", name, err)
	}
	return errors.Join(write(f), f.Close())
}
