package main

import (
	"fmt"
	"os"

	"github.com/llamatap/llamatap/bench"
)

// runBench is one of the benchmarks: without arguments the table of what the tap costs.
func runBench(args []string) error {
	if level := os.Getenv(bench.LoadVariable); level != "" {
		return runLoad(level)
	}
	if len(args) == 0 {
		return runBenchTap(nil)
	}
	switch args[0] {
	case "tap":
		return runBenchTap(args[1:])
	case "measure":
		return runBenchMeasure(args[1:])
	}
	return exitStatus{Code: 2, Err: fmt.Errorf("unknown benchmark %q: there are tap and measure", args[0])}
}
