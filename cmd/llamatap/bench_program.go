package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/terminal"
	"github.com/llamatap/llamatap/store/codec"
)

// isProgram reports whether a benchmark is one of STRAP-LLM's programs, or "programs", which is all of them.
func isProgram(name string) bool {
	return name == "programs" || slices.Contains(bench.ProgramNames, name)
}

// runBenchProgram runs one of STRAP-LLM's benchmark programs, or all of them with their defaults.
func runBenchProgram(args []string) error {
	var programs []bench.Program
	if args[0] == "programs" {
		if len(args) > 1 && args[1] != "--help" && args[1] != "-h" {
			return exitStatus{Code: 2, Err: fmt.Errorf("'llamatap bench programs' takes no arguments; 'llamatap bench %s --help' lists a program's flags", bench.ProgramNames[0])}
		}
		for _, name := range bench.ProgramNames {
			programs = append(programs, bench.NewProgram(name))
		}
	} else {
		programs = []bench.Program{bench.NewProgram(args[0])}
	}
	if len(args) > 1 {
		err := parseProgram(&programs[0], args)
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		if err != nil {
			return exitStatus{Code: 2, Err: err}
		}
	}
	ctx, stop := untilSignal()
	defer stop()
	for _, p := range programs {
		result, err := p.Run(ctx)
		if ctx.Err() != nil {
			return exitStatus{Code: 130, Err: errors.New("interrupted")}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		fmt.Fprintf(terminal.Out, "%-21s %s\n", p.Name, result)
	}
	return nil
}

func parseProgram(p *bench.Program, args []string) error {
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&p.Shape, "shape", p.Shape, "`DIMENSIONS` of a tensor, separated by commas")
	flags.StringVar(&p.DType, "dtype", p.DType, "element `TYPE`: float32, float16, int8")
	flags.Uint64Var(&p.Seed, "seed", p.Seed, "seed of the values")
	flags.Func("compression", "`CODEC`: none, lz4, zstd … (default "+p.Compression.String()+")", func(s string) (err error) {
		p.Compression, err = codec.Parse(s)
		return err
	})
	switch p.Name {
	case "compression_analysis":
		flags.IntVar(&p.Trials, "trials", p.Trials, "how `OFTEN` a tensor is compressed")
	case "optimized_streaming", "memory_profiling":
		flags.Int64Var(&p.BufferSize, "buffer-size", p.BufferSize, "`BYTES` that may wait for the disk")
		flags.IntVar(&p.Workers, "workers", p.Workers, "`NUMBER` of threads that compress")
	}
	if p.Name != "compression_analysis" {
		flags.StringVar(&p.Output, "output", p.Output, "`FILE` to write")
		flags.IntVar(&p.Tensors, "num-tensors", p.Tensors, "`NUMBER` of tensors")
	}
	if err := flags.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(terminal.Out, "llamatap bench %s: STRAP-LLM's benchmark program of this name, with its flags (docs/BENCH.md)\n\n", p.Name)
			flags.SetOutput(terminal.Out)
			flags.PrintDefaults()
			return err
		}
		return fmt.Errorf("%w; 'llamatap bench %s --help' lists the flags", config.ExplainUnknownFlag(flags, args[1:], err), p.Name)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; 'llamatap bench %s --help' lists the flags", flags.Arg(0), p.Name)
	}
	return nil
}
