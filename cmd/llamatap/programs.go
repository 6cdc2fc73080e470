package main

import (
	"strings"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
)

func execCommand() *cli.Command {
	return &cli.Command{
		Name: "exec", Summary: "run any llama.cpp program under the tap", Usage: "[--tap-…] -- PROGRAM [ARGUMENTS]",
		Raw: true,
		Text: `PROGRAM is one of llama.cpp's own (llama-completion, llama-cli, llama-server, llama-bench …) or any
other dynamically linked program that uses libllama: linked with it, or opening it by itself as Python does. Its
arguments, streams, signals and exit status are its own. Where it starts others, the first process that computes is
recorded. The status is 127 for a program that does not exist, 126 for one that cannot be run or tapped.

  llamatap exec --tap-tensor 'l_out*' -- ./my-program model.gguf
  llamatap exec --tap-tensor 'l_out*' -- llama-completion -m model.gguf -p Hello -n 32

The short form of the last line: llamatap llama-completion -m model.gguf -p Hello -n 32 --tap-tensor 'l_out*'
`,
		Define: func(f *cli.Flags) func([]string) error {
			config.DefineTap(f)
			return runExec
		},
	}
}

func linksCommand() *cli.Command {
	return &cli.Command{
		Name: "install-links", Summary: "make links named after llama.cpp's programs that lead to llamatap",
		Usage: "[--force] DIR", Min: 1, Max: 1,
		Needs: "no folder for the links: write llamatap install-links [--force] DIR",
		Text: `With DIR before llama.cpp's own folder in PATH every program of llama.cpp takes --tap-… flags. Without
such a flag the program is llama.cpp's own.
`,
		Define: func(f *cli.Flags) func([]string) error {
			force := false
			f.Add("--force", &force, "replace files that are not links to llamatap")
			return func(dirs []string) error { return installLinks(dirs[0], force) }
		},
	}
}

// frontsText lists llama.cpp's programs for the help; "" where llama.cpp is not there.
func frontsText() string {
	names := frontNames()
	if len(names) == 0 {
		return ""
	}
	return "\nThe programs of llama.cpp are commands, too, unmodified, with all their arguments. A --tap-… flag " +
		"anywhere among these, --tap-config FILE or a LLAMATAP_… variable records; without one nothing is " +
		"preloaded:\n\n" +
		strings.Join(names, " ") + "\n"
}
