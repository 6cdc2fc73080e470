//go:build linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/models"
)

// TestWrongUse starts every command wrongly: each says so in one line on stderr that names the remedy, and writes
// nothing else.
func TestWrongUse(t *testing.T) {
	folder := t.TempDir()
	file, text, model := filepath.Join(folder, "file"), filepath.Join(folder, "text"), filepath.Join(folder, "model")
	sparse := filepath.Join(folder, "sparse")
	for name, content := range map[string][]byte{file: nil, text: []byte("# a text\n\nof some lines\n"),
		model: models.Default} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A model's first bytes are the head of a packet of 1.4 GB, which a large one has room for.
	if err := errors.Join(os.WriteFile(sparse, models.Default, 0o600), os.Truncate(sparse, 2<<30)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line   string
		status int
		want   string
	}{
		{"bogus", 2, "'llamatap help' lists the commands"},
		{"expor", 2, `did you mean "export"`},
		{"help bogus", 2, "'llamatap help' lists the commands"},
		{"llama-bogus", 1, map[bool]string{true: "built without llama.cpp",
			false: "no program of the installed llama.cpp"}[llama.Version() == ""]},
		{"demo extra", 2, `unexpected argument "extra"`},
		{"synth --bogus", 2, "'llamatap synth --help' lists the flags"},
		{"install-links", 2, "write llamatap install-links"},
		{"install-links --bogus dir", 2, "'llamatap install-links --help' lists the flags"},
		{"install-links a b", 2, "'llamatap install-links --help' shows how"},
		{"man " + file, 1, "not a directory: give another one"},
		{"man", 2, "write llamatap man DIR"},
		{"completion nosh", 2, "completion bash, zsh or fish"},
		{"run --tap-ledger row -p a", 2,
			"--tap-ledger takes no value, or not this one: 'llamatap help recording' lists"},
		{"run -n 3 once --tap-ledger", 2, `unexpected argument "once": a prompt is given with -p`},
		{"exec", 2, "write llamatap exec"},
		{"exec --", 2, "write llamatap exec"},
		{"exec --bogus -- true", 2, `unexpected argument "--bogus"`},
		{"exec --bogus true", 2, "only flags of the tap stand before the program"},
		{"exec -- no-such-program", 127, "give its path, or the name of one of llama.cpp's own programs"},
		{"exec --tap-preset max --tap-config " + t.TempDir() + " -- true", 2, "is a directory: give a YAML file"},
		{"bench --bogus", 2, "'llamatap exec -- llama-bench'"},
		{"bench -f " + t.TempDir(), 2, "is a directory: give a YAML file"},
		{"bench -f " + file, 2, "has no scenarios: write the key scenarios"},
		{"ctl", 2, "'llamatap ctl --help' shows how"},
		{"resource", 2, "'llamatap resource"},
		{"resource summary", 2, "there is no run below /no/runs"},
		{"resource total x", 2, "use summary; 'llamatap resource --help'"},
		{"resource summary x --format xml", 2, "use text, json, csv"},
		{"resource summary x --format csv --by day", 2, "use cell, phase"},
		{"kv x -o json", 2, "use --format json, or -o ./json"},
		{"kv x --json --format csv", 2, "drop one"},
		{"resource summary x --by op", 2, "add --format csv or --json"},
		{"resource summary /nowhere", 1, "give a run directory"},
		{"host", 2, "'llamatap host --help' describes them"},
		{"host bogus", 2, "'llamatap host --help' describes them"},
		{"host waits", 2, "there is no run below /no/runs"}, {"runs a b", 2, "'llamatap runs --help' shows how"},
		{"runs", 1, "no runs below /no/runs"},
		{"host waits /nowhere", 1, "record a run with --tap-host waits"},
		{"host waits x --format xml", 2, "use text, json"},
		{"host block --bogus", 2, "'llamatap host block --help' lists the flags"},
		{"host block --interval 0", 2, "give seconds from 0.05"},
		{"host system --pid x", 2, "is not a process id"},
		{"host block --no-output --pid 2147483646", 1, "no such process"},
		{"host system 17", 2, "put a program after --"},
		{"host prof --only disk,cpu", 2, "use disk, syscalls, mem, sched, sync, net"},
		{"host prof top", 2, "--no-output"},
		{"host block --flush-every 0", 2, "give 1 at least"},
		{"host block --", 2, "no program after --"},
		{"host system --no-output -- no-such-program", 127, "no-such-program"},
		{"host system --no-output -- /etc/passwd", 126, "permission denied"},
		{"host block --output /nowhere/x", 1, "choose another file with --output"},
		{"host system --no-output --comm a-name-of-sixteen", 1, "give what /proc/PID/comm has"},
		{"host system --no-output --cgroup no/such", 1, "cgroup no/such"},
		{"host analyze a b", 2, "'llamatap host analyze --help' shows how"},
		{"host analyze --bogus", 2, "'llamatap host analyze --help' lists the flags"},
		{"host analyze --percentiles 50,x", 2, "write such as 50,95,99.9"},
		{"host analyze --percentiles 0", 2, "above 0 and up to 100"},
		{"host analyze --lag -1", 2, "use 0 to 1000"},
		{"host analyze --top -1", 2, "or 0 for all"},
		{"host analyze --window -1", 2, "use seconds"},
		{"host analyze /nowhere", 2, "give a run directory or a file"},
		{"host analyze " + t.TempDir(), 2, "--tap-host block,system"},
		{"host analyze --input /nowhere", 1, "record one with 'llamatap host block'"},
		{"host analyze " + file, 1, "let the recorder run"},
		{"mrm analyze", 2, "give a run directory"},
		{"mrm analyze x --config y", 2, "not both"},
		{"mrm analyze x --bogus", 2, "'llamatap mrm analyze --help' lists the flags"},
		{"mrm analyze x --figures gif", 2, "use png, svg or pdf"},
		{"mrm analyze x --years 0", 2, "use a number above 0"},
		{"mrm analyze x --high-write-once 2", 2, "use ratios from 0 to 1"},
		{"mrm analyze x --high-retention -1", 2, "use seconds from 0"},
		{"mrm analyze /nowhere", 1, "it is no sealed run"},
		{"mrm analyze --config /nowhere", 2, "give a file with --config"},
		{"mrm analyze --list-classes --classes sram", 1, "use some of hbm2"},
		{"mrm analyze --list-classes --devices " + text, 1, "docs/MRM_DATA.md"},
		{"mrm aggregate", 2, "as in 'llamatap mrm aggregate results'"},
		{"mrm aggregate x --format xml", 2, "use text, csv, json"},
		{"mrm aggregate /nowhere", 1, "there is no such folder"},
		{"mrm aggregate " + t.TempDir(), 1, "make some with 'llamatap mrm run'"},
		{"serve", 2, "as in 'llamatap serve"},
		{"serve --live --bogus", 2, "lists the flags"},
		{"serve /nowhere", 1, "give a run directory or a folder of runs"},
		{"serve . --listen 0.0.0.0:80 --no-token", 2, "unix:PATH"},
		{"serve . --token short", 2, "at least 16"},
		{"serve . --token @/nowhere", 2, "read the token"},
		{"inspect " + file, 1, "is empty: give a run directory"},
		{"inspect " + text, 1, "it is no stream: give a run directory"},
		{"inspect --json " + model, 1, "it is no stream: give a run directory"},
		{"inspect " + sparse, 1, "it is no stream: give a run directory"},
		{"cat " + text + " --tensor l_out-0", 1, "it is no stream: give a run directory"},
		{"doctor extra", 2, "'llamatap doctor --help' shows how"},
	} {
		var out, said strings.Builder
		cmd := self(strings.Fields(c.line)...)
		cmd.Stdout, cmd.Stderr = &out, &said
		cmd.Env = append(cmd.Environ(), "LLAMATAP_OUT=/no/runs")
		cmd.Run()
		got := said.String()
		if !strings.HasPrefix(got, "llamatap: ") || strings.Count(got, "\n") != 1 || !strings.Contains(got, c.want) ||
			cmd.ProcessState.ExitCode() != c.status {
			t.Errorf("%s: status %d, %q\nwant status %d, one line with %q", c.line, cmd.ProcessState.ExitCode(), got,
				c.status, c.want)
		}
		if out.Len() > 0 {
			t.Errorf("%s: wrote %q", c.line, out.String())
		}
	}
}

// TestHelpOfCommand holds that help COMMAND is COMMAND --help.
func TestHelpOfCommand(t *testing.T) {
	for _, c := range program().Commands {
		help, err := self("help", c.Name).Output()
		if err != nil || !strings.HasPrefix(string(help), "llamatap "+c.Name+": ") {
			t.Errorf("help %s: %v, %.60q", c.Name, err, help)
		}
	}
	if out, err := self("--version").Output(); err != nil ||
		!strings.HasPrefix(string(out), "llamatap "+version+", llama.cpp ") {
		t.Errorf("--version: %v, %q", err, out)
	}
}

// TestFullOutput: help that a full disk did not take ends with status 1 and the cause.
func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd := exec.Command(testenv.NeedBinary(t), "help")
	cmd.Stdout = full
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 ||
		!strings.Contains(stderr.String(), "no space left on device") {
		t.Errorf("%v: %s", err, stderr.String())
	}
}
