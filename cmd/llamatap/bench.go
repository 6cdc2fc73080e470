package main

import (
	"strings"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/internal/cli"
)

func benchCommand() *cli.Command {
	programs := &cli.Command{Name: "programs", Summary: "run STRAP-LLM's benchmark programs with their defaults",
		Define: func(*cli.Flags) func([]string) error {
			return func([]string) error {
				var programs []bench.Program
				for _, name := range bench.ProgramNames {
					programs = append(programs, bench.NewProgram(name))
				}
				return runBenchPrograms(programs...)
			}
		}}
	c := &cli.Command{
		Name: "bench", Summary: "measure models as llama-bench does, and what the tap costs", Raw: true,
		Usage: "                          what the tap costs: bench tap\n[flags]                   measure a model, " +
			"with llama-bench's flags and formats\n" +
			"-f SCRIPT.yaml [flags]    the tests of a script\n--trace FILE --url URL    replay a trace of requests",
		Text: `Numbers may be lists (1,2,4) and ranges (first-last, first-last+step, first-last*factor); a flag given
twice adds up. With a --tap-… flag ('llamatap help recording') each test is measured without and with the tap, and the
ratio is reported. Ctrl-C ends with what has been measured.
`,
		Define: func(f *cli.Flags) func([]string) error {
			a := &benchArguments{}
			a.define(f)
			return func(args []string) error {
				if len(args) == 0 {
					return call("bench", "tap")
				}
				if !strings.HasPrefix(args[0], "-") {
					return cli.Wrongf(
						"unknown benchmark %q: use tap, compare, programs or flags ('llamatap bench --help')", args[0])
				}
				return a.run(f, args)
			}
		},
		Commands: []*cli.Command{benchTapCommand(), benchCompareCommand(), programs, {
			Name: "measure", Hidden: true, Raw: true,
			Define: func(*cli.Flags) func([]string) error { return runBenchMeasure },
		}},
	}
	for _, name := range bench.ProgramNames {
		c.Commands = append(c.Commands, benchProgramCommand(name))
	}
	return c
}
