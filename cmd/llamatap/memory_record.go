package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/runner/memory"
	"github.com/llamatap/llamatap/store/object"
)

// memoryRecording are the flags of a recording.
type memoryRecording struct {
	memory.Options
	flags   *cli.Flags
	program []string
}

func memoryRecordCommand() *cli.Command {
	return &cli.Command{
		Name: "record", Summary: "sample the memory accesses of any program",
		Usage: "[flags] -- PROGRAM [ARGUMENTS]\n[flags] -p PID",
		Text: `Writes a run directory with trace.parquet (one row per sample: time, process, address, region,
function, variable), region_map.parquet (what the processes have mapped), process.jsonl (memory, CPU and I/O of each),
metadata.json (losses, too), sealed by manifest.json. What the program starts is sampled too, such as the workers of a
server, each process for itself. It ends with the program, after -d seconds, or with Ctrl-C; the program's exit status
is this command's, 3 where it is 0 and samples were lost.

  perf    loads and stores that the processor samples: bare metal with Intel PEBS or AMD IBS; not yet run on hardware
  faults  page faults with their addresses: every machine
  pages   pages that were written between two looks (--interval), of memory and of variables: Linux 6.7, a program that is started here

All that --samples lists run; of names with a colon between them the first that works. docs/MEMORY_SAMPLES.md lists
what each needs.

  llamatap memory record -- ./my-server --port 8080
  llamatap memory record --samples faults,pages -d 10 -o runs -- python3 train.py
  llamatap memory record -p 4711 -d 5
`,
		Define: func(f *cli.Flags) func([]string) error {
			o := memoryRecording{flags: f}
			o.Out = defaultOut()
			samples, seconds, interval := "perf:faults", 0.0, 1.0
			f.Add("--samples LIST", &samples, "which collectors, of perf, faults, pages")
			f.Add("-o, --output DIR", &o.Out, "folder in which the run directory is made")
			f.Add("-d, --duration SECONDS", &seconds, "end after this time; 0: with the program")
			f.Add("-p, --pid PID", &o.PID, "sample this process, with all its threads and what it has started")
			f.Add("--interval SECONDS", &interval,
				"time between two lines of process.jsonl, and two looks for written pages, at least 0.05")
			f.Add("--period N", &o.Period,
				"with perf: loads and stores (AMD: operations) per sample; 0 is what is usual")
			f.Add("--no-children", &o.Alone, "sample the program or process alone, and nothing that it starts")
			f.Add("--ring SIZE", func(s string) error {
				bytes, err := config.ParseSampleRing(s)
				o.RingBytes = int(bytes)
				return err
			}, "memory of each CPU in which samples wait, such as 1M; 0: as much as the kernel allows, up to 4M").
				Default = "0"
			return func([]string) error {
				o.program = f.Program
				choices, err := config.ParseSamples(samples)
				for _, c := range choices {
					o.Choices = append(o.Choices, c)
				}
				perf := slices.ContainsFunc(o.Choices, func(c []string) bool { return slices.Contains(c, sample.Perf) })
				switch {
				case err != nil:
					return cli.Wrongf("--samples: %w", err)
				case (o.PID != 0) == (len(o.program) > 0):
					return cli.Wrongf("give a program after --, or a process with -p, one of the two")
				case object.Is(o.Out):
					return notStored(o.Out)
				case o.PID < 0:
					return cli.Wrongf("-p %d is not a process id", o.PID)
				case !(seconds >= 0 && seconds <= 1e6):
					return cli.Wrongf("-d %v: give seconds from 0 to 1000000", seconds)
				case !(interval >= 0.05 && interval <= 86400):
					return cli.Wrongf("--interval %v: give seconds from 0.05 to 86400", interval)
				case o.Period != 0 && !perf:
					return cli.Wrongf(
						"--period %d is that of perf, and --samples does not name it: write --samples perf:faults, "+
							"or drop it", o.Period)
				}
				o.Duration, o.Interval = time.Duration(seconds*float64(time.Second)),
					time.Duration(interval*float64(time.Second))
				return runMemoryRecord(o)
			}
		},
	}
}

func memoryImportCommand() *cli.Command {
	return &cli.Command{
		Name: "import", Summary: "make a run directory of what the program perf has sampled", Usage: "[flags] FILE…",
		Min: 1, Max: -1,
		Needs: "no file: give texts of perf script, or perf.data",
		Text: `Takes texts of perf script and files perf.data (also of pipes, packed ones, and with traces of Arm
SPE), any size. docs/MEMORY_SAMPLES.md describes how to record them. Times stay those of the files.

  perf mem record -k CLOCK_MONOTONIC -o perf.data -- llama-cli …
  llamatap memory import perf.data
`,
		Define: func(f *cli.Flags) func([]string) error {
			o := memory.ImportOptions{Out: defaultOut(), Version: version, Warn: tellMemory}
			f.Add("-o, --output DIR", &o.Out, "folder in which the run directory is made")
			f.Add("-F, --fields FIELDS", &o.Fields, "what perf script -F was given, where it cannot be found out")
			return func(files []string) error {
				if object.Is(o.Out) {
					return notStored(o.Out)
				}
				o.Files, o.Echo = files, append([]string{"llamatap", "memory", "import"}, f.Raw...)
				result, err := memory.Import(o)
				if err != nil {
					return err
				}
				return endMemory(result)
			}
		},
	}
}

// notStored refuses a place in object storage.
func notStored(url string) error {
	return cli.Wrongf("-o %s: give a folder here; 'llamatap push' copies the run to object storage", url)
}

// statusLossy is the exit status where the program has ended well and its recording lacks something.
const statusLossy = 3

func tellMemory(err error) { fmt.Fprintf(present.Err, "llamatap: %v\n", err) }

// endMemory says what was recorded. What is missing sets the status.
func endMemory(result memory.Result) error {
	fmt.Fprintf(present.Err, "llamatap  samples   %s\n          run       %s\n", result.Use.Words(), result.Dir)
	if result.Use.Lossy {
		return exitStatus{Code: statusLossy, Err: errors.New("some samples are missing (above, and in metadata.json)")}
	}
	return nil
}
