package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/llamatap/llamatap/internal/terminal"
)

const manHelp = `llamatap man: write the manual pages

usage: llamatap man DIR

Writes llamatap.1 and one page per command into DIR, which is made. They say what help says.
`

// runMan writes the manual pages.
func runMan(args []string) error {
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		_, err := terminal.Print(manHelp)
		return err
	}
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		return exitStatus{Code: 2, Err: errors.New("write llamatap man DIR, with the folder for the pages")}
	}
	list, err := pages()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return fmt.Errorf("make the folder of the pages: %w: give another one", err)
	}
	for name, text := range manuals(list) {
		if err := os.WriteFile(filepath.Join(args[0], name), text, 0o644); err != nil {
			return fmt.Errorf("write a page: %w: give another folder", err)
		}
	}
	return nil
}

// manuals are the pages by file name.
func manuals(list []page) map[string][]byte {
	all := map[string][]byte{"llamatap.1": overview(list)}
	for _, p := range list {
		all["llamatap-"+p.command.name+".1"] = p.manual()
	}
	return all
}

func manHead(b *bytes.Buffer, title, summary string) {
	fmt.Fprintf(b, ".TH %s 1 \"\" llamatap \"llamatap's manual\"\n.SH NAME\n%s \\- %s\n", roff(strings.ToUpper(title)), roff(title), roff(summary))
}

func overview(list []page) []byte {
	var b bytes.Buffer
	manHead(&b, "llamatap", "llama.cpp with a tap")
	b.WriteString(".SH SYNOPSIS\n.B llamatap\n.I COMMAND\n.RI [ ARGUMENTS ]\n.SH COMMANDS\n")
	for _, p := range list {
		fmt.Fprintf(&b, ".TP\n.BR llamatap\\-%s (1)\n%s\n", roff(p.command.name), line(p.command.summary))
	}
	b.WriteString(".PP\nEvery program of the installed llama.cpp is a command too: see\n.BR llamatap\\-exec (1).\n")
	return b.Bytes()
}

func (p *page) manual() []byte {
	var b bytes.Buffer
	manHead(&b, "llamatap-"+p.command.name, p.command.summary)
	b.WriteString(".SH SYNOPSIS\n.nf\n")
	for _, usage := range p.usage {
		b.WriteString(line(usage) + "\n")
	}
	b.WriteString(".fi\n.SH DESCRIPTION\n")
	p.describe(&b)
	if len(p.flags) > 0 {
		b.WriteString(".SH OPTIONS\n")
	}
	for _, f := range p.flags {
		fmt.Fprintf(&b, ".TP\n.B %s", roff(strings.Join(f.names, ", ")))
		if f.form != "" {
			separator := " "
			if !f.detached() {
				separator = ""
			}
			b.WriteString(separator + roff(f.form))
		}
		fmt.Fprintf(&b, "\n%s\n", line(f.help))
	}
	b.WriteString(".SH SEE ALSO\n.BR llamatap (1)\n")
	return b.Bytes()
}

// describe writes the text: paragraphs, and indented lines as they stand.
func (p *page) describe(b *bytes.Buffer) {
	asIs, paragraph := false, false
	for _, text := range p.text {
		indented := strings.HasPrefix(text, " ")
		if indented != asIs {
			b.WriteString(map[bool]string{true: ".PP\n.nf\n", false: ".fi\n"}[indented])
			asIs, paragraph = indented, true
		}
		switch {
		case strings.TrimSpace(text) == "":
			paragraph = false
		case indented:
			b.WriteString(line(text) + "\n")
		default:
			if !paragraph {
				b.WriteString(".PP\n")
			}
			b.WriteString(line(text) + "\n")
			paragraph = true
		}
	}
	if asIs {
		b.WriteString(".fi\n")
	}
}

// roff makes text safe within a line.
func roff(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "–", `\-`, "×", "x", "−", `\-`, "µ", "u", "≥", ">=", "≤", "<=").Replace(s)
}

// line makes text safe as a line of its own.
func line(s string) string {
	s = roff(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		return `\&` + s
	}
	if s == "" {
		return `\&`
	}
	return s
}
