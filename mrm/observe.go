package mrm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/llamatap/llamatap/inspect/memory"
)

// An answer is what a result file says of one request (docs/PROMPTS.md), as much of it as is needed here.
type answer struct {
	ID           string  `json:"id"`
	Error        string  `json:"error"`
	Tokens       []int64 `json:"tokens"`
	Finish       string  `json:"finish"`
	PromptTokens int64   `json:"prompt_tokens"`
	PromptNS     int64   `json:"prompt_ns"`
	GenerationNS int64   `json:"generation_ns"`
}

// answers reads a result file. A request that failed or was cut short makes the pass one that is not to be used.
func answers(r io.Reader, want int) ([]answer, error) {
	lines := json.NewDecoder(bufio.NewReader(r))
	var all []answer
	for {
		var a answer
		err := lines.Decode(&a)
		switch {
		case errors.Is(err, io.EOF) && len(all) == want:
			return all, nil
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%d of %d requests have a result", len(all), want)
		case err != nil:
			return nil, fmt.Errorf("results of the model: %w", err)
		case a.Error != "":
			return nil, fmt.Errorf("the model failed: %s", a.Error)
		case a.Finish != "length":
			return nil, fmt.Errorf("a request ended by %q, not by its length; give it more context (engine.n_ctx), "+
				"or fewer tokens", a.Finish)
		}
		all = append(all, a)
	}
}

// account adds the requests of a pass up. With several at a time, their times are those of the longest.
func account(all []answer) memory.Pass {
	var p memory.Pass
	for _, a := range all {
		p.PromptTokens += a.PromptTokens
		p.GeneratedTokens += int64(len(a.Tokens))
		p.PromptNS = max(p.PromptNS, a.PromptNS)
		p.GenerationNS = max(p.GenerationNS, a.GenerationNS)
	}
	return p
}

// same reports whether two passes generated the same tokens; nil where several requests shared batches, of which that
// is not promised.
func same(a, b []answer) *bool {
	if len(a) != 1 || len(b) != 1 {
		return nil
	}
	equal := slices.Equal(a[0].Tokens, b[0].Tokens)
	return &equal
}

// An observation is what was measured of a cell, from which its Observer follows.
type observation struct {
	baseline, tapped memory.Pass
	cpu              memory.CPU
	// largest share of a processor that collector and mrm had together in a second; 0: not known
	busiest    float64
	memory     int64 // most that the observer had, bytes; 0: not known
	peak       int64 // most that the collector had, the files that it maps included
	same       *bool // tokens
	sameOutput *bool // of a program
	isCommand  bool
	throttle   memory.Throttle
	busy       *float64 // share of all processors before the run
	busyFor    float64  // seconds
	others     *float64 // percent of all processors
}

// observer computes what observing cost.
func (o *observation) observer() memory.Observer {
	v := memory.Observer{
		CPUNS: o.cpu, WallNS: o.tapped.WallNS, MemoryBytes: o.memory, CollectorRSSBytes: o.peak,
		TargetRSSBytes: o.baseline.PeakRSSBytes,
		Baseline:       o.baseline, Tapped: o.tapped, SameTokens: o.same, SameOutput: o.sameOutput,
		Throttle: o.throttle, ThrottleEvents: o.throttle.Events(),
		BaselineS: o.busyFor, OthersCPUPct: o.others,
	}
	if v.CPUPct = percent(float64(o.cpu.Sum()), float64(o.tapped.WallNS)); v.CPUPct != nil {
		peak := max(*v.CPUPct, 100*(o.busiest+float64(o.cpu.Tap)/float64(o.tapped.WallNS)))
		v.CPUPeakPct = &peak
	}
	if o.memory > 0 {
		v.MemoryPct = percent(float64(o.memory), float64(o.baseline.PeakRSSBytes))
	}
	if o.busy != nil {
		v.BaselineCPUPct = percent(*o.busy, 1)
	}
	p0, d0 := o.baseline.Rates()
	p1, d1 := o.tapped.Rates()
	v.PrefillRatio, v.DecodeRatio = ratio(p1, p0), ratio(d1, d0)
	if o.isCommand {
		v.WallRatio = ratio(float64(o.baseline.WallNS), float64(o.tapped.WallNS))
	}
	return v
}

// ratio is nil where there is nothing to divide.
func ratio(a, b float64) *float64 {
	if a <= 0 || b <= 0 {
		return nil
	}
	return new(a / b)
}

// percent is nil where there is nothing to divide by.
func percent(of, all float64) *float64 {
	if all <= 0 {
		return nil
	}
	return new(100 * of / all)
}

// peakWindow is the time over which the observer's CPU is averaged to find its peak.
const peakWindow = int64(1e9)

// A peakCPU finds in which second a process used most processor time, of readings of what it has used so far.
type peakCPU struct {
	readings []cpuReading // of the last second, and one before
	most     float64
}

type cpuReading struct{ ns, used int64 }

// add takes a reading, at a time of any steady clock.
func (p *peakCPU) add(ns, used int64) {
	p.readings = append(p.readings, cpuReading{ns, used})
	for len(p.readings) > 1 && ns-p.readings[1].ns >= peakWindow {
		p.readings = p.readings[1:]
	}
	if first := p.readings[0]; ns-first.ns >= peakWindow {
		p.most = max(p.most, float64(used-first.used)/float64(ns-first.ns))
	}
}
