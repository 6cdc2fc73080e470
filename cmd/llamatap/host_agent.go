package main

import (
	"slices"

	"github.com/llamatap/llamatap/internal/cli"
)

// agentOptions are the flags of 'llamatap host agent'.
type agentOptions struct {
	listen, token string
	collectors    []string
	program       []string
}

func hostAgentCommand() *cli.Command {
	return &cli.Command{
		Name: "agent", Summary: "let a run on another host record this one", Usage: "[flags] -- PROGRAM ARGUMENTS",
		Max: -1,
		Text: `Starts PROGRAM, such as an rpc-server, and answers a run that was started with --tap-hosts: what time it
is here, and what the collectors say of PROGRAM. It ends with PROGRAM. docs/FLEET.md describes runs on several hosts.

  llamatap host agent --listen 10.0.0.2:7878 --token @token -- rpc-server -H 10.0.0.2 -p 50052
`,
		Define: func(f *cli.Flags) func([]string) error {
			o := agentOptions{listen: "127.0.0.1:7878"}
			f.Add("--listen HOST:PORT", &o.listen, "listen there; nothing is encrypted: use a network of your own")
			f.Add("--token TOKEN", &o.token, "demand this token of runs (needed); @FILE reads it from a file")
			f.Add("--collectors LIST", wordList(&o.collectors, "block", "system", "prof", "none"),
				"what is recorded, of block, system, prof; none: the clock alone").Default = "none"
			return func(args []string) (err error) {
				o.program = f.Program
				o.collectors = slices.DeleteFunc(o.collectors, func(name string) bool { return name == "none" })
				switch {
				case len(args) > len(f.Program):
					return cli.Wrongf("unexpected argument %.40q: put a program after --", args[0])
				case len(o.program) == 0:
					return cli.Wrongf("no program is given: write llamatap host agent [flags] -- PROGRAM [ARGUMENTS]")
				case o.token == "":
					return cli.Wrongf("no token: give --token @FILE, with the token that runs send (--tap-hosts-token)")
				}
				if o.token, err = readToken(o.token); err != nil {
					return cli.Wrong(err)
				}
				return runHostAgent(o)
			}
		},
	}
}
