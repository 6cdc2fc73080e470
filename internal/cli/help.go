package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// widest is the number of columns that help takes where it is not written to a narrower terminal, and column where
// the text of a flag begins.
const (
	widest    = 100
	narrowest = 60
	column    = 34
)

// helpText is help in the making, for so many columns.
type helpText struct {
	strings.Builder
	width int
}

// newHelpText is for out's width, where out is a terminal and says so.
func newHelpText(out io.Writer) *helpText {
	h := &helpText{width: widest}
	if terminal, ok := out.(interface{ Columns() int }); ok && terminal.Columns() > 0 {
		h.width = min(max(terminal.Columns(), narrowest), widest)
	}
	return h
}

// writeHelp writes the help of sub, a command of c; all includes the flags that --help leaves out.
func writeHelp(out io.Writer, c, sub *Command, name string, all bool) error {
	b := newHelpText(out)
	full := c.full(name)
	fmt.Fprintf(b, "%s: %s\n", full, sub.Summary)
	for i, usage := range sub.usages() {
		if sub.Hidden && usage == "" {
			break
		}
		fmt.Fprintf(b, "%s%s\n", []string{"\nusage: ", "       "}[min(i, 1)], strings.TrimSpace(full+" "+usage))
	}
	if sub.Text != "" {
		b.WriteString("\n")
		b.text(sub.Text)
	}
	nameWidth := 14
	for _, s := range sub.Commands {
		if !s.Hidden {
			nameWidth = max(nameWidth, len(s.Name))
		}
	}
	if len(sub.Commands) > 0 {
		b.WriteString("\nCommands:\n")
	}
	for _, s := range sub.Commands {
		if !s.Hidden {
			b.wrap(s.Summary, fmt.Sprintf("  %-*s ", nameWidth, s.Name), strings.Repeat(" ", nameWidth+3))
		}
	}
	f, _ := sub.flags()
	f.write(b, full, all)
	if sub.Footer != nil {
		b.WriteString("\n")
		b.text(sub.Footer())
	}
	_, err := io.WriteString(out, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}

// write writes the flags below their headings.
func (f *Flags) write(b *helpText, full string, all bool) {
	group, hidden, first := "", 0, true
	for _, flag := range f.List {
		if len(flag.Names) == 0 || flag.More && !all {
			hidden += min(len(flag.Names), 1)
			continue
		}
		if first || flag.Group != group {
			group, first = flag.Group, false
			if group == "" {
				b.WriteString("\nFlags:\n")
			} else {
				b.WriteString("\n")
				b.wrap(group+":", "", "")
			}
		}
		head := "  " + flag.Usage()
		if utf8.RuneCountInString(head)+2 > column {
			b.WriteString(head + "\n")
			head = ""
		}
		indent := strings.Repeat(" ", column)
		text := flag.Text(all)
		b.wrap(text, head+indent[utf8.RuneCountInString(head):], indent)
	}
	if hidden > 0 {
		fmt.Fprintf(b, "\n%d more flags: '%s --help-all'\n", hidden, full)
	}
}

// Usage is how the flag is written: its names and the form of its value.
func (flag *Flag) Usage() string {
	names := strings.Join(append(flag.Names[:len(flag.Names):len(flag.Names)], flag.Off...), ", ")
	switch {
	case flag.Bare != "":
		return names + flag.Value
	case flag.Value != "":
		return names + " " + flag.Value
	}
	return names
}

// Text is the help of a flag with its default, and its environment variable if all is asked for.
func (flag *Flag) Text(all bool) string {
	text := flag.Help
	if flag.Default != "" {
		text += " (default: " + flag.Default + ")"
	}
	if flag.Env != "" && all {
		text += " (env: " + flag.Env + ")"
	}
	return text
}

// text writes a text with its paragraphs wrapped; indented lines stay as they are.
func (h *helpText) text(text string) {
	if text == "" {
		return
	}
	var paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			h.wrap(strings.Join(paragraph, " "), "", "")
			paragraph = nil
		}
	}
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		flush()
		h.WriteString(line + "\n")
	}
	flush()
}

// wrap writes text in lines of at most the width; the first begins with first, the others with indent.
func (h *helpText) wrap(text, first, indent string) {
	line, empty := first, true
	for _, word := range strings.Fields(text) {
		switch {
		case empty:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > h.width:
			h.WriteString(line + "\n")
			line = indent + word
		default:
			line += " " + word
		}
		empty = false
	}
	h.WriteString(strings.TrimRight(line, " ") + "\n")
}
