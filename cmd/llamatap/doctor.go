package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/machine"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/runner/doctor"
	"github.com/llamatap/llamatap/store/object"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name: "doctor", Summary: "report what this machine lets llamatap record, and what is missing",
		Usage: "[--json] [--quick] [--tap-out DIR]\n--roofline [--json]",
		Text: `One fact a line: ok, limited, missing or unknown; what a lack costs, and how to get it. The exit status
is 0 if llamatap can record here, and 1 if one of these is missing:

` + essentials() + `
The rest costs evidence, not the recording.
`,
		Define: func(f *cli.Flags) func([]string) error {
			var form reportForm
			quick, roofline, out := false, false, defaultOut()
			f.Add("--quick", &quick,
				"do not measure the speed of disk, memory and BLAS (at most 2 s each, 128 MiB of disk and 768 MiB of "+
					"memory)")
			f.Add("--roofline", &roofline,
				"measure the limits of processors and memory (6 s, on a quiet machine), and keep them for recordings")
			f.Add("--tap-out DIR", &out, "folder in which run directories would be made")
			form.define(f, "text", "json")
			return func([]string) error {
				if question := os.Getenv(questionVariable); question != "" {
					return answer(question)
				}
				if roofline {
					return measureRoofline(&form)
				}
				facts := doctor.Examine(doctor.Options{
					Root: os.DirFS("/"), Tap: tapBeside, Out: out, Quick: quick,
					Devices:  ask[[]llama.Device](devicesQuestion),
					Products: ask[[]doctor.Product](productsQuestion), Host: tryHost, Sample: sample.Try,
				})
				var err error
				if form.form == "json" || form.file != "-" {
					err = form.writeAs(facts, forms{
						"text": func(out io.Writer) error { return doctor.Print(out, facts, false) },
					})
				} else {
					err = doctor.Print(os.Stdout, facts, colourful(os.Stdout))
				}
				if err == nil && len(doctor.Lacking(facts)) > 0 {
					err = exitStatus{Code: 1}
				}
				return err
			}
		},
	}
}

// measureRoofline prints and keeps the limits of the machine.
func measureRoofline(form *reportForm) error {
	path, err := machine.RooflineFile()
	if err != nil {
		return err
	}
	facts, err := doctor.Roofline(os.DirFS("/"), path)
	return errors.Join(form.write(func(out io.Writer) error {
		if form.form == "json" && facts != nil {
			return writeJSON(out, facts)
		}
		for _, f := range facts {
			fmt.Fprintf(out, "%-10s %s\n", f.Name, f.Value)
		}
		return nil
	}), err)
}

// essentials lists the facts that recording needs, for the help.
func essentials() string {
	var b strings.Builder
	for _, name := range doctor.Essential {
		fmt.Fprintf(&b, "  %s %s\n", name[0], name[1])
	}
	return b.String()
}

// defaultOut is the folder in which a run without --tap-out makes its directory, as far as no file says otherwise.
func defaultOut() string {
	if out := os.Getenv("LLAMATAP_OUT"); out != "" && !object.Is(out) {
		return out
	}
	return config.DefaultOut // also of a run that is copied to object storage
}

// colourful reports whether a file is a terminal whose user wants colours (https://no-color.org).
func colourful(file *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(file.Fd()))
}

// tapBeside is where the tap's object belongs: next to this binary.
func tapBeside() (string, error) { return llama.Beside(llama.TapLibrary) }

// questionVariable makes this binary answer a question about llama.cpp's backends. A driver that is broken may end the
// process that asks it, or never answer: so a process of its own asks.
const questionVariable = "LLAMATAP_DOCTOR_QUESTION"

// The questions.
const (
	devicesQuestion  = "devices"
	productsQuestion = "products"
)

// answerLimit is how long llama.cpp may take for an answer.
const answerLimit = 60 * time.Second

// answer prints the answer to a question as JSON, on the last line.
func answer(question string) error {
	if err := llama.Init(); err != nil {
		return err
	}
	var value any = llama.Devices()
	if question == productsQuestion {
		var err error
		if value, err = doctor.MeasureProducts(); err != nil {
			return err
		}
	}
	present.Println() // whatever a driver has written before stands on lines of its own
	return json.NewEncoder(present.Out).Encode(value)
}

// ask returns a function that starts this binary again to answer a question.
func ask[T any](question string) func() (T, error) {
	return func() (value T, err error) {
		self, err := llama.Self()
		if err != nil {
			return value, fmt.Errorf("%w: find this binary: %w", doctor.ErrUndecided, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
		defer cancel()
		cmd := exec.CommandContext(ctx, self, "doctor")
		cmd.Env = append(os.Environ(), questionVariable+"="+question, "OMP_WAIT_POLICY=passive")
		cmd.WaitDelay = time.Second
		var said strings.Builder
		cmd.Stderr = &said
		text, err := cmd.Output()
		var ended *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return value, fmt.Errorf("%w: llama.cpp gave no list of its %s within %v", doctor.ErrUndecided, question,
				answerLimit)
		case errors.As(err, &ended):
			return value, fmt.Errorf("%s (%w)", lastLine(said.String()), err)
		case err != nil:
			return value, fmt.Errorf("%w: %w", doctor.ErrUndecided, err)
		}
		if err := json.Unmarshal([]byte(lastLine(string(text))), &value); err != nil {
			return value, fmt.Errorf("%w: read llama.cpp's %s: %w", doctor.ErrUndecided, question, err)
		}
		return value, nil
	}
}

// lastLine is the last line of text that is not empty.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}
