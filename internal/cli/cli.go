// Package cli holds a program's commands and flags in one table, from which command lines are parsed and help,
// manual pages and shell completions are made. It also reads the files that a user names, within bounds ([ReadFile],
// [UnmarshalYAML]); files of a run directory are read by store/rundir.
//
// A Command adds its flags in Define, so the table is built by the same code that reads the values:
//
//	Define: func(f *cli.Flags) func(args []string) error {
//		width := 100
//		f.Add("-w, --width N", &width, "columns of the plot")
//		return func(args []string) error { return plot(args[0], width) }
//	}
package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Command is one command, or a group of commands.
type Command struct {
	Name    string // as it is typed
	Summary string // one line, without a period
	// Usage holds the forms of the arguments, one a line; empty: none. The name of the command is put in front.
	Usage string
	// Text describes the command. Paragraphs are wrapped, indented lines stay as they are.
	Text     string
	Min, Max int           // number of arguments; Max -1: any
	Needs    string        // what to give where arguments are missing
	Hidden   bool          // left out of lists; without a usage it is a topic of help
	Footer   func() string // what help ends with; nil: nothing
	// Raw commands get their arguments as they are, and may return ErrHelp. Others get what is left after flags.
	Raw bool
	// Define adds the flags and returns what runs the command; nil for a group.
	Define   func(f *Flags) func(args []string) error
	Commands []*Command
}

// Flag is one row of the table.
type Flag struct {
	Names   []string // as they are typed, with dashes
	Off     []string // names that turn a switch off
	Old     []string // deprecated names: parsed, and left out of help, manual and completion
	Value   string   // form of the value; "" for a switch
	Bare    string   // the value that the flag has without one; "" where it must have one
	Follows func(next string) bool
	Pair    bool   // it takes two values, which Set gets with a space between
	Default string // as a user would write it
	Help    string
	Env     string // environment variable of the same meaning, for help
	Group   string // heading that it is listed under
	More    bool   // listed by --help-all, and not by --help
	Set     func(value string) error

	given bool
}

// Flags are the flags of one command.
type Flags struct {
	Raw     []string // the arguments of the command as they were given
	Program []string // what follows an argument "--"
	Divided bool     // whether there was a "--"
	Prefix  string   // begins all names; a misspelt name is compared without it
	List    []*Flag
}

// ErrHelp and ErrHelpAll are returned where the arguments ask for help.
var (
	ErrHelp    = errors.New("help requested")
	ErrHelpAll = errors.New("all help requested")
)

// UsageError is a wrong use of a command: exit status 2.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Wrong returns a UsageError, or nil for nil.
func Wrong(err error) error {
	if err == nil {
		return nil
	}
	return &UsageError{err}
}

// Wrongf returns a UsageError with a formatted text.
func Wrongf(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// Add adds a flag. spec is how help shows it: "-o, --output FILE", or "--quiet" for a switch. to is a pointer to a
// string, bool, number, duration or list of strings, which holds the default; or a func(string) error.
func (f *Flags) Add(spec string, to any, help string) *Flag {
	flag := &Flag{Help: help}
	words := strings.Fields(spec)
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		flag.Names, words = append(flag.Names, strings.TrimSuffix(words[0], ",")), words[1:]
	}
	flag.Value = strings.Join(words, " ")
	flag.Set, flag.Default = setter(to)
	f.List = append(f.List, flag)
	return flag
}

// setter returns what stores a value, and the value that is there, as text; "" for one that means nothing.
func setter(to any) (set func(string) error, byDef string) {
	switch p := to.(type) {
	case func(string) error:
		return p, ""
	case *string:
		return func(s string) error { *p = s; return nil }, *p
	case *[]string:
		return func(s string) error { *p = append(*p, s); return nil }, strings.Join(*p, ",")
	case *bool:
		return func(s string) (err error) { *p, err = strconv.ParseBool(s); return err }, ""
	case *int:
		return parsed(p, strconv.Atoi, "a whole number"), number(*p)
	case *int64:
		return parsed(p, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }, "a whole number"),
			number(*p)
	case *uint64:
		return parsed(p, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) },
			"a whole number from 0"), number(*p)
	case *float64:
		return parsed(p, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }, "a number"), number(*p)
	case *time.Duration:
		return parsed(p, time.ParseDuration, "a time such as 90s or 5m"), number(*p)
	}
	panic(fmt.Sprintf("cli: a flag cannot be stored in %T", to))
}

func parsed[T any](to *T, parse func(string) (T, error), want string) func(string) error {
	return func(s string) error {
		value, err := parse(s)
		if err != nil {
			return errors.New("give " + want)
		}
		*to = value
		return nil
	}
}

func number[T int | int64 | uint64 | float64 | time.Duration](n T) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// Deprecated adds names that still work, and returns the flag.
func (flag *Flag) Deprecated(names ...string) *Flag {
	flag.Old = append(flag.Old, names...)
	return flag
}

// Given reports whether a flag was given, by any of its names.
func (f *Flags) Given(name string) bool {
	flag, _ := f.find(name)
	return flag != nil && flag.given
}

