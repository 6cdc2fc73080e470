package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

func manCommand() *cli.Command {
	return &cli.Command{
		Name: "man", Summary: "write the manual pages", Usage: "DIR", Min: 1, Max: 1,
		Needs: "no folder for the pages: write llamatap man DIR",
		Text:  "Writes llamatap.1 and one page per command into DIR, which is created.\n",
		Define: func(*cli.Flags) func([]string) error {
			return func(args []string) error {
				if err := os.MkdirAll(args[0], 0o755); err != nil {
					return fmt.Errorf("create the folder of the pages: %w: give another one", err)
				}
				for name, text := range program().Manuals() {
					if err := os.WriteFile(filepath.Join(args[0], name), text, 0o644); err != nil {
						return fmt.Errorf("write a page: %w: give another folder", err)
					}
				}
				return nil
			}
		},
	}
}

func completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Summary: "print a completion script for bash, zsh or fish", Usage: "bash|zsh|fish", Max: 1,
		Text: `Completes commands, flags and their values.

  source <(llamatap completion bash)
  llamatap completion zsh >"${fpath[1]}/_llamatap"
  llamatap completion fish >~/.config/fish/completions/llamatap.fish

make install puts the scripts where the shells look.
`,
		Define: func(*cli.Flags) func([]string) error {
			return func(args []string) error {
				if len(args) != 1 || cli.Scripts[args[0]] == "" {
					return cli.Wrong(errors.New("name one shell: llamatap completion bash, zsh or fish"))
				}
				_, err := present.Print(cli.Scripts[args[0]])
				return err
			}
		},
	}
}

// completeCommand answers the completion scripts. Programs of llama.cpp take the flags of exec.
func completeCommand() *cli.Command {
	return &cli.Command{
		Name: "__complete", Hidden: true, Raw: true,
		Define: func(*cli.Flags) func([]string) error {
			return func(args []string) error {
				table := program()
				for _, name := range frontNames() {
					front := *execCommand()
					front.Name, front.Summary = name, "llama.cpp's program, under the tap"
					table.Commands = append(table.Commands, &front)
				}
				for _, line := range table.Complete(args) {
					present.Println(line)
				}
				return nil
			}
		},
	}
}

// topic is a command that only prints its help.
func topic(name, summary, text string, define func(*cli.Flags)) *cli.Command {
	return &cli.Command{Name: name, Summary: summary, Text: text, Hidden: true, Raw: true,
		Define: func(f *cli.Flags) func([]string) error {
			define(f)
			return func([]string) error { return cli.ErrHelpAll }
		}}
}

func recordingTopic() *cli.Command {
	return topic("recording", "the flags that record", `The --tap-… flags mean the same on llamatap run, llamatap
exec, llamatap bench and the programs of llama.cpp. A run directory exists exactly when a recorder runs, and a recorder
runs exactly when one of its flags is given. Each flag is also an environment variable, such as LLAMATAP_SAMPLING_RATE,
and a key of the YAML file, such as sampling_rate. A flag overrides the environment, which overrides the file, which
overrides the preset.
`, config.DefineTap)
}

func formatsTopic() *cli.Command {
	return topic("formats", "the files of a recording", `A run directory has these files, as far as their recorders
ran. Each table is Parquet, each log JSON lines.

  metadata.json               settings with their sources, model, machine, losses by cause
  manifest.json               size and SHA-256 of every file: written last; a directory without it is not sealed
  activations_tokens.json     tokens with context, sequence, position, phase and request
  activations.stream, .idx    tensors (--tap-preset, --tap-tensor …) and their index     docs/STREAM_FORMAT.md
  resource.jsonl              what computing cost (--tap-resource-level)                 docs/EVENTS.md
  kv_block_lifecycle.parquet  lives of KV cache blocks (--tap-kv)                        docs/KV.md
  requests.parquet            requests of a server (--tap-requests)                      docs/REQUESTS.md
  region_map.parquet          what is where in memory (--tap-regions)                    docs/MEMORY.md
  trace.parquet               accesses to memory (--tap-ledger, --tap-samples)           docs/MEMORY.md
  block_io.jsonl …            what the kernel did (--tap-host)                           docs/HOST.md

llamatap inspect shows what a run holds, llamatap export writes npy, safetensors, Parquet, Arrow and datasets.
`, func(*cli.Flags) {})
}
