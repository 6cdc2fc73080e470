package cli

import (
	"bytes"
	"fmt"
	"strings"
)

// Manuals returns the manual pages of the program and of each command, by file name.
func (c *Command) Manuals() map[string][]byte {
	all := map[string][]byte{}
	manual(all, c, c, "")
	return all
}

// manual adds the page of sub, a command of c, and of what is below it.
func manual(all map[string][]byte, c, sub *Command, name string) {
	page := strings.ReplaceAll(c.full(name), " ", "-")
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s \"%s's manual\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.nf\n",
		roff(strings.ToUpper(page)), c.Name, c.Name, roff(page), roff(sub.Summary))
	for _, usage := range sub.usages() {
		b.WriteString(roffLine(strings.TrimSpace(c.full(name)+" "+usage)) + "\n")
	}
	b.WriteString(".fi\n.SH DESCRIPTION\n")
	describe(&b, sub.Text)
	if len(sub.Commands) > 0 {
		b.WriteString(".SH COMMANDS\n")
	}
	for _, s := range sub.Commands {
		if !s.Hidden {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(page+"-"+s.Name), roffLine(s.Summary))
			manual(all, c, s, strings.TrimSpace(name+" "+s.Name))
		}
	}
	f, _ := sub.flags()
	group := "OPTIONS"
	for i, flag := range f.List {
		if i == 0 {
			b.WriteString(".SH OPTIONS\n")
		}
		if len(flag.Names) == 0 {
			continue
		}
		if flag.Group != "" && flag.Group != group {
			group = flag.Group
			fmt.Fprintf(&b, ".SS \"%s\"\n", roff(group))
		}
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(flag.Usage()), roffLine(flag.Text(true)))
	}
	if name != "" {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", c.Name)
	}
	all[page+".1"] = b.Bytes()
}

// describe writes paragraphs, and indented lines as they stand.
func describe(b *bytes.Buffer, text string) {
	asIs := false
	for _, line := range strings.Split(strings.Trim(text, "\n"), "\n") {
		if indented := strings.HasPrefix(line, " "); indented != asIs && line != "" {
			asIs = indented
			b.WriteString(map[bool]string{true: ".PP\n.nf\n", false: ".fi\n"}[asIs])
		}
		switch {
		case line != "":
			b.WriteString(roffLine(line) + "\n")
		case !asIs:
			b.WriteString(".PP\n")
		}
	}
	if asIs {
		b.WriteString(".fi\n")
	}
}

// roff makes text safe within a line.
func roff(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "–", `\-`, "−", `\-`, "…", "...", "×", "x",
		"µ", "u", "η", "eta", "τ", "tau", "≥", ">=", "≤", "<=").Replace(s)
}

// roffLine makes text safe as a line of its own.
func roffLine(s string) string {
	s = roff(s)
	if s == "" || strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		return `\&` + s
	}
	return s
}