// find returns the flag of a name, which may have one dash or two; off reports that the name turns it off.
func (f *Flags) find(name string) (flag *Flag, off bool) {
	word := trimDashes(name)
	same := func(n string) bool { return trimDashes(n) == word }
	for _, flag := range f.List {
		switch {
		case slices.ContainsFunc(flag.Names, same), slices.ContainsFunc(flag.Old, same):
			return flag, false
		case slices.ContainsFunc(flag.Off, same):
			return flag, true
		}
	}
	return nil, false
}

// trimDashes returns a flag's name without its dashes, of which there are at most two.
func trimDashes(name string) string { return strings.TrimPrefix(strings.TrimPrefix(name, "-"), "-") }

// Parse sets the flags in args, which may come before and after other arguments, and returns those. Behind "--" all
// is Program, and is returned too.
func (f *Flags) Parse(args []string) (rest []string, err error) {
	f.Raw = args
	for len(args) > 0 {
		switch arg := args[0]; {
		case arg == "--":
			f.Program, f.Divided = args[1:], true
			return append(rest, args[1:]...), nil
		case len(arg) < 2 || arg[0] != '-':
			rest, args = append(rest, arg), args[1:]
			continue
		}
		flag, value, n, err := f.Next(args)
		if err != nil {
			return nil, err
		}
		if err := flag.Set(value); err != nil {
			name, _, _ := strings.Cut(args[0], "=")
			return nil, Wrongf("%s %s: %w", name, quote(value), err)
		}
		flag.given, args = true, args[n:]
	}
	return rest, nil
}

// Next reads the flag that args begin with, and its value. n is how many arguments they take.
func (f *Flags) Next(args []string) (flag *Flag, value string, n int, err error) {
	name, value, joined := strings.Cut(args[0], "=")
	flag, off := f.find(name)
	switch {
	case flag == nil:
		return nil, "", 0, f.unknown(name)
	case flag.Value == "":
		on, err := true, error(nil)
		if joined {
			on, err = strconv.ParseBool(value)
		}
		if err != nil {
			return nil, "", 0, Wrongf("%s %s: this is a switch: give it without a value", name, quote(value))
		}
		return flag, strconv.FormatBool(on != off), 1, nil
	case joined:
		n = 1
	case flag.Bare != "" && len(args) > 1 && flag.Follows(args[1]):
		value, n = args[1], 2
	case flag.Bare != "":
		value, n = flag.Bare, 1
	case len(args) < 2 || flag.Pair && len(args) < 3:
		return nil, "", 0, Wrongf("%s needs a value: give %s %s", name, name, flag.Value)
	case flag.Pair:
		value, n = args[1]+" "+args[2], 3
	default:
		value, n = args[1], 2
	}
	if !utf8.ValidString(value) {
		return nil, "", 0,
			Wrongf("%s %s: the value is not valid UTF-8: convert it to UTF-8 first, with iconv for example", name,
				quote(value))
	}
	return flag, value, n, nil
}

// unknown is the error of a flag that is not in the table, or the request for help.
func (f *Flags) unknown(name string) error {
	switch trimDashes(name) {
	case "h", "help":
		return ErrHelp
	case "help-all":
		return ErrHelpAll
	}
	var known []string
	for _, flag := range f.List {
		for _, n := range slices.Concat(flag.Names, flag.Off) {
			known = append(known, strings.TrimPrefix(trimDashes(n), f.Prefix))
		}
	}
	meant := Nearest(strings.TrimPrefix(trimDashes(name), f.Prefix), known)
	switch {
	case meant == "":
		return &UnknownError{name}
	case len(meant) == 1:
		meant = "-" + meant
	default:
		meant = name[:len(name)-len(trimDashes(name))] + f.Prefix + meant
	}
	return Wrongf("unknown flag %s: did you mean %s?", name, meant)
}

// UnknownError is a flag that is not in the table, and like none that is.
type UnknownError struct{ Flag string }

func (e *UnknownError) Error() string { return "unknown flag " + e.Flag }

// quote quotes a value for an error message, and cuts a long one.
func quote(value string) string {
	quoted := strconv.Quote(value)
	if len(quoted) <= 60 {
		return quoted
	}
	return quoted[:56] + `…"`
}

// Nearest returns the word that a misspelt name most likely means, or "" if none is close: at most three edits, and
// at most a third of the name, rounded up; or else the longest that the name begins with.
func Nearest(name string, words []string) string {
	best, bestDistance := "", min(3, (len(name)+1)/3)+1
	for _, word := range words {
		if d := EditDistance(name, word); d < bestDistance {
			best, bestDistance = word, d
		}
	}
	if best != "" {
		return best
	}
	for _, word := range words {
		if len(word) >= 3 && strings.HasPrefix(name, word) && len(word) > len(best) {
			best = word
		}
	}
	return best
}

// EditDistance is the Levenshtein distance of a and b in bytes.
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			substitute := diagonal
			if a[i-1] != b[j-1] {
				substitute++
			}
			diagonal = row[j]
			row[j] = min(substitute, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
