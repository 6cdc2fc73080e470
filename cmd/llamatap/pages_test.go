package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/llamatap/llamatap/internal/cli"
)

// Every shell takes its script, and bash completes with it.
func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	for shell, script := range cli.Scripts {
		path := filepath.Join(dir, shell)
		if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("%s is not here to read its script", shell)
			continue
		}
		if out, err := exec.Command(shell, "-n", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
	for line, want := range map[string]string{
		"llamatap ver":                        "verify version",
		"llamatap host an":                    "analyze",
		"llamatap help host an":               "analyze",
		"llamatap kv --by ":                   "sequence layer time",
		"llamatap run --tap-cod":              "--tap-codec",
		"llamatap run --tap-codec z":          "zstd zstd-shuffle",
		"llamatap run --tap-codec = z":        "zstd zstd-shuffle",
		"llamatap exec --tap-overflow ":       "block drop",
		"llamatap run -m " + dir + "/ba":      dir + "/bash",
		"llamatap inspect " + dir + "/zs":     dir + "/zsh",
		"llamatap run --no-such-flag --tap-s": "",
	} {
		script := `source "$1"; read -ra COMP_WORDS <<<"$2"; COMP_WORDS[0]=$3; [[ $2 == *" " ]] && COMP_WORDS+=(""); ` +
			`COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _llamatap; echo "${COMPREPLY[*]}"`
		cmd := exec.Command("bash", "-c", script, "bash", filepath.Join(dir, "bash"), line, os.Args[0])
		cmd.Env = self().Env
		out, err := cmd.CombinedOutput()
		got := strings.TrimSpace(string(out))
		if err != nil || want != "" && got != want || want == "" && !strings.Contains(got, "--tap-seed") {
			t.Errorf("%q completes to %q, %v; want %q", line, got, err, want)
		}
	}
}

// groff, where it is, takes the manual pages without a warning.
func TestManuals(t *testing.T) {
	dir := t.TempDir()
	pages := program().Manuals()
	for _, name := range []string{"llamatap.1", "llamatap-run.1", "llamatap-host-analyze.1"} {
		if pages[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
	for name, text := range pages {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(text, []byte(".TH ")) || bytes.ContainsFunc(text, func(r rune) bool { return r > 126 }) {
			t.Errorf("%s has no head, or characters that not every terminal has", name)
		}
		if _, err := exec.LookPath("groff"); err != nil {
			continue
		}
		if out, err := exec.Command("sh", "-c", `groff -man -Tascii -ww "$1" 2>&1 >/dev/null`, "sh", path).
			CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestHelpFits: the help of every command says what each flag means, and fits a terminal; that of run fits two.
func TestHelpFits(t *testing.T) {
	var walk func(c *cli.Command, path ...string)
	walk = func(c *cli.Command, path ...string) {
		var out bytes.Buffer
		if err := program().Run(append([]string{"help"}, path...), &out); err != nil {
			t.Errorf("help %q: %v", path, err)
		}
		if c.Define != nil {
			var f cli.Flags
			c.Define(&f)
			for _, flag := range f.List {
				if len(flag.Names) > 0 && flag.Help == "" {
					t.Errorf("%q: %v has no help", path, flag.Names)
				}
			}
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 140 {
				t.Errorf("help %q: %d columns: %s", path, n, line)
			}
		}
		for _, sub := range c.Commands {
			if !sub.Hidden {
				walk(sub, append(path[:len(path):len(path)], sub.Name)...)
			}
		}
	}
	walk(program())
	help, err := self("run", "--help").Output()
	if lines := bytes.Count(help, []byte("\n")); err != nil || lines > 80 ||
		!bytes.Contains(help, []byte("--help-all")) {
		t.Errorf("run --help has %d lines: %v", lines, err)
	}
}
