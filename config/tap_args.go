package config

import (
	"fmt"
	"slices"
	"strings"
)

// SplitTapArgs takes the tap's flags out of the arguments of any program. tap holds them in the one form
// --tap-name=value, which a registered FlagSet reads; rest holds every other argument, untouched and in order.
//
// Only arguments that begin with the two dashes of --tap- are taken, as --tap-x=v or --tap-x v; -tap-x belongs to
// the program. From an argument -- on nothing is taken, and -- itself stays in rest. A value that begins with a
// dash must be joined with =. Errors are one line: an unknown flag with the nearest known one, a missing value with
// its form.
func SplitTapArgs(args []string) (tap, rest []string, err error) {
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return tap, append(rest, args[i:]...), nil
		}
		o, value, isTap := cutTapArg(args[i])
		if !isTap {
			rest = append(rest, args[i])
			continue
		}
		if o == nil {
			return nil, nil, unknownFlag(args[i])
		}
		if !strings.Contains(args[i], "=") {
			var next []string
			if i+1 < len(args) {
				next = args[i+1 : i+2]
			}
			var taken bool
			if value, taken, err = valueAfter(o, next); err != nil {
				return nil, nil, err
			}
			if taken {
				i++
			}
		}
		tap = append(tap, o.flag()+"="+value)
	}
	return tap, rest, nil
}

// valueAfter decides whether the argument behind a flag is its value.
func valueAfter(o *option, next []string) (value string, taken bool, err error) {
	if o.bare != "" {
		if len(next) == 1 && o.follows(next[0]) {
			return next[0], true, nil
		}
		return o.bare, false, nil
	}
	if len(next) == 0 {
		return "", false, fmt.Errorf("%s needs a value: %s=%s", o.flag(), o.flag(), o.form)
	}
	if strings.HasPrefix(next[0], "-") && next[0] != "-" {
		return "", false, fmt.Errorf("%s needs a value, and %q looks like another flag: write %s=%s", o.flag(), next[0], o.flag(), o.form)
	}
	return next[0], true, nil
}

// attentionWords are the values that may follow --tap-attention as an argument of their own.
var attentionWords = []string{"keep", "exact", "off"}

func isAttentionWord(next string) bool { return slices.Contains(attentionWords, next) }

func isNoFlag(next string) bool { return !strings.HasPrefix(next, "-") }

// cutTapArg recognises --tap-name and --tap-name=value. The option is nil for a name that does not exist. An
// argument with other characters in the name's place, such as a prompt, is none of the tap's.
func cutTapArg(arg string) (o *option, value string, isTap bool) {
	name, found := strings.CutPrefix(arg, "--tap-")
	if !found {
		return nil, "", false
	}
	name, value, _ = strings.Cut(name, "=")
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return nil, "", false
		}
	}
	return findOption(name), value, true
}

func unknownFlag(arg string) error {
	flag, _, _ := strings.Cut(arg, "=")
	var known []string
	for i := range tapOptions {
		known = append(known, tapOptions[i].flag())
	}
	name := strings.TrimPrefix(flag, "--tap-")
	var names []string
	for _, k := range known {
		names = append(names, strings.TrimPrefix(k, "--tap-"))
	}
	if near := nearest(name, names); near != "" {
		return fmt.Errorf("unknown flag %s: did you mean --tap-%s?", flag, near)
	}
	return fmt.Errorf("unknown flag %s: the tap's flags are %s", flag, strings.Join(known, " "))
}
