package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/internal/testenv"
)

// An outcome is how a test ended. If a test ran twice, the greater outcome counts.
type outcome int

const (
	unknown outcome = iota
	skipped
	passed
	failed
)

var outcomes = map[string]outcome{"skip": skipped, "pass": passed, "fail": failed}

// A test is named by its package and name; the name is empty for what befell the package itself.
type test struct{ pkg, name string }

func (t test) String() string { return strings.TrimSpace(t.pkg + " " + t.name) }

// results gathers events.
type results struct {
	outcome map[test]outcome
	output  map[test]*strings.Builder // of tests that have not passed
	reason  map[test]string           // why a test was skipped
	broken  map[string]bool           // packages with a failed test of their own
}

func newResults() *results {
	return &results{
		outcome: map[test]outcome{}, output: map[test]*strings.Builder{},
		reason: map[test]string{}, broken: map[string]bool{},
	}
}

// add takes one event in.
func (r *results) add(e event) {
	t := test{e.Package, e.Test}
	if e.Action == "output" || e.Action == "build-output" {
		r.text(t).WriteString(e.Output)
		return
	}
	o, ok := outcomes[e.Action]
	if !ok || e.Package == "" {
		return
	}
	if e.Test == "" {
		// A package counts only when it failed without a test to blame: it did not build, panicked or hung.
		if o == failed && !r.broken[e.Package] {
			r.outcome[t] = failed
		}
		return
	}
	if o == failed {
		r.broken[e.Package] = true
	}
	if o == skipped {
		r.reason[t] = lastLine(r.text(t).String())
	}
	r.outcome[t] = max(r.outcome[t], o)
	if o == passed {
		delete(r.output, t)
	}
}

func (r *results) text(t test) *strings.Builder {
	if r.output[t] == nil {
		r.output[t] = &strings.Builder{}
	}
	return r.output[t]
}

// live takes one event in and prints what a person wants to see at once.
func (r *results) live(w io.Writer, e event) {
	r.add(e)
	t := test{e.Package, e.Test}
	switch {
	case e.Action == "build-output", e.Action == "output" && e.Package == "":
		fmt.Fprint(w, e.Output)
	case e.Test != "" && e.Action == "fail":
		fmt.Fprint(w, r.text(t))
	case e.Test == "" && e.Action == "fail":
		fmt.Fprint(w, r.text(t))
		fmt.Fprintf(w, "FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
	case e.Test == "" && e.Action == "pass":
		fmt.Fprintf(w, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
	}
}

func (r *results) count(o outcome) (n int) {
	for _, got := range r.outcome {
		if got == o {
			n++
		}
	}
	return n
}

// print writes failures, skips with reasons and the counts, and reports whether all is well.
func (r *results) print(w io.Writer, ci bool) bool {
	unexcused := 0
	for _, t := range slices.SortedFunc(maps.Keys(r.outcome),
		func(a, b test) int { return strings.Compare(a.String(), b.String()) }) {
		switch r.outcome[t] {
		case failed:
			fmt.Fprintf(w, "failed:  %s\n", t)
		case skipped:
			fmt.Fprintf(w, "skipped: %s: %s\n", t, r.reason[t])
			if !testenv.Excused(r.reason[t]) {
				unexcused++
			}
		}
	}
	if ci && unexcused > 0 {
		fmt.Fprintf(w, "%d of the skipped tests could have run in CI\n", unexcused)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", r.count(passed), r.count(failed), r.count(skipped))
	return r.count(failed) == 0 && r.count(passed) > 0 && (!ci || unexcused == 0)
}

// lastLine returns the last line of a skipped test's output that carries its reason.
func lastLine(output string) string {
	last := "no reason given"
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "--- ") && !strings.HasPrefix(line, "=== ") {
			last = line
		}
	}
	return last
}
