package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/terminal"
)

const hostHelp = `llamatap host: what the kernel does meanwhile: disks, waiting, faults, system calls

usage: llamatap host block|system|prof [flags] [-- PROGRAM ARGUMENTS]
       llamatap host analyze [flags] [DIR]
       llamatap host waits DIR

block    latency and depth of block devices, one JSON line an interval, to tracepoints.jsonl
system   page faults, waiting by cause, run queue, pressure, memory, to system_metrics.jsonl
prof     events of disk, syscalls, mem, sched, sync, net, to llm_prof.jsonl
analyze  text, charts and correlations of what block and system wrote
waits    what each token waited for, by tensor: of a run recorded with --tap-host waits

Collectors need root, or the rights that the error names. Without a program they watch the whole machine, or what --pid, --cgroup and
--comm name, until Ctrl-C; with one they watch it and end with it. To record a model's run, add --tap-host block,system,waits to it:
then each line knows its token. 'llamatap host block --help' lists a collector's flags; docs/HOST.md says what each figure means.
`

// runHost starts a host collector by itself, or reads what one wrote.
func runHost(args []string) error {
	if len(args) == 0 {
		return exitStatus{Code: 2, Err: errors.New("no collector: use block, system or prof, analyze or waits; 'llamatap host --help' tells more")}
	}
	switch args[0] {
	case "-h", "--help", "-help", "help":
		terminal.Print(hostHelp)
		return nil
	case "block", "system", "prof":
		return runHostCollector(args[0], args[1:])
	case "analyze":
		return runHostAnalyze(args[1:])
	case "waits":
		return runHostWaits(args[1:])
	}
	return exitStatus{Code: 2, Err: fmt.Errorf("unknown host collector %.40q: use block, system, prof, analyze or waits; 'llamatap host --help' tells more", args[0])}
}

// hostOptions are the flags of a collector that runs by itself.
type hostOptions struct {
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

// hostDefaults are what the documentation of STRAP-LLM states, by collector.
var hostDefaults = map[string]struct {
	interval   float64
	output     string
	flushEvery int
	does       string
}{
	"block":  {5, "tracepoints.jsonl", 12, "latency histograms and depth of block devices"},
	"system": {5, "system_metrics.jsonl", 12, "page faults, waiting by cause, run queue, pressure, memory"},
	"prof":   {1, "llm_prof.jsonl", 5, "events of disk, system calls, memory, scheduling, network"},
}

const hostCollectorHelp = `llamatap host %[1]s: %[2]s

usage: llamatap host %[1]s [flags] [-- PROGRAM ARGUMENTS]

Appends JSON lines to --output, one an interval (prof: several), until Ctrl-C, --count or the end of PROGRAM. Lines are written whole:
the file is valid whenever and however this ends. docs/HOST.md says what each key means.

flags:
`

// parseHostFlags reads the flags of a collector. ok is false after --help.
func parseHostFlags(name string, args []string) (o hostOptions, ok bool, err error) {
	byDef := hostDefaults[name]
	flags := newFlags("host "+name, fmt.Sprintf(hostCollectorHelp, name, byDef.does))
	seconds := flags.Float64("interval", byDef.interval, "`SECONDS` between two snapshots, at least 0.05")
	flags.StringVar(&o.output, "output", byDef.output, "append lines to `FILE`")
	flags.BoolVar(&o.noOutput, "no-output", false, "write no file; print the lines")
	flags.IntVar(&o.flushEvery, "flush-every", byDef.flushEvery, "write to the file after `N` lines")
	flags.BoolVar(&o.fsync, "fsync", false, "bring each write to the disk")
	flags.Uint64Var(&o.count, "count", 0, "end after `N` snapshots; 0: no end")
	flags.BoolVar(&o.cost, "cost", false, "at the end, say what each BPF program cost per run; counting that costs some 60 ns a run more")
	flags.Func("pid", "only these processes, `PID`[,PID]", intoInts(&o.pids))
	flags.StringVar(&o.cgroup, "cgroup", "", "only this control `GROUP` and those below: a path below the hierarchy of version 2, or a folder of either version")
	flags.StringVar(&o.comm, "comm", "", "only threads with this `NAME`, as /proc/PID/comm has it")
	switch name {
	case "block":
		flags.Func("device", "only these devices, `NAME`[,NAME], such as nvme0n1", intoList(&o.devices))
		flags.BoolVar(&o.strap, "strap-buckets", false, "write bucket bounds twice too large, as system A did, for scripts made for them")
	case "prof":
		flags.Func("only", "only these collectors, `LIST` of disk, syscalls, mem, sched, sync, net; default disk,syscalls,mem,sched", intoList(&o.only))
		flags.IntVar(&o.sample, "sample-read-write", 1, "time one in `N` reads and writes; all are counted")
		flags.Func("labels", "add to each event `KEY=VALUE`[,KEY=VALUE]", intoLabels(&o.labels))
		flags.BoolVar(&o.noIDs, "disable-correlation", false, "write null for corr_id")
		flags.String("log", "INFO", "taken for system A's sake; `LEVEL` changes nothing")
	}
	if at := slices.Index(args, "--"); at >= 0 {
		args, o.program = args[:at], args[at+1:]
		if len(o.program) == 0 {
			return o, false, exitStatus{Code: 2, Err: fmt.Errorf("no program behind --: write llamatap host %s -- PROGRAM ARGUMENTS", name)}
		}
	}
	usage := flags.Usage
	flags.Usage = func() {}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		usage()
		return o, false, nil
	} else if err != nil {
		return o, false, exitStatus{Code: 2, Err: fmt.Errorf("%w; 'llamatap host %s --help' lists the flags", config.ExplainUnknownFlag(flags, args, err), name)}
	}
	o.interval = time.Duration(*seconds * float64(time.Second))
	return o, true, o.check(name, flags.Args())
}

