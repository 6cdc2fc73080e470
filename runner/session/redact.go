//go:build linux

package session

import (
	"regexp"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/config"
)

// redacted replaces, in metadata.json, what --tap-redact text took something out of the command line.
const redacted = "[redacted]"

// textFlags are llama.cpp's flags whose value is text, or a file of text, and may look like anything: the value
// goes, whatever it is.
var textFlags = []string{
	"-p", "--prompt", "-f", "--file", "-bf", "--binary-file", "-sys", "--system-prompt", "-sysf",
	"--system-prompt-file",
	"-r", "--reverse-prompt", "--in-prefix", "--in-suffix", "--grammar", "--grammar-file", "-j", "--json-schema", "-jf",
	"--json-schema-file", "--chat-template", "--chat-template-file", "--chat-template-kwargs", "--image", "--audio",
	"--api-key",
	"--rerank", "--positive-file", "--negative-file", "--context-file",
}

// flagForm is what a flag looks like, without or with a value joined to it.
var flagForm = regexp.MustCompile(`^(--?[A-Za-z][A-Za-z0-9_-]*)(=.*)?$`)

// redactCommand returns a command line of which only what cannot be text is left: names of flags, numbers, the
// tap's own settings (first, in the form --tap-name=value), the program and the model. A program that takes its
// prompt without a flag keeps it to itself that way, too.
func redactCommand(args []string) []string {
	head := min(1, len(args))
	exec := len(args) > 1 && args[1] == "exec"
	if exec || len(args) > 1 && args[1] == "run" {
		head = 2
	}
	tap, rest, err := config.SplitTapArgs(args[head:])
	if err != nil {
		tap, rest = nil, args[head:]
	}
	out := slices.Concat(args[:head], tap)
	program := -1
	if exec {
		program = slices.IndexFunc(rest, func(arg string) bool { return arg != "--" })
	}
	before := ""
	for i, arg := range rest {
		switch {
		case slices.Contains(textFlags, before):
			arg = redacted
		case i == program || arg == "--" || before == "-m" || before == "--model" || isNumber(arg):
		default:
			arg = redactFlag(arg)
		}
		out, before = append(out, arg), rest[i]
	}
	return out
}

// redactFlag keeps a flag's name.
func redactFlag(arg string) string {
	parts := flagForm.FindStringSubmatch(arg)
	switch {
	case parts == nil:
		return redacted
	case parts[2] != "":
		return parts[1] + "=" + redacted
	}
	return arg
}

func isNumber(arg string) bool {
	_, err := strconv.ParseFloat(arg, 64)
	return err == nil
}
