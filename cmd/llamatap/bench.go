package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/llamatap/llamatap/bench"
)

// runBench runs one of the benchmarks: without arguments what the tap costs, with flags a model's rates.
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
	case "compare":
		return runBenchCompare(args[1:])
	case "measure":
		return runBenchMeasure(args[1:])
	}
	if isProgram(args[0]) {
		return runBenchProgram(args)
	}
	if strings.HasPrefix(args[0], "-") {
		return runBenchScript(args)
	}
	return exitStatus{Code: 2, Err: fmt.Errorf(
		"unknown benchmark %q: use tap, compare, programs or flags ('llamatap bench --help')", args[0])}
}
