package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Find returns the command that args begin with, its full name, and the arguments after it.
func (c *Command) Find(args []string) (found *Command, name string, rest []string) {
	found, rest = c, args
	for len(rest) > 0 {
		at := slices.IndexFunc(found.Commands, func(sub *Command) bool { return sub.Name == rest[0] })
		if at < 0 {
			break
		}
		found, name, rest = found.Commands[at], strings.TrimSpace(name+" "+rest[0]), rest[1:]
	}
	return found, name, rest
}

// flags returns the command's flags, and what runs it.
func (c *Command) flags() (*Flags, func([]string) error) {
	f := &Flags{}
	if c.Define == nil {
		return f, nil
	}
	return f, c.Define(f)
}

// Run runs the command that args name, or writes its help to out. The command itself is the program.
func (c *Command) Run(args []string, out io.Writer) error {
	help := len(args) > 0 && args[0] == "help"
	if help {
		args = args[1:]
	}
	sub, name, rest := c.Find(args)
	f, run := sub.flags()
	if help && len(rest) > 0 || sub.Define == nil && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return c.unknown(sub, name, rest[0])
	}
	if help {
		return writeHelp(out, c, sub, name, true)
	}
	if sub.Define == nil && len(rest) == 0 {
		return Wrongf("no command: use %s; '%s --help' describes them", strings.Join(sub.names(), ", "), c.full(name))
	}
	var err error
	if sub.Raw {
		f.Raw = rest
		err = run(rest)
	} else if rest, err = f.Parse(rest); err == nil {
		if err = sub.count(c.full(name), f, rest); err != nil || run == nil {
			return err
		}
		return run(rest)
	}
	if errors.Is(err, ErrHelp) || errors.Is(err, ErrHelpAll) {
		return writeHelp(out, c, sub, name, errors.Is(err, ErrHelpAll))
	}
	if err != nil && !sub.Raw {
		after := ";"
		if strings.HasSuffix(err.Error(), "?") { // a suggestion
			after = ""
		}
		return Wrongf("%w%s '%s --help' lists the flags", err, after, c.full(name))
	}
	return err
}

func (c *Command) full(name string) string { return strings.TrimSpace(c.Name + " " + name) }

// count checks the number of arguments. Those behind "--" are the program's where the usage says so.
func (c *Command) count(full string, f *Flags, rest []string) error {
	if f.Divided && strings.Contains(c.Usage, "-- PROGRAM") {
		if len(f.Program) == 0 {
			return Wrongf("no program after --: write %s -- PROGRAM ARGUMENTS; '%s --help' shows how", full, full)
		}
		rest = rest[:len(rest)-len(f.Program)]
	}
	switch n := len(rest); {
	case n < c.Min && c.Needs != "":
		return Wrongf("%s; '%s --help' shows how", c.Needs, full)
	case c.Max >= 0 && n > c.Max && strings.Contains(c.Usage, "-- PROGRAM"):
		return Wrongf("unexpected argument %q: put a program after --; '%s --help' shows how", rest[c.Max], full)
	case c.Max == 0 && n > 0:
		return Wrongf("unexpected argument %.60q; '%s --help' shows how", rest[0], full)
	case n < c.Min, c.Max >= 0 && n > c.Max:
		return Wrongf("%d arguments instead of %d; '%s --help' shows how", n, max(c.Min, min(n, c.Max)), full)
	}
	return nil
}

func (c *Command) usages() []string {
	if c.Usage == "" && len(c.Commands) > 0 {
		return []string{"COMMAND [ARGUMENTS]"}
	}
	return strings.Split(c.Usage, "\n")
}

func (c *Command) names() []string {
	var names []string
	for _, sub := range c.Commands {
		if !sub.Hidden {
			names = append(names, sub.Name)
		}
	}
	return names
}

// unknown is the error of a command that does not exist.
func (c *Command) unknown(group *Command, name, word string) error {
	if len(group.Commands) == 0 && name != "" {
		return Wrongf("unknown command %q: %s has none; '%s --help' describes it", name+" "+word, name, c.full(name))
	}
	suggestion := ";"
	if near := Nearest(word, append(group.names(), "help")); near != "" {
		suggestion = fmt.Sprintf(": did you mean %q?", near)
	}
	if name == "" {
		return Wrongf("unknown command %q%s '%s help' lists the commands", word, suggestion, c.Name)
	}
	return Wrongf("unknown command %q%s use %s; '%s --help' describes them", name+" "+word, suggestion,
		strings.Join(group.names(), ", "), c.full(name))
}
