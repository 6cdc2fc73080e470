package config

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// The collectors of --tap-samples.
const (
	SamplePerf   = "perf"   // loads and stores that the processor samples
	SampleFaults = "faults" // page faults with their addresses
	SamplePages  = "pages"  // pages that were written between two scans
)

// sampleCollectors are the collectors of --tap-samples.
var sampleCollectors = []string{SamplePerf, SampleFaults, SamplePages}

// SampleChoice is one collector of --tap-samples, followed by those that take its place where it cannot run, in their
// order.
type SampleChoice []string

// String is the choice as it is written in the flag.
func (c SampleChoice) String() string { return strings.Join(c, ":") }

// The bounds of --tap-samples-ring and --tap-process-interval.
const (
	minSampleRing          Bytes = 8 << 10
	maxSampleRing          Bytes = 1 << 30
	defaultProcessInterval       = time.Second
	minProcessInterval           = 50 * time.Millisecond
)

func sampleOptions() []option {
	return []option{
		{name: "samples", form: "LIST", recorder: Samples,
			help: "sample what memory the model's process touches, to trace.parquet: perf (loads and stores, needs " +
				"a PMU), faults (page faults), pages (pages that were written, token by token); all that the list " +
				"names run, perf:faults takes the second where the first cannot run",
			field: written(func(t *Tap) *[]SampleChoice { return &t.Samples }, ParseSamples, listed)},
		{name: "samples-period", form: "N", modifies: Samples, byDef: "0",
			help: "with perf: loads and stores (AMD: operations) per sample; 0 is what is usual for the processor",
			field: whole(func(t *Tap) *uint64 { return &t.SamplesPeriod }, 0, 1<<40,
				"samples period %q: write events per sample, such as 10000, or 0 for what is usual")},
		{name: "samples-ring", form: "SIZE", modifies: Samples, byDef: "0",
			help: "with perf and faults: memory of each CPU in which samples wait, a power of two such as 1M; 0 is " +
				"as much as the kernel and --tap-memory allow, up to 4M",
			field: parsed(func(t *Tap) *Bytes { return &t.SamplesRing }, ParseSampleRing)},
		{name: "process-interval", form: "DURATION", role: roleModifier, byDef: defaultProcessInterval.String(),
			help: "time between two lines of process.jsonl, which a recorder of memory accesses writes",
			field: span(func(t *Tap) *time.Duration { return &t.ProcessInterval }, minProcessInterval, math.MaxInt64,
				"process interval %q: write a time from "+minProcessInterval.String()+" on, such as 200ms, 1s or 5s")},
	}
}

// ParseSamples reads a list of collectors of samples, such as perf:faults,pages. A collector may be named once.
func ParseSamples(s string) ([]SampleChoice, error) {
	var sampleChoices []SampleChoice
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		var choice SampleChoice
		for word := range strings.SplitSeq(part, ":") {
			name, err := oneOf("collector of samples", strings.TrimSpace(word), sampleCollectors)
			if err != nil {
				return nil, err
			}
			if seen[name] {
				return nil, fmt.Errorf("collector of samples %q is named twice: name it once", name)
			}
			seen[name] = true
			choice = append(choice, name)
		}
		sampleChoices = append(sampleChoices, choice)
	}
	return sampleChoices, nil
}

// ParseSampleRing reads the size of a ring of samples: a power of two, or 0.
func ParseSampleRing(s string) (Bytes, error) {
	if s == "0" {
		return 0, nil
	}
	size, err := ParseBytes(s)
	if err == nil && (size < minSampleRing || size > maxSampleRing || size&(size-1) != 0) {
		err = fmt.Errorf("samples ring %q: give a power of two from %v to %v, such as 1M, or 0", s, minSampleRing,
			maxSampleRing)
	}
	return size, err
}
