package main

import (
	"errors"
	"slices"
	"time"

	"github.com/llamatap/llamatap/internal/cli"
)

// attachOptions are what attach was asked for.
type attachOptions struct {
	pid      int
	interval time.Duration
	duration time.Duration
	folder   string
	host     []string
	json     bool
	most     float64 // overhead
}

func attachCommand() *cli.Command {
	return &cli.Command{
		Name: "attach", Summary: "watch a llama.cpp program that was started without llamatap",
		Usage: "PID [--interval SECONDS] [-d SECONDS] [--json] [-o DIR [--host LIST]]\n    [--max-overhead PERCENT]",
		Min:   1, Max: 1,
		Needs: "no process: give its id, such as that of 'pgrep llama-server'",
		Text: `Shows tokens per second, how long batches take, and requests, of a running process, from its calls of
libllama. Nothing is loaded into the process: the kernel reports the calls (uprobes), and Ctrl-C ends that. With -o it
also writes them to llama_calls.jsonl in a folder, and the host collectors' lines of the process beside it. It needs
root and a program that is linked with libllama.so, or statically with its symbols. docs/ATTACH.md defines each figure.

  llamatap attach 4711
  llamatap attach 4711 -d 60 --json | jq .requests
  llamatap attach 4711 -o observed --host block,system
`,
		Define: func(f *cli.Flags) func([]string) error {
			o := attachOptions{}
			seconds, duration, percent := 1.0, 0.0, 1.0
			f.Add("--interval SECONDS", &seconds, "time between two lines, at least 0.05")
			f.Add("-d, --duration SECONDS", &duration, "end after this time; 0: with the process")
			f.Add("--json", &o.json, "print JSON lines")
			f.Add("--max-overhead PERCENT", &percent, "of the process's time; beyond it tokens are counted no more")
			f.Add("-o, --output DIR", &o.folder, "folder to write to; it is made").Default = ""
			f.Add("--host LIST", wordList(&o.host, "block", "system", "prof", "none"),
				"with -o: host collectors, of block, system, prof, or none").Default = "block,system"
			return func(args []string) error {
				var err error
				o.pid, err = parsePID(args[0])
				o.interval = time.Duration(seconds * float64(time.Second))
				o.duration = time.Duration(duration * float64(time.Second))
				o.most = percent / 100
				switch {
				case err != nil:
					return cli.Wrong(err)
				case !(o.interval >= 50*time.Millisecond && o.interval <= time.Hour):
					return cli.Wrongf("--interval %v: give seconds from 0.05 to 3600", seconds)
				case !(duration >= 0 && duration <= 1e9):
					return cli.Wrongf("-d %v: give seconds from 0", duration)
				case !(percent >= 0):
					return cli.Wrongf("--max-overhead %v: give a number from 0", percent)
				case f.Given("--host") && o.folder == "":
					return errors.New("--host writes files: name a folder with -o DIR")
				case !f.Given("--host"):
					o.host = []string{"block", "system"}
				}
				o.host = slices.DeleteFunc(o.host, func(name string) bool { return name == "none" })
				return runAttach(o)
			}
		},
	}
}
