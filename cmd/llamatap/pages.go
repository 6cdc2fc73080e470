package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
)

// page is what the help of a subcommand says, taken apart. Manual pages and completions are made of it, so that
// they say what help says, which comes from the tables of flags.
type page struct {
	command command
	usage   []string // the lines behind "usage:"
	text    []string // lines before and between the flags, their headings left out
	flags   []flagText
}

// flagText is one flag as help shows it.
type flagText struct {
	names []string // as they are written, with dashes
	form  string   // of the value; "" where there is none
	help  string
}

// values are the words that the form lists, if it does.
func (f *flagText) values() []string {
	form := strings.TrimSuffix(strings.TrimPrefix(f.form, "[="), "]")
	if !strings.Contains(form, "|") || strings.ContainsAny(form, "[<:, ") {
		return nil
	}
	var words []string
	for _, word := range strings.Split(form, "|") {
		if word != strings.ToUpper(word) {
			words = append(words, word)
		}
	}
	return words
}

// takesFile tells whether the value is the path of a file or folder.
func (f *flagText) takesFile() bool {
	return regexp.MustCompile(`^(FILE|FNAME|DIR|PATH|MODEL|model|folder)\b`).MatchString(f.form)
}

// detached tells whether the value is an argument of its own.
func (f *flagText) detached() bool { return f.form != "" && !strings.HasPrefix(f.form, "[=") }

// pages are those of all subcommands.
func pages() ([]page, error) {
	self, err := llama.Self()
	if err != nil {
		return nil, err
	}
	var all []page
	for _, c := range commands() {
		text, err := exec.Command(self, c.name, "--help").CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("help of %s: %w", c.name, err)
		}
		p := parsePage(string(text))
		p.command = c
		all = append(all, p)
	}
	return all, nil
}

// parsePage takes help apart: its first line is a title, "usage:" begins the lines that say how to call it, a line
// that is indented by two and begins with a dash begins a flag, and what is indented further belongs to that.
func parsePage(help string) (p page) {
	var current *flagText
	inUsage := false
	for i, line := range strings.Split(strings.TrimRight(help, "\n"), "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case i == 0:
		case strings.HasPrefix(line, "usage: "):
			p.usage, inUsage = append(p.usage, strings.TrimPrefix(line, "usage: ")), true
		case inUsage && trimmed != "":
			p.usage = append(p.usage, trimmed)
		case strings.HasPrefix(line, "  -"):
			if n := len(p.text) - 1; current == nil && n >= 0 && strings.HasSuffix(p.text[n], ":") { // their heading
				p.text = p.text[:n]
			}
			p.flags = append(p.flags, parseFlag(trimmed))
			current = &p.flags[len(p.flags)-1]
		case current != nil && strings.HasPrefix(line, "    "):
			current.help = strings.TrimSpace(current.help + " " + trimmed)
		default:
			inUsage, current = false, nil
			p.text = append(p.text, line)
		}
	}
	return p
}

// A flag's first line: its names, the form of its value, of one or two words, and the help behind two spaces;
// behind one where the column is too narrow for more.
var (
	flagHead   = regexp.MustCompile(`^(-[^\s,=\[]+(?:, -[^\s,=\[]+)*)(?:(\[=[^\]]*\])| (\S+(?: \S+)?))?(?:\s{2,}(.*))?$`)
	narrowHead = regexp.MustCompile(`^(-[^\s,=\[]+(?:, -[^\s,=\[]+)*)(?:(\[=[^\]]*\])| (\S+))? (.*)$`)
)

func parseFlag(line string) (f flagText) {
	m := flagHead.FindStringSubmatch(line)
	if m == nil {
		m = narrowHead.FindStringSubmatch(line)
	}
	if m == nil {
		return flagText{names: strings.Fields(line)[:1]}
	}
	f.names, f.form, f.help = strings.Split(m[1], ", "), m[2]+m[3], m[4]
	return f
}
