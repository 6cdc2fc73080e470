package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/llamatap/llamatap/internal/cli"
)

func hostCommand() *cli.Command {
	return &cli.Command{
		Name: "host", Summary: "record what the kernel does: disks, waiting, faults, system calls; and analyze it",
		Text: `Collectors need root, or the rights that the error names. Without a program they watch the whole
machine, or what --pid, --cgroup and --comm name, until Ctrl-C; with one they watch it and end with it. To record a
model's run, add --tap-host block,system,waits to it: then each line knows its token. docs/HOST.md defines each
figure.
`,
		Commands: []*cli.Command{
			collectorCommand(hostOptions{name: "block", flushEvery: 12}, 5,
				"latency histograms and depth of block devices"),
			collectorCommand(hostOptions{name: "system", flushEvery: 12}, 5,
				"page faults, waiting by cause, run queue, pressure, memory"),
			collectorCommand(hostOptions{name: "prof", flushEvery: 5}, 1,
				"events of disk, system calls, memory, scheduling, network"),
			hostAgentCommand(), hostAnalyzeCommand(), hostWaitsCommand(),
		},
	}
}

// collectorFiles are the files of the collectors' lines, as STRAP-LLM's recorders name them.
var collectorFiles = map[string]string{"block": defaultBlock, "system": defaultSystem, "prof": defaultProf}

// profDefault are the collectors of prof that run where none is named.
var profDefault = []string{"disk", "syscalls", "mem", "sched"}

// hostOptions are the flags of a collector that runs by itself. Their defaults are those of STRAP-LLM's documentation.
type hostOptions struct {
	name       string
	interval   time.Duration
	output     string
	noOutput   bool
	flushEvery int
	fsync      bool
	count      uint64
	pids       []int
	cgroup     string
	comm       string
	devices    []string
	strap      bool // block
	only       []string
	sample     int
	labels     map[string]string
	noIDs      bool
	cost       bool
	program    []string
}

func collectorCommand(o hostOptions, seconds float64, summary string) *cli.Command {
	return &cli.Command{
		Name: o.name, Summary: summary, Usage: "[flags] [-- PROGRAM ARGUMENTS]", Max: -1,
		Text: `Appends JSON lines to --output, one an interval (prof: several), until Ctrl-C, --count or the end of
PROGRAM. Lines are written completely: the file is valid whenever and however this ends. docs/HOST.md defines each
key.
`,
		Define: func(f *cli.Flags) func([]string) error {
			f.Add("--interval SECONDS", &seconds, "time between two snapshots, at least 0.05")
			o.output = collectorFiles[o.name]
			f.Add("-o, --output FILE", &o.output, "append lines to this file")
			f.Add("--no-output", &o.noOutput, "write no file; print the lines")
			f.Add("--flush-every N", &o.flushEvery, "write to the file after N lines")
			f.Add("--fsync", &o.fsync, "sync each write to the disk")
			f.Add("--count N", &o.count, "end after N snapshots; 0: no end")
			f.Add("--cost", &o.cost,
				"at the end, print what each BPF program cost per run; counting that costs some 60 ns a run more")
			f.Add("--pid PID[,PID]", listOf(&o.pids, parsePID), "only these processes")
			f.Add("--cgroup GROUP", &o.cgroup,
				"only this control group and those below: a path below the hierarchy of version 2, or a folder of "+
					"either version")
			f.Add("--comm NAME", &o.comm, "only threads with this name, as /proc/PID/comm has it")
			switch o.name {
			case "block":
				f.Add("--device NAME[,NAME]", wordList(&o.devices), "only these devices, such as nvme0n1")
				f.Add("--strap-buckets", &o.strap,
					"write bucket bounds twice too large, as STRAP-LLM did, for scripts made for them")
			case "prof":
				o.sample = 1
				collectors := []string{"disk", "syscalls", "mem", "sched", "sync", "net"}
				f.Add("--only LIST", wordList(&o.only, collectors...),
					"only these collectors, of "+strings.Join(collectors, ", ")).
					Default = strings.Join(profDefault, ",")
				f.Add("--sample-read-write N", &o.sample, "time one in N reads and writes; all are counted")
				f.Add("--labels KEY=VALUE[,KEY=VALUE]", setEach(o.addLabel), "add these to each event")
				f.Add("--disable-correlation", &o.noIDs, "write null for corr_id")
				f.Add("", func(string) error { return nil }, "").Deprecated("--log") // of STRAP-LLM: changes nothing
				f.List[len(f.List)-1].Value = "LEVEL"
			}
			return func(args []string) error {
				o.interval, o.program = time.Duration(seconds*float64(time.Second)), f.Program
				if err := o.check(args[:len(args)-len(f.Program)]); err != nil {
					return err
				}
				return runHostCollector(o)
			}
		},
	}
}

// addLabel adds KEY=VALUE.
func (o *hostOptions) addLabel(pair string) error {
	key, value, ok := strings.Cut(pair, "=")
	if !ok || key == "" {
		return fmt.Errorf("%.40q: write KEY=VALUE", pair)
	}
	if o.labels == nil {
		o.labels = map[string]string{}
	}
	o.labels[key] = value
	return nil
}

// check refuses contradictory flags.
func (o *hostOptions) check(rest []string) error {
	prof := o.name == "prof"
	if prof && len(rest) == 1 && rest[0] == "run" { // STRAP-LLM's form
		rest = nil
	}
	if prof && len(o.only) == 0 {
		o.only = profDefault
	}
	switch {
	case prof && len(rest) == 1 && rest[0] == "top":
		return cli.Wrongf("there is no view called top: print the events with --no-output")
	case len(rest) > 0:
		return cli.Wrongf("unexpected argument %.40q: put a program after --", rest[0])
	case !(o.interval >= 50*time.Millisecond && o.interval <= 24*time.Hour):
		return cli.Wrongf("--interval %v: give seconds from 0.05 to 86400", o.interval.Seconds())
	case o.flushEvery < 1:
		return cli.Wrongf("--flush-every %d: give 1 at least", o.flushEvery)
	case prof && o.sample < 1:
		return cli.Wrongf("--sample-read-write %d: give 1 at least", o.sample)
	case len(o.program) > 0 && len(o.pids) > 0:
		return cli.Wrongf("--pid with a program: the program is what is watched; drop one of them")
	}
	return nil
}
