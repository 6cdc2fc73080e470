package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

// sample is a program with a command of every kind of flag, and a group.
func sample(got *string) *Command {
	return &Command{Name: "prog", Summary: "a program", Commands: []*Command{
		{Name: "draw", Summary: "draw a file", Usage: "FILE [-- PROGRAM ARGUMENTS]", Min: 1, Max: 1,
			Needs: "no file: give one", Text: "Draws.\n\n  prog draw x\n",
			Define: func(f *Flags) func([]string) error {
				size, by, quiet, wait, names := 7, "layer", true, time.Second, []string(nil)
				f.Add("-s, --size N", &size, "size")
				f.Add("-by, --by layer|token", &by, "group")
				f.Add("--quiet", &quiet, "quiet").Off = []string{"--no-quiet"}
				f.Add("--wait TIME", &wait, "wait").Deprecated("--pause")
				f.Add("--name NAME", &names, "names").More = true
				f.Add("--range A B", func(s string) error { names = append(names, s); return nil }, "two").Pair = true
				flag := f.Add("--map[=keep|exact]", &by, "map")
				flag.Names, flag.Value, flag.Bare, flag.Follows = []string{"--map"}, "[=keep|exact]", "keep",
					func(s string) bool { return s == "exact" }
				return func(args []string) error {
					*got = strings.Join(append(args, by, wait.String(), strings.Join(names, ";")), " ")
					if size != 7 || !quiet {
						*got += " changed"
					}
					return nil
				}
			}},
		{Name: "host", Summary: "a group",
			Commands: []*Command{{Name: "analyze", Summary: "analyze", Define: func(*Flags) func([]string) error {
				return func([]string) error { *got = "analyzed"; return nil }
			}}}},
	}}
}

func TestRun(t *testing.T) {
	for line, want := range map[string]string{
		"draw x":                               "x layer 1s ",
		"draw -s 8 x":                          "x layer 1s  changed",
		"draw x --size=8 --by token":           "x token 1s  changed",
		"draw -size 8 x -by token":             "x token 1s  changed",
		"draw x --no-quiet --quiet=true":       "x layer 1s ",
		"draw x --no-quiet":                    "x layer 1s  changed",
		"draw --pause 2s x --name a --name -b": "x layer 2s a;-b",
		"draw --range 1 2 x":                   "x layer 1s 1 2",
		"draw --map x":                         "x keep 1s ",
		"draw --map exact x":                   "x exact 1s ",
		"draw --map=off x":                     "x off 1s ",
		"draw x -- ls -l":                      "x ls -l layer 1s ",
		"host analyze":                         "analyzed",
	} {
		got := ""
		if err := sample(&got).Run(strings.Fields(line), nil); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
	for line, want := range map[string]string{
		"drw":                `unknown command "drw": did you mean "draw"? 'prog help' lists the commands`,
		"host analyse":       `unknown command "host analyse": did you mean "analyze"?`,
		"host":               "no command: use analyze; 'prog host --help' describes them",
		"draw":               "no file: give one; 'prog draw --help' shows how",
		"draw a b":           `unexpected argument "b": put a program after --`,
		"draw a --":          "no program after --: write prog draw -- PROGRAM",
		"draw a --siz 1":     "unknown flag --siz: did you mean --size? 'prog draw --help' lists the flags",
		"draw a -xyz":        "unknown flag -xyz; 'prog draw --help' lists the flags",
		"draw a --size":      "--size needs a value: give --size N",
		"draw a --size x":    `--size "x": give a whole number`,
		"draw a --quiet=x":   `--quiet "x": this is a switch`,
		"draw a --name=\xff": "not valid UTF-8",
		"draw a --range 1":   "--range needs a value: give --range A B",
		"help draw x":        `unknown command "draw x": draw has none; 'prog draw --help' describes it`,
	} {
		got := ""
		err := sample(&got).Run(strings.Fields(line), nil)
		var wrong *UsageError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) || got != "" {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

func TestHelp(t *testing.T) {
	got := ""
	for line, want := range map[string][]string{
		"help": {"usage: prog COMMAND", "  draw           draw a file\n"},
		"draw --help": {"prog draw: draw a file\n\nusage: prog draw FILE",
			"\n  -s, --size N                    size (default: 7)\n", "1 more flags: 'prog draw --help-all'"},
		"draw --help-all": {"  --name NAME"},
		"help draw":       {"  --name NAME", "--quiet, --no-quiet", "--map[=keep|exact]"},
		"host --help":     {"  analyze        analyze\n"},
	} {
		var out bytes.Buffer
		if err := sample(&got).Run(strings.Fields(line), &out); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		for _, part := range want {
			if !strings.Contains(out.String(), part) || strings.Contains(out.String(), "--pause") {
				t.Errorf("%s: no %q in\n%s", line, part, out.String())
			}
		}
	}
}

// screen is a terminal of so many columns.
type screen struct {
	bytes.Buffer
	columns int
}

func (s *screen) Columns() int { return s.columns }

// TestHelpFits: help takes the columns that a terminal has, up to 100.
func TestHelpFits(t *testing.T) {
	got := ""
	for columns, want := range map[int]int{0: 100, 10: 60, 80: 80, 200: 100} {
		c := sample(&got)
		c.Commands[0].Text = strings.Repeat("word ", 50)
		out := &screen{columns: columns}
		if err := c.Run([]string{"help", "draw"}, out); err != nil {
			t.Fatal(err)
		}
		widest := 0
		for line := range strings.Lines(out.String()) {
			widest = max(widest, len(line)-1)
		}
		if widest > want || widest < want-len("word ") {
			t.Errorf("of %d columns it takes %d, want %d:\n%s", columns, widest, want, out)
		}
	}
}

func TestComplete(t *testing.T) {
	got := ""
	for line, want := range map[string]string{
		"d": "draw\tdraw a file", "draw --si": "--size\tsize", "draw --by ": "layer\t;token\t",
		"draw --by t": "token\t", "host ": "analyze\tanalyze",
		"draw ": ":", "draw --size ": "", "draw --map e": "exact\t", "help host a": "analyze\tanalyze",
		"draw --pau": "",
	} {
		words := strings.Split(line, " ")
		if lines := strings.Join(sample(&got).Complete(words), ";"); lines != want {
			t.Errorf("%q: %q, want %q", line, lines, want)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"layers", "tensors", "tokens", "out"}
	for name, want := range map[string]string{"layer": "layers", "token": "tokens", "tensor": "tensors", "o": "",
		"outt": "out", "output": "out", "memory": "", "": ""} {
		if got := Nearest(name, words); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if pages := sample(new(string)).Manuals(); len(pages) != 4 ||
		!bytes.Contains(pages["prog-draw.1"], []byte(`.B \-s, \-\-size N`)) {
		t.Errorf("%d pages: %s", len(pages), pages["prog-draw.1"])
	}
}