// check refuses what cannot be meant.
func (o *hostOptions) check(name string, rest []string) error {
	wrong := func(format string, args ...any) error {
		return exitStatus{Code: 2, Err: fmt.Errorf(format, args...)}
	}
	if name == "prof" && len(rest) == 1 && rest[0] == "run" { // A's form
		rest = nil
	}
	switch {
	case name == "prof" && len(rest) == 1 && rest[0] == "top":
		return wrong("there is no view called top: print the events with --no-output")
	case len(rest) > 0:
		return wrong("unexpected argument %.40q: a program stands behind --", rest[0])
	case !(o.interval >= 50*time.Millisecond && o.interval <= 24*time.Hour):
		return wrong("--interval %v: give seconds from 0.05 to 86400", o.interval.Seconds())
	case o.flushEvery < 1:
		return wrong("--flush-every %d: give 1 at least", o.flushEvery)
	case name == "prof" && o.sample < 1:
		return wrong("--sample-read-write %d: give 1 at least", o.sample)
	case len(o.program) > 0 && len(o.pids) > 0:
		return wrong("--pid with a program: the program is what is watched; drop one of them")
	}
	if name == "prof" && len(o.only) == 0 {
		o.only = []string{"disk", "syscalls", "mem", "sched"} // as A
	}
	for _, c := range o.only {
		if !slices.Contains([]string{"disk", "syscalls", "mem", "sched", "sync", "net"}, c) {
			return wrong("--only: unknown collector %.40q: use disk, syscalls, mem, sched, sync, net", c)
		}
	}
	return nil
}

func intoInts(to *[]int) func(string) error {
	return func(s string) error {
		for word := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil || n < 1 {
				return fmt.Errorf("%.20q is no process id", word)
			}
			*to = append(*to, n)
		}
		return nil
	}
}

func intoList(to *[]string) func(string) error {
	return func(s string) error {
		for word := range strings.SplitSeq(s, ",") {
			*to = append(*to, strings.TrimSpace(word))
		}
		return nil
	}
}

func intoLabels(to *map[string]string) func(string) error {
	return func(s string) error {
		if *to == nil {
			*to = map[string]string{}
		}
		for pair := range strings.SplitSeq(s, ",") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok || key == "" {
				return fmt.Errorf("%.40q: write KEY=VALUE", pair)
			}
			(*to)[key] = value
		}
		return nil
	}
}
