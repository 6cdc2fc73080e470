package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const sampleHelp = `llamatap sample: what is only here to be taken apart

usage: llamatap sample FILE
       llamatap sample --all

Text, and an example:

  llamatap sample x.y

how it is done:
  -m, --model FNAME                     file of the model
  -fa, --flash-attn on|off|auto         attention as
                                        one operation (default: auto)
  --tap-attention[=keep|exact]          maps
  -e, --escape, --no-escape             a switch
  --tap-layers LIST
                                  only these
  --json
    	write JSON
  --by WHAT
    	by WHAT: a or b
`

func TestParsePage(t *testing.T) {
	p := parsePage(sampleHelp)
	want := []flagText{
		{[]string{"-m", "--model"}, "FNAME", "file of the model"},
		{[]string{"-fa", "--flash-attn"}, "on|off|auto", "attention as one operation (default: auto)"},
		{[]string{"--tap-attention"}, "[=keep|exact]", "maps"},
		{[]string{"-e", "--escape", "--no-escape"}, "", "a switch"},
		{[]string{"--tap-layers"}, "LIST", "only these"},
		{[]string{"--json"}, "", "write JSON"},
		{[]string{"--by"}, "WHAT", "by WHAT: a or b"},
	}
	if !reflect.DeepEqual(p.flags, want) {
		t.Errorf("flags\n%q, want\n%q", p.flags, want)
	}
	if text := strings.Join(p.text, "\n"); len(p.usage) != 2 || !strings.Contains(text, "x.y") || strings.Contains(text, "how it is done") {
		t.Errorf("usage %q, text %q", p.usage, text)
	}
	if v := p.flags[1].values(); !reflect.DeepEqual(v, []string{"on", "off", "auto"}) || p.flags[2].detached() || !p.flags[0].takesFile() {
		t.Errorf("values %q of %+v", v, p.flags)
	}
}

// allPages are the pages of the built program.
func allPages(t *testing.T) []page {
	t.Helper()
	var all []page
	for _, c := range commands() {
		text, err := self(c.name, "--help").CombinedOutput()
		if err != nil {
			t.Fatalf("%s --help: %v\n%s", c.name, err, text)
		}
		p := parsePage(string(text))
		p.command = c
		if len(p.usage) == 0 || p.usage[0] == "" {
			t.Errorf("%s: its help has no usage line", c.name)
		}
		for _, f := range p.flags {
			if f.help == "" || strings.ContainsAny(strings.Join(f.names, ""), " |[") {
				t.Errorf("%s: flag %q is not understood", c.name, f)
			}
		}
		all = append(all, p)
	}
	return all
}

// Every shell takes its script, and bash completes with it.
func TestCompletion(t *testing.T) {
	list := completions(allPages(t))
	dir := t.TempDir()
	for shell, write := range map[string]func(out *bytes.Buffer){
		"bash": func(out *bytes.Buffer) { completeBash(out, list) },
		"zsh":  func(out *bytes.Buffer) { completeZsh(out, list) },
		"fish": func(out *bytes.Buffer) { completeFish(out, list) },
	} {
		var script bytes.Buffer
		write(&script)
		path := filepath.Join(dir, shell)
		if err := os.WriteFile(path, script.Bytes(), 0o600); err != nil {
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
		"llamatap ver":                        "verify",
		"llamatap run --tap-cod":              "--tap-codec",
		"llamatap run --tap-codec z":          "zstd zstd-shuffle",
		"llamatap exec --tap-overflow ":       "block drop",
		"llamatap run -m " + dir + "/ba":      dir + "/bash",
		"llamatap inspect " + dir + "/zs":     dir + "/zsh",
		"llamatap run --no-such-flag --tap-s": "",
	} {
		script := `source "$1"; read -ra COMP_WORDS <<<"$2"; [[ $2 == *" " ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _llamatap; echo "${COMPREPLY[*]}"`
		out, err := exec.Command("bash", "-c", script, "bash", filepath.Join(dir, "bash"), line).CombinedOutput()
		got := strings.TrimSpace(string(out))
		if err != nil || want != "" && got != want || want == "" && !strings.Contains(got, "--tap-seed") {
			t.Errorf("%q completes to %q, %v; want %q", line, got, err, want)
		}
	}
}

// groff, where it is, takes the manual pages without a warning.
func TestManuals(t *testing.T) {
	dir := t.TempDir()
	for name, text := range manuals(allPages(t)) {
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
		if out, err := exec.Command("sh", "-c", `groff -man -Tascii -ww "$1" 2>&1 >/dev/null`, "sh", path).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
