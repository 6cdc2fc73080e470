package cli

import (
	"regexp"
	"slices"
	"strings"
)

// Scripts are the completion scripts of the program llamatap, by shell. Each asks the program itself for candidates,
// so it never differs from what the program parses: one a line, its description behind a tab; ":" stands for files.
var Scripts = map[string]string{
	"bash": `# Completion of llamatap in bash, made by "llamatap completion bash".
_llamatap() {
	local line IFS=$'\n' cur=${COMP_WORDS[COMP_CWORD]}
	COMPREPLY=()
	for line in $("${COMP_WORDS[0]/#\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null); do
		if [[ $line == : ]]; then
			COMPREPLY+=($(compgen -f -- "${cur#=}"))
		else
			COMPREPLY+=("${line%%$'\t'*}")
		fi
	done
}
complete -o filenames -F _llamatap llamatap
`,
	"zsh": `#compdef llamatap
# Completion of llamatap in zsh, made by "llamatap completion zsh".
_llamatap() {
	local line
	for line in ${(f)"$("${(Q)words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)"}; do
		if [[ $line == : ]]; then
			_files
		else
			compadd -- "${line%%$'\t'*}"
		fi
	done
}
if [[ $funcstack[1] == _llamatap ]]; then
	_llamatap "$@"
else
	compdef _llamatap llamatap
fi
`,
	"fish": `# Completion of llamatap in fish, made by "llamatap completion fish".
function __llamatap
	set -l words (commandline -opc) (commandline -ct)
	for line in ($words[1] __complete $words[2..] 2>/dev/null)
		if test "$line" = :
			__fish_complete_path (commandline -ct)
		else
			echo $line
		end
	end
end
complete -c llamatap -f -a '(__llamatap)'
`,
}

// Complete returns the candidates for the last of words, which follow the program's name.
func (c *Command) Complete(words []string) (lines []string) {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "=" }) // bash parts --flag=value
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	before := words[:len(words)-1]
	if len(before) > 0 && before[0] == "help" {
		before = before[1:]
	}
	sub, _, rest := c.Find(before)
	add := func(word, text string) {
		if strings.HasPrefix(word, last) {
			lines = append(lines, word+"\t"+text)
		}
	}
	f, _ := sub.flags()
	if len(rest) > 0 {
		if flag, _ := f.find(rest[len(rest)-1]); flag != nil && flag.Value != "" &&
			strings.HasPrefix(rest[len(rest)-1], "-") {
			for _, word := range flag.listedValues() {
				add(word, "")
			}
			if flag.takesFile() {
				lines = append(lines, ":")
			}
			if len(lines) > 0 || flag.Bare == "" {
				return lines
			}
		}
	}
	if strings.HasPrefix(last, "-") {
		for _, flag := range f.List {
			text, _, _ := strings.Cut(flag.Help, ";")
			for _, n := range slices.Concat(flag.Names, flag.Off) {
				add(n, text)
			}
		}
		return lines
	}
	if len(rest) == 0 {
		for _, s := range sub.Commands {
			if !s.Hidden {
				add(s.Name, s.Summary)
			}
		}
	}
	if sub.Define != nil {
		lines = append(lines, ":")
	}
	return lines
}

// listedValues returns the values that the form lists, if it does.
func (flag *Flag) listedValues() (words []string) {
	form := strings.TrimSuffix(strings.TrimPrefix(flag.Value, "[="), "]")
	if !strings.Contains(form, "|") || strings.ContainsAny(form, "[<:, ") {
		return nil
	}
	for word := range strings.SplitSeq(form, "|") {
		if word != strings.ToUpper(word) {
			words = append(words, word)
		}
	}
	return words
}

var filePattern = regexp.MustCompile(`^(FILE|FNAME|DIR|PATH|MODEL|FOLDER|RUN|OUT)\b`)

func (flag *Flag) takesFile() bool { return filePattern.MatchString(flag.Value) }
