//go:build linux

package oracle

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

var update = flag.Bool("update", false, "write testdata anew: tables of flags, from --help of the installed "+
	"programs, and digests of recordings")

// flagged are the programs whose every flag is passed once.
var flagged = []string{"llama-completion", "llama-cli", "llama-server", "llama-bench"}

// A programFlag is one spelling of a flag, as a program's --help has it.
type programFlag struct {
	name, form string
	value      []string // what the test passes; FILE stands for a file
}

func (f programFlag) line() string {
	return strings.TrimRight(fmt.Sprintf("%-34s %-40s %s", f.name, f.form, strings.Join(f.value, " ")), " ")
}

var (
	flagLine  = regexp.MustCompile(`^ {0,2}(-[^-\s]|--[^-\s])`)
	afterName = regexp.MustCompile(`, +`)
	wide      = regexp.MustCompile(`  +`)
)

// readFlags reads the flags out of the text of --help: lines such as "-t,    --threads N          number of threads".
func readFlags(help string) (flags []programFlag) {
	for line := range strings.Lines(help) {
		if !flagLine.MatchString(line) {
			continue
		}
		head := wide.Split(afterName.ReplaceAllString(strings.TrimSpace(line), ", "), 2)[0]
		words := strings.Split(head, " ")
		n := 0
		for n < len(words) && strings.HasPrefix(words[n], "-") {
			n++
		}
		form, _, _ := strings.Cut(strings.Join(words[n:], " "), " (default")
		for i := range words[:n] {
			words[i] = strings.TrimSuffix(words[i], ",")
		}
		for _, name := range words[:n] {
			flags = append(flags, programFlag{name, form, valueOf(words[:n], form)})
		}
	}
	return flags
}

// values are for flags whose form does not show what they take.
var values = map[string]string{
	"--numa": "distribute", "--load-mode": "mmap", "--lazy-mode": "off",
	"--kv-unified-per-slot": "64", "--port": "1", "--host": "127.0.0.1", "--rpc": "127.0.0.1:1",
	"--server-base": "http://127.0.0.1:1", "--override-kv": "general.name=str:x", "--logit-bias": "1+1",
	"--chat-template":    "chatml",
	"--reasoning-format": "none", "--spec-type": "none", "--samplers": "top_k;temperature", "--json-schema": "{}",
	"--grammar": `root::="a"`, "--chat-template-kwargs": "{}", "--output": "md", "--spec-synth-rates": "0.5",
	"--mmproj-device": "none", "-pg": "1,1", "--cpu-mask": "1", "--tensor-split": "1", "--n-gpu-layers": "0",
	"--threads": "1",
}

var (
	alternatives = regexp.MustCompile(`^[<\[{]([^|,.\]>}]+)(?:\||,|\.\.\.)`)
	aNumber      = regexp.MustCompile(`^(N|M|P|L|SEED|INDEX|SECONDS|SIMILARITY|<n>|<i>|<MiB>|MiB0,.*|N0,.*|P0,.*)$`)
	aFile        = regexp.MustCompile(`^(FNAME|FILE|PATH|DIR|JINJA_TEMPLATE_FILE|<file>|<filename>)$`)
)

// valueOf is a value that suits a flag of these names and this form.
func valueOf(names []string, form string) []string {
	for _, name := range names {
		if value, ok := values[name]; ok && form != "" {
			return []string{value}
		}
	}
	switch match := alternatives.FindStringSubmatch(form); {
	case form == "":
		return nil
	case form == "START END":
		return []string{"1", "1"}
	case form == "lo-hi":
		return []string{"0-0"}
	case form == "TYPE", form == "<t>":
		return []string{"f16"}
	case strings.HasPrefix(form, "<dev"):
		return []string{"none"}
	case strings.HasPrefix(form, "<tensor name pattern>"):
		return []string{"x=CPU"}
	case strings.HasPrefix(form, "FNAME:SCALE"):
		return []string{"FILE:1"}
	case match != nil && !strings.HasPrefix(form, "[<"):
		return []string{match[1]}
	case aNumber.MatchString(form):
		return []string{"1"}
	case aFile.MatchString(form):
		return []string{"FILE"}
	}
	return []string{"x"}
}

// flagsOf reads a program's flags, and holds them against the table in testdata.
func flagsOf(t *testing.T, name string) []programFlag {
	t.Helper()
	help, _ := stock(t, name, "--help")
	flags := readFlags(help)
	if len(flags) < 50 {
		t.Fatalf("%d flags in the help of %s", len(flags), name)
	}
	var table strings.Builder
	fmt.Fprintf(&table, "# The flags of %s: name, form of the value, value that the tests pass. Made by go test "+
		"./oracle -run TestFrontFlags -update\n", name)
	for _, f := range flags {
		table.WriteString(f.line() + "\n")
	}
	golden := filepath.Join("testdata", "flags", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	sameText(t, "table of flags (-update makes it anew)", table.String(), string(want))
	return flags
}

// TestFrontFlags passes every flag of every spelling once, with a model that is not there so that the program ends
// soon, tapped and to the original. The short form takes a few of each program.
func TestFrontFlags(t *testing.T) {
	for _, name := range flagged {
		flags := flagsOf(t, name)
		step := 1
		if !testenv.Nightly() {
			step = len(flags) / 4
		}
		for i := 0; i < len(flags); i += step {
			f := flags[i]
			t.Run(name+" "+f.name, func(t *testing.T) {
				t.Parallel()
				passFlag(t, name, f)
			})
		}
	}
}

func passFlag(t *testing.T, name string, f programFlag) {
	t.Helper()
	file := textFile(t, "some text\n")
	port := freePort(t)
	run := func(start func(args ...string) result) result {
		args := append([]string{"--offline", f.name}, f.value...)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "FILE", file)
		}
		switch f.name {
		case "-m", "--model":
		case "-dr", "--docker-repo": // would ask the network whatever --offline says
			args = append(args, "--version")
		default:
			args = append(args, "-m", "/nowhere.gguf")
		}
		if name == "llama-server" {
			args = append(args, "--port", port)
		}
		return start(args...)
	}
	apart := func(cmd *exec.Cmd) result {
		cmd.Dir = t.TempDir()                                  // some write into the working folder
		cmd.Env = append(cmd.Environ(), "GGML_NO_BACKTRACE=1") // some abort, and would have a debugger look
		return end(t, cmd)
	}
	want := run(func(args ...string) result { return apart(original(t, name, args...)) })
	same(t, run(func(args ...string) result { return apart(front(t, onTap, name, args...)) }), want)
}
