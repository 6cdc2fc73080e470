package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// runValue makes one option a flag.Value.
type runValue struct {
	run      *Run
	option   *llamaOption
	negative bool // a switch that turns the option off
}

func (v *runValue) String() string   { return "" }
func (v *runValue) IsBoolFlag() bool { return v.option != nil && v.option.form == "" }

// Set takes the value of a flag.
func (v *runValue) Set(value string) error {
	if !utf8.ValidString(value) {
		return errors.New("the value is not valid UTF-8: convert it to UTF-8 first, with iconv for example")
	}
	if v.option.form == "" {
		on, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New("this is a switch: give it without a value")
		}
		value = strconv.FormatBool(on != v.negative)
	}
	return v.run.set(v.option, value)
}

// RunHelp writes the flags that Run.Register defines, as one list.
func RunHelp(out io.Writer) error {
	var text strings.Builder
	for i := range llamaOptions {
		llamaOptions[i].writeHelp(&text)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

const runHelpColumn, runHelpWidth = 40, 90

// writeHelp writes one option: its names, then its help in a column of its own.
func (o *llamaOption) writeHelp(text *strings.Builder) {
	if o.section != "" {
		fmt.Fprintf(text, "\n%s:\n", o.section)
	}
	var names []string
	for _, name := range append(append([]string(nil), o.names...), o.negative...) {
		names = append(names, dashed(name))
	}
	head := "  " + strings.Join(names, ", ")
	if o.form != "" {
		head += " " + o.form
	}
	help := o.help
	if o.byDef != "" {
		help += " (default: " + o.byDef + ")"
	}
	if o.env != "" {
		help += " (env: " + o.env + ")"
	}
	if len(head) >= runHelpColumn {
		text.WriteString(head + "\n")
		head = ""
	}
	line := fmt.Sprintf("%-*s", runHelpColumn, head)
	for _, word := range strings.Fields(help) {
		if len(line)+1+len(word) > runHelpColumn+runHelpWidth {
			text.WriteString(strings.TrimRight(line, " ") + "\n")
			line = strings.Repeat(" ", runHelpColumn)
		}
		if len(line) > runHelpColumn {
			line += " "
		}
		line += word
	}
	text.WriteString(line + "\n")
}

// dashed is a flag's name as users write it.
func dashed(name string) string {
	name = strings.TrimLeft(name, "-")
	if len(name) > 1 && !shortNames[name] {
		return "--" + name
	}
	return "-" + name
}

var invalidValue = regexp.MustCompile(`(?s)^invalid (?:boolean )?value (".*") for (?:flag )?-([A-Za-z0-9-]+): (.*)$`)

// ExplainFlagError turns an error of fs.Parse(args) into one line with a remedy. Other errors, and flag.ErrHelp, pass.
func ExplainFlagError(fs *flag.FlagSet, args []string, err error) error {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	if unknown, near := explainUnknown(fs, args, err); near {
		return fmt.Errorf("%w --help lists all", unknown)
	} else if unknown != err {
		theirs := "llama-completion"
		if fs.Name() == "bench" {
			theirs = "llama-bench"
		}
		return fmt.Errorf("%w: --help lists the flags; flags of llama.cpp that are not there work with 'llamatap exec -- %s'", unknown, theirs)
	}
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag needs an argument: "); ok {
		return fmt.Errorf("%s needs a value: --help says which", dashed(name))
	}
	if m := invalidValue.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s %s: %s", dashed(m[2]), shorten(m[1]), m[3])
	}
	return err
}

// ExplainUnknownFlag replaces an error of fs.Parse(args) on a flag that does not exist by one that names it as args
// do, and the flag that was most likely meant. Other errors pass.
func ExplainUnknownFlag(fs *flag.FlagSet, args []string, err error) error {
	err, _ = explainUnknown(fs, args, err)
	return err
}

// explainUnknown is ExplainUnknownFlag, and reports whether there is a suggestion.
func explainUnknown(fs *flag.FlagSet, args []string, err error) (explained error, near bool) {
	name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !ok {
		return err, false
	}
	dashes := "--"
	for _, arg := range args {
		if word, _, _ := strings.Cut(arg, "="); word == "-"+name || word == "--"+name {
			dashes = strings.TrimSuffix(word, name)
			break
		}
	}
	var known []string
	fs.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	meant := nearest(name, known)
	if meant == "" {
		return fmt.Errorf("unknown flag %s%s", dashes, name), false
	}
	if len(meant) == 1 {
		return fmt.Errorf("unknown flag %s%s: did you mean -%s?", dashes, name, meant), true
	}
	return fmt.Errorf("unknown flag %s%s: did you mean %s%s?", dashes, name, dashes, meant), true
}

// shorten cuts a quoted value in an error message.
func shorten(quoted string) string {
	if len(quoted) <= 60 {
		return quoted
	}
	return quoted[:56] + `…"`
}
