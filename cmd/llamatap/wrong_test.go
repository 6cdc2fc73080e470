//go:build linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/testenv"
)

// TestWrongUse starts every command wrongly: each says so in one line on stderr that names what is at fault or
// the remedy, and writes nothing else.
func TestWrongUse(t *testing.T) {
	folder := t.TempDir()
	file, text, model := filepath.Join(folder, "file"), filepath.Join(folder, "text"), filepath.Join(folder, "model")
	sparse := filepath.Join(folder, "sparse")
	for name, content := range map[string][]byte{file: nil, text: []byte("# a text\n\nof some lines\n"),
		model: llamatap.DefaultModel} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A model's first bytes are the head of a packet of 1.4 GB, which a large one has room for.
	if err := errors.Join(os.WriteFile(sparse, llamatap.DefaultModel, 0o600), os.Truncate(sparse, 2<<30)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line   string
		status int
		want   string
	}{
		{"bogus", 2, "llamatap help"},
		{"expor", 2, `"export"`},
		{"help bogus", 2, "llamatap help"},
		{"llama-bogus", 1, map[bool]string{true: "make build", false: "llama-bogus"}[llama.Version() == ""]},
		{"demo extra", 2, `"extra"`},
		{"synth --bogus", 2, "--bogus | llamatap synth --help"},
		{"install-links", 2, "llamatap install-links"},
		{"install-links --bogus dir", 2, "--bogus | llamatap install-links --help"},
		{"install-links a b", 2, "llamatap install-links --help"},
		{"man " + file, 1, file},
		{"man", 2, "llamatap man DIR"},
		{"completion nosh", 2, "bash, zsh or fish"},
		{"run --tap-ledger row -p a", 2, "--tap-ledger | llamatap help recording"},
		{"run -n 3 once --tap-ledger", 2, `"once" | -p`},
		{"exec", 2, "llamatap exec"},
		{"exec --", 2, "llamatap exec"},
		{"exec --bogus -- true", 2, `"--bogus"`},
		{"exec --bogus true", 2, "--bogus | llamatap exec"},
		{"exec -- no-such-program", 127, "no-such-program | path"},
		{"exec --tap-preset max --tap-config " + t.TempDir() + " -- true", 2, "YAML"},
		{"bench --bogus", 2, "--bogus | llamatap exec -- llama-bench"},
		{"bench -f " + t.TempDir(), 2, "YAML"},
		{"bench -f " + file, 2, file + " | scenarios"},
		{"ctl", 2, "llamatap ctl --help"},
		{"resource", 2, "llamatap resource"},
		{"resource summary", 2, "/no/runs"},
		{"resource total x", 2, "summary | llamatap resource --help"},
		{"resource summary x --format xml", 2, `"xml" | text, json, csv`},
		{"resource summary x --format csv --by day", 2, `"day" | cell, phase`},
		{"kv x -o json", 2, "--format json | -o ./json"},
		{"kv x --json --format csv", 2, "json"},
		{"resource summary x --by op", 2, "--by | --format csv or --json"},
		{"resource summary /nowhere", 1, "/nowhere"},
		{"inspect " + model + " --points --attention", 2, "--points | --attention"},
		{"inspect " + model + " --points --format npy", 2, "npy | --attention | export --to npy"},
		{"analyze x --by lens --lens 0", 2, "--by lens | --lens 0"},
		{"report", 2, "/no/runs"}, {"report /nowhere", 1, "/nowhere | llamatap runs"},
		{"report x --brief --json", 2, "--brief | --format json"},
		{"report x --format xml", 2, `"xml" | html, text, md, json`},
		{"report x --format svg -o x.png", 2, "svg | -o"},
		{"host", 2, "llamatap host --help"},
		{"host bogus", 2, "llamatap host --help"},
		{"host waits", 2, "/no/runs"}, {"runs a b", 2, "llamatap runs --help"},
		{"runs", 1, "/no/runs | the folders in it"},
		{"host waits /nowhere", 1, "--tap-host waits"},
		{"host waits x --format xml", 2, `"xml" | text, json`},
		{"host block --bogus", 2, "--bogus | llamatap host block --help"},
		{"host block --interval 0", 2, "--interval | 0.05"},
		{"host system --pid x", 2, "--pid | x"},
		{"host block --no-output --pid 2147483646", 1, "2147483646"},
		{"host system 17", 2, `"17" | --`},
		{"host prof --only disk,cpu", 2, "cpu | disk, syscalls, mem, sched, sync, net"},
		{"host prof top", 2, "--no-output"},
		{"host block --flush-every 0", 2, "--flush-every | 1"},
		{"host block --", 2, "--"},
		{"host system --no-output -- no-such-program", 127, "no-such-program"},
		{"host system --no-output -- /etc/passwd", 126, "/etc/passwd"},
		{"host block --output /nowhere/x", 1, "/nowhere/x | --output"},
		{"host system --no-output --comm a-name-of-sixteen", 1, "a-name-of-sixteen | /proc/PID/comm"},
		{"host system --no-output --cgroup no/such", 1, "no/such"},
		{"host analyze a b", 2, "llamatap host analyze --help"},
		{"host analyze --bogus", 2, "--bogus | llamatap host analyze --help"},
		{"host analyze --percentiles 50,x", 2, "--percentiles | 50,95,99.9"},
		{"host analyze --percentiles 0", 2, "--percentiles | 100"},
		{"host analyze --lag -1", 2, "--lag | 0 to 1000"},
		{"host analyze --top -1", 2, "--top | 0"},
		{"host analyze --window -1", 2, "--window | seconds"},
		{"host analyze /nowhere", 2, "/nowhere"},
		{"host analyze " + t.TempDir(), 2, "--tap-host block,system"},
		{"host analyze --input /nowhere", 1, "/nowhere | llamatap host block"},
		{"host analyze " + file, 1, file},
		{"mrm analyze", 2, "run directory"},
		{"mrm analyze x --config y", 2, "--config"},
		{"mrm analyze x --bogus", 2, "--bogus | llamatap mrm analyze --help"},
		{"mrm analyze x --figures gif", 2, `"gif" | png, svg or pdf`},
		{"mrm analyze x --years 0", 2, "--years | 0"},
		{"mrm analyze x --high-write-once 2", 2, "--high-write-once | 0 to 1"},
		{"mrm analyze x --high-retention -1", 2, "--high-retention | 0"},
		{"mrm analyze /nowhere", 1, "/nowhere"},
		{"mrm analyze --config /nowhere", 2, "/nowhere | --config"},
		{"mrm analyze --list-classes --classes sram", 1, `sram | hbm2`},
		{"mrm analyze --list-classes --devices " + text, 1, text + " | docs/MRM_DATA.md"},
		{"mrm aggregate", 2, "llamatap mrm aggregate results"},
		{"mrm aggregate x --format xml", 2, `"xml" | text, csv, json`},
		{"mrm aggregate /nowhere", 1, "/nowhere"},
		{"mrm aggregate " + t.TempDir(), 1, "llamatap mrm run"},
		{"serve", 2, "llamatap serve"},
		{"serve --live --bogus", 2, "--bogus"},
		{"serve /nowhere", 1, "/nowhere"},
		{"serve . --listen 0.0.0.0:80 --no-token", 2, "unix:PATH"},
		{"serve . --token short", 2, "16"},
		{"serve . --token @/nowhere", 2, "/nowhere"},
		{"inspect " + file, 1, file + " | empty"},
		{"inspect " + text, 1, text + " | stream"},
		{"inspect --json " + model, 1, model + " | stream"},
		{"inspect " + sparse, 1, sparse + " | stream"},
		{"cat " + text + " --tensor l_out-0", 1, text + " | stream"},
		{"sae train " + text + " --features 64 -o " + folder, 1, text + " | run directory"},
		{"sae train x --features 64 --arch relu --k 8 -o d", 2, "--k | --arch topk | relu"},
		{"sae train x --features 64 --l1 3 -o d", 2, "--l1 | --arch relu | topk"},
		{"sae train x --features 64 --arch jumprelu --l1 3 -o d", 2, "--l1 | jumprelu"},
		{"sae train x --features 64 --arch relu --bandwidth 3 -o d", 2, "--bandwidth | --arch jumprelu"},
		{"sae train --resume c --k 3", 2, "drop --k"},
		{"vector " + folder + " -o x.gguf", 2, folder + " | the run WITHOUT"},
		{"sae train x --resume c -o d", 2, "drop x, --output"},
		{"doctor extra", 2, "llamatap doctor --help"},
	} {
		var out, said strings.Builder
		cmd := self(strings.Fields(c.line)...)
		cmd.Stdout, cmd.Stderr = &out, &said
		cmd.Env = append(cmd.Environ(), "LLAMATAP_OUT=/no/runs")
		cmd.Run()
		got := said.String()
		if !strings.HasPrefix(got, "llamatap: ") || strings.Count(got, "\n") != 1 || !names(got, c.want) ||
			cmd.ProcessState.ExitCode() != c.status {
			t.Errorf("%s: status %d, %q\nwant status %d, one line that names %s", c.line, cmd.ProcessState.ExitCode(),
				got,
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
