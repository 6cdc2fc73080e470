// Command tally reads the events of go test -json and sums up the outcomes of the tests.
//
//	go test -json ./... | tally -o FILE   prints packages and failures as they end, keeps all events
//	tally -sum FILE                       prints the skipped tests with their reasons and the counts
//
// With -sum the exit status is 1 when a test failed, when none ran and, under LLAMATAP_CI=1, when a
// test was skipped for a reason that package testenv does not excuse.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/llamatap/llamatap/internal/testenv"
)

func main() {
	sum := flag.String("sum", "", "print the summary of the events in `FILE`")
	out := flag.String("o", "", "append all events to `FILE`")
	flag.Parse()
	ok, err := run(*sum, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(sum, out string) (ok bool, err error) {
	if sum != "" {
		return summarise(sum)
	}
	keep, err := os.OpenFile(out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return false, fmt.Errorf("keep events: %w", err)
	}
	results := newResults()
	err = read(io.TeeReader(os.Stdin, keep), func(e event) { results.live(os.Stdout, e) })
	if closeErr := keep.Close(); err == nil {
		err = closeErr
	}
	return results.count(failed) == 0, err
}

// summarise prints the summary of the events in the named file.
func summarise(name string) (ok bool, err error) {
	file, err := os.Open(name)
	if err != nil {
		return false, fmt.Errorf("open events: %w", err)
	}
	defer file.Close()
	results := newResults()
	if err := read(file, results.add); err != nil {
		return false, err
	}
	return results.print(os.Stdout, testenv.CI()), nil
}
