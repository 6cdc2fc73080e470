package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/llamatap/llamatap/bench"
)

// runBench is one of the benchmarks: without arguments the whole table against the machine's limits, with flags a
// model's.
func runBench(args []string) error {
	if level := os.Getenv(bench.LoadVariable); level != "" {
		return runLoad(level)
	}
	if len(args) == 0 {
		return runBenchTable([]string{"all"})
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
	if isSection(args[0]) {
		return runBenchTable(args)
	}
	if strings.HasPrefix(args[0], "-") {
		return runBenchScript(args)
	}
	return exitStatus{Code: 2, Err: fmt.Errorf("unknown benchmark %q: there are all, machine, stream, tap, levels, growth, host, compare and programs, and flags ('llamatap bench --help')", args[0])}
}
