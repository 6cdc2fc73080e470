package main

import (
	"errors"

	"fmt"
	"os"
	"slices"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/runner/doctor"
	"github.com/llamatap/llamatap/runner/memory"
	"github.com/llamatap/llamatap/runner/sampling"
)

const memoryRecordHelp = `llamatap memory record: sample the memory accesses of any program

usage: llamatap memory record [flags] -- PROGRAM [ARGUMENTS]
       llamatap memory record [flags] -p PID

Writes a run directory with trace.parquet (one row per sample: time, process, address, region, function, variable), region_map.parquet (what
the processes have mapped), process.jsonl (what each of them took of memory, CPU and I/O), metadata.json (what was lost, too), sealed by
manifest.json. What the program starts is sampled too, such as the workers of a server, each process for itself. It ends with the program,
after -d seconds, or with Ctrl-C; the program's exit status is this command's, 3 where it is 0 and samples were lost.

perf    loads and stores that the processor samples: bare metal with Intel PEBS or AMD IBS; not yet run on hardware
faults  page faults with their addresses: every machine
pages   pages that were written between two looks (--interval), of memory and of variables: Linux 6.7, a program that is started here

All that --samples lists run; of names with a colon between them the first that can be had. docs/MEMORY_SAMPLES.md says what each needs.

  llamatap memory record -- ./my-server --port 8080
  llamatap memory record --samples faults,pages -d 10 -o runs -- python3 train.py
  llamatap memory record -p 4711 -d 5

flags:
`

const memoryImportHelp = `llamatap memory import: make a run directory of what the program perf has sampled

usage: llamatap memory import [flags] FILE…

Takes texts of perf script and files perf.data (also of pipes, packed ones, and with traces of Arm SPE), any size. docs/MEMORY_SAMPLES.md says
how to record them. Times stay those of the files.

  perf mem record -k CLOCK_MONOTONIC -o perf.data -- llama-cli …
  llamatap memory import perf.data

flags:
`

// memoryRecording are the flags of a recording.
type memoryRecording struct {
	memory.Options
	program []string
}

// parseMemoryRecord reads the flags. ok is false after --help.
func parseMemoryRecord(args []string) (o memoryRecording, ok bool, err error) {
	flags := newFlags("memory record", memoryRecordHelp)
	samples := flags.String("samples", "perf:faults", "which collectors, `LIST` of perf, faults, pages")
	out := flags.String("o", defaultOut(), "`DIR` in which the run directory is made")
	seconds := flags.Float64("d", 0, "end after so many `SECONDS`; 0: with the program")
	pid := flags.Int("p", 0, "sample the process `PID`, with all its threads and what it has started")
	interval := flags.Float64("interval", 1, "`SECONDS` between two lines of process.jsonl, and two looks for written pages, at least 0.05")
	period := flags.Uint64("period", 0, "with perf: loads and stores (AMD: operations) per sample; 0 is what is usual, `N`")
	alone := flags.Bool("no-children", false, "sample the program or process alone, and nothing that it starts")
	ring := flags.String("ring", "0", "memory of each CPU in which samples wait, `SIZE` such as 1M; 0: as much as the kernel allows, up to 4M")
	at := slices.Index(args, "--")
	if at >= 0 {
		args, o.program = args[:at], args[at+1:]
	}
	rest, err := parseAnyFlags(flags, args)
	if err != nil || rest == nil {
		return o, false, err
	}
	wrong := func(format string, args ...any) error {
		return exitStatus{Code: 2, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case len(rest) > 0:
		return o, false, wrong("unexpected argument %.40q: a program stands behind --", rest[0])
	case at >= 0 && len(o.program) == 0:
		return o, false, wrong("no program behind --: write llamatap memory record -- PROGRAM ARGUMENTS")
	case (*pid != 0) == (len(o.program) > 0):
		return o, false, wrong("give a program behind --, or a process with -p, one of the two")
	case *pid < 0:
		return o, false, wrong("-p %d is no process id", *pid)
	case !(*seconds >= 0 && *seconds <= 1e6):
		return o, false, wrong("-d %v: give seconds from 0 to 1000000", *seconds)
	case !(*interval >= 0.05 && *interval <= 86400):
		return o, false, wrong("--interval %v: give seconds from 0.05 to 86400", *interval)
	}
	choices, err := config.ParseSamples(*samples)
	if err != nil {
		return o, false, wrong("--samples: %w", err)
	}
	for _, c := range choices {
		o.Choices = append(o.Choices, c)
	}
	if *period != 0 && !slices.ContainsFunc(o.Choices, func(c []string) bool { return slices.Contains(c, sampling.Perf) }) {
		return o, false, wrong("--period %d is that of perf, and --samples does not name it: write --samples perf:faults, or drop it", *period)
	}
	bytes, err := config.ParseSampleRing(*ring)
	if err != nil {
		return o, false, wrong("--ring: %w", err)
	}
	o.Alone = *alone
	o.Out, o.PID, o.Period, o.RingBytes = *out, *pid, *period, int(bytes)
	o.Duration, o.Interval = time.Duration(*seconds*float64(time.Second)), time.Duration(*interval*float64(time.Second))
	return o, true, nil
}

// runMemoryImport makes a run directory of files of the program perf.
func runMemoryImport(args []string) error {
	flags := newFlags("memory import", memoryImportHelp)
	out := flags.String("o", defaultOut(), "`DIR` in which the run directory is made")
	fields := flags.String("F", "", "the `FIELDS` that perf script -F was given, where they cannot be found out")
	files, err := parseAnyFlags(flags, args)
	if err != nil || files == nil {
		return err
	}
	if len(files) == 0 {
		return exitStatus{Code: 2, Err: errors.New("no file: give texts of perf script, or perf.data; 'llamatap memory import --help' shows how")}
	}
	result, err := memory.Import(memory.ImportOptions{
		Files: files, Fields: *fields, Out: *out, Version: version, Echo: append([]string{"llamatap", "memory", "import"}, args...), Warn: tellMemory,
	})
	if err != nil {
		return err
	}
	return endMemory(result)
}

// statusLossy is the exit status where the program has ended well and its recording lacks something.
const statusLossy = 3

func tellMemory(err error) { fmt.Fprintf(terminal.Err, "llamatap: %v\n", err) }

// endMemory says what was recorded. What is missing sets the status.
func endMemory(result memory.Result) error {
	fmt.Fprintf(terminal.Err, "llamatap  samples   %s\n          run       %s\n", result.Use.Words(), result.Dir)
	if result.Use.Lossy {
		return exitStatus{Code: statusLossy, Err: errors.New("some samples are missing (above, and in metadata.json)")}
	}
	return nil
}

// trySamples opens each collector of --tap-samples for this process, and closes it.
func trySamples() []doctor.SampleCollector {
	var tried []doctor.SampleCollector
	for _, name := range config.SampleCollectors {
		c := doctor.SampleCollector{Name: name}
		set, err := sampling.Open(sampling.Options{Choices: [][]string{{name}}, PID: os.Getpid()}, sampling.NewQueue(os.TempDir()))
		if c.Err = err; err == nil {
			for _, one := range set.Collectors() {
				c.Notes = append(c.Notes, one.Notes...)
			}
			c.Err = set.Close()
		}
		tried = append(tried, c)
	}
	return tried
}
