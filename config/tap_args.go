package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/internal/cli"
)

// SplitTapArgs takes the tap's flags out of the arguments of any program. tap holds them in the one form
// --tap-name=value; rest holds every other argument, untouched and in order.
//
// Only arguments that begin with the two dashes of --tap- are taken, as --tap-x=v or --tap-x v; -tap-x belongs to
// the program. From an argument -- on nothing is taken, and -- itself stays in rest. A value that begins with a
// dash must be joined with =. Errors are one line: an unknown flag with the nearest known one, a missing value with
// its form.
func SplitTapArgs(args []string) (tap, rest []string, err error) {
	f := cli.Flags{Prefix: "tap-"}
	DefineTap(&f)
	for len(args) > 0 {
		name, _, joined := strings.Cut(args[0], "=")
		switch {
		case name == "--":
			return tap, append(rest, args...), nil
		case !isTapName(name):
			rest, args = append(rest, args[0]), args[1:]
			continue
		}
		flag, value, n, err := f.Next(args)
		var unknown *cli.UnknownError
		switch {
		case errors.As(err, &unknown):
			return nil, nil, fmt.Errorf("%w: 'llamatap help recording' lists the tap's flags", err)
		case err != nil:
			return nil, nil, err
		case !joined && flag.Bare == "" && strings.HasPrefix(value, "-") && value != "-":
			return nil, nil, fmt.Errorf("%s needs a value, and %q looks like another flag: write %s=%s", name, value,
				name, flag.Value)
		}
		tap, args = append(tap, name+"="+value), args[n:]
	}
	return tap, rest, nil
}

// isTapName reports whether an argument is a flag of the tap. One with other characters in the name's place, such as
// a prompt, is not.
func isTapName(arg string) bool {
	name, found := strings.CutPrefix(arg, "--tap-")
	return found && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// attentionWords are the values that may follow --tap-attention as an argument of their own.
var attentionWords = []string{"keep", "exact", "off"}

func isAttentionWord(next string) bool { return slices.Contains(attentionWords, next) }

func isNoFlag(next string) bool { return !strings.HasPrefix(next, "-") }
