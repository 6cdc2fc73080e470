package main

import (
	"fmt"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/codec"
)

// benchProgramCommand is one of STRAP-LLM's benchmark programs.
func benchProgramCommand(name string) *cli.Command {
	return &cli.Command{
		Name: name, Summary: "STRAP-LLM's benchmark program of this name, with its flags (docs/BENCH.md)",
		Usage: "[flags]",
		Define: func(f *cli.Flags) func([]string) error {
			p := bench.NewProgram(name)
			f.Add("--shape DIMENSIONS", &p.Shape, "dimensions of a tensor, separated by commas")
			f.Add("--dtype float32|float16|int8", &p.DType, "element type")
			f.Add("--seed N", &p.Seed, "seed of the values")
			f.Add("--compression CODEC", parsed(&p.Compression, codec.Parse),
				"none, lz4, zstd …").Default = p.Compression.String()
			switch name {
			case "compression_analysis":
				f.Add("--trials N", &p.Trials, "how often a tensor is compressed")
			case "optimized_streaming", "memory_profiling":
				f.Add("--buffer-size BYTES", &p.BufferSize, "bytes that may wait for the disk")
				f.Add("--workers N", &p.Workers, "threads that compress")
			}
			if name != "compression_analysis" {
				f.Add("-o, --output FILE", &p.Output, "file to write")
				f.Add("--num-tensors N", &p.Tensors, "number of tensors")
			}
			return func([]string) error { return runBenchPrograms(p) }
		},
	}
}

func runBenchPrograms(programs ...bench.Program) error {
	ctx, stop := untilSignal()
	defer stop()
	for _, p := range programs {
		result, err := p.Run(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		fmt.Fprintf(present.Out, "%-21s %s\n", p.Name, result)
	}
	return nil
}
