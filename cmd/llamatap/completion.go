package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/runner/host"
)

const completionHelp = `llamatap completion: a script that completes llamatap's commands, flags and their values

usage: llamatap completion bash|zsh|fish

  source <(llamatap completion bash)
  llamatap completion zsh >"${fpath[1]}/_llamatap"
  llamatap completion fish >~/.config/fish/completions/llamatap.fish

make install puts them where the shells look.
`

// runCompletion prints a completion script.
func runCompletion(args []string) error {
	shells := map[string]func(io.Writer, []completed){"bash": completeBash, "zsh": completeZsh, "fish": completeFish}
	if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
		_, err := terminal.Print(completionHelp)
		return err
	}
	if len(args) != 1 || shells[args[0]] == nil {
		return exitStatus{Code: 2, Err: errors.New("name one shell: llamatap completion bash, zsh or fish")}
	}
	list, err := pages()
	if err != nil {
		return err
	}
	shells[args[0]](terminal.Out, completions(list))
	return nil
}

// completed is what completion knows of a command.
type completed struct {
	name, summary string
	flags         []flagText
}

// completions are those of the subcommands and of llama.cpp's programs, which take the flags of exec.
func completions(list []page) []completed {
	var all []completed
	var taps []flagText
	for _, p := range list {
		all = append(all, completed{p.command.name, p.command.summary, p.flags})
		if p.command.name == "exec" {
			taps = p.flags
		}
	}
	names, _ := host.Names() // none, where this build has no llama.cpp
	for _, name := range names {
		all = append(all, completed{name, "llama.cpp's program, under the tap", taps})
	}
	return all
}

func names(list []completed) string {
	var words []string
	for _, c := range list {
		words = append(words, c.name)
	}
	return strings.Join(words, " ")
}

func (c *completed) words() string {
	var words []string
	for i := range c.flags {
		words = append(words, c.flags[i].names...)
	}
	return strings.Join(words, " ")
}

// groups puts commands with the same flags together: what the shells' cases are made of.
func groups(list []completed) (patterns []string, of []completed) {
	for _, c := range list {
		i := slices.IndexFunc(of, func(o completed) bool { return o.words() == c.words() })
		if i < 0 {
			patterns, of = append(patterns, c.name), append(of, c)
			continue
		}
		patterns[i] += "|" + c.name
	}
	return patterns, of
}

// valueCases writes the cases of a flag's value: those that help lists, or a file.
func valueCases(out io.Writer, c *completed, values, files string) {
	for i := range c.flags {
		f := &c.flags[i]
		pattern := strings.Join(f.names, "|")
		switch {
		case !f.detached():
		case len(f.values()) > 0:
			fmt.Fprintf(out, "\t\t%s) "+values+"; return ;;\n", pattern, strings.Join(f.values(), " "))
		case f.takesFile():
			fmt.Fprintf(out, "\t\t%s) %s; return ;;\n", pattern, files)
		default:
			fmt.Fprintf(out, "\t\t%s) return ;;\n", pattern)
		}
	}
}

func completeBash(out io.Writer, list []completed) {
	fmt.Fprintf(out, `# Completion of llamatap in bash, made by "llamatap completion bash".
_llamatap() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} flags=
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		COMPREPLY=($(compgen -W "help %s" -- "$cur"))
		return
	fi
	case ${COMP_WORDS[1]} in
`, names(list))
	patterns, of := groups(list)
	for i := range of {
		fmt.Fprintf(out, "\t%s)\n\t\tflags=%q\n\t\tcase $prev in\n", patterns[i], of[i].words())
		valueCases(out, &of[i], `COMPREPLY=($(compgen -W "%s" -- "$cur"))`, `COMPREPLY=($(compgen -f -- "$cur"))`)
		fmt.Fprint(out, "\t\tesac\n\t\t;;\n")
	}
	fmt.Fprint(out, `	esac
	if [[ $cur == -* ]]; then
		COMPREPLY=($(compgen -W "$flags" -- "$cur"))
	else
		COMPREPLY=($(compgen -f -- "$cur"))
	fi
}
complete -o filenames -F _llamatap llamatap
`)
}

func completeZsh(out io.Writer, list []completed) {
	fmt.Fprintf(out, `#compdef llamatap
# Completion of llamatap in zsh, made by "llamatap completion zsh".
_llamatap() {
	local -a flags
	if ((CURRENT == 2)); then
		compadd -- help %s
		return
	fi
	case $words[2] in
`, names(list))
	patterns, of := groups(list)
	for i := range of {
		fmt.Fprintf(out, "\t%s)\n\t\tflags=(%s)\n\t\tcase $words[CURRENT-1] in\n", patterns[i], of[i].words())
		valueCases(out, &of[i], `compadd -- %s`, `_files`)
		fmt.Fprint(out, "\t\tesac\n\t\t;;\n")
	}
	fmt.Fprint(out, `	esac
	if [[ $PREFIX == -* ]]; then
		compadd -- $flags
	else
		_files
	fi
}
if [[ $funcstack[1] == _llamatap ]]; then
	_llamatap "$@"
else
	compdef _llamatap llamatap
fi
`)
}

func completeFish(out io.Writer, list []completed) {
	fmt.Fprint(out, "# Completion of llamatap in fish, made by \"llamatap completion fish\".\n")
	for _, c := range list {
		fmt.Fprintf(out, "complete -c llamatap -n __fish_use_subcommand -f -a %s -d %s\n", c.name, fishQuoted(c.summary))
	}
	patterns, of := groups(list)
	for i := range of {
		for j := range of[i].flags {
			fmt.Fprintf(out, "complete -c llamatap -n '__fish_seen_subcommand_from %s'%s\n", strings.ReplaceAll(patterns[i], "|", " "), fishFlag(&of[i].flags[j]))
		}
	}
}

// fishFlag are the arguments of complete for one flag.
func fishFlag(f *flagText) string {
	var b strings.Builder
	for _, name := range f.names {
		switch long, isLong := strings.CutPrefix(name, "--"); {
		case isLong:
			b.WriteString(" -l " + long)
		case len(name) == 2:
			b.WriteString(" -s " + name[1:])
		default:
			b.WriteString(" -o " + name[1:])
		}
	}
	switch {
	case !f.detached():
	case len(f.values()) > 0:
		b.WriteString(" -x -a " + fishQuoted(strings.Join(f.values(), " ")))
	case f.takesFile():
		b.WriteString(" -r -F")
	default:
		b.WriteString(" -x")
	}
	if first, _, _ := strings.Cut(f.help, ";"); first != "" {
		b.WriteString(" -d " + fishQuoted(first))
	}
	return b.String()
}

func fishQuoted(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
