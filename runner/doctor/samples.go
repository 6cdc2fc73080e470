package doctor

import "strings"

// SampleCollector is a collector of --tap-samples that was tried with this process. Err says why it does not run
// here; Notes what it leaves out.
type SampleCollector struct {
	Name  string
	Notes []string
	Err   error
}

var sampleWorks = map[string]string{
	"perf":   "loads and stores of this process were sampled",
	"faults": "page faults of this process were sampled",
	"pages":  "pages of this process were write-protected",
}

var sampleCosts = map[string]string{
	"perf":   "no loads and stores with their latency and cache level",
	"faults": "no page faults with their addresses",
	"pages":  "no pages that each token wrote",
}

// sampleCollectors lists which collectors of --tap-samples run here. They were opened and closed again.
func sampleCollectors(try func() []SampleCollector) []Fact {
	if try == nil {
		return nil
	}
	var facts []Fact
	for _, c := range try() {
		f := Fact{Topic: "memory samples", Name: c.Name}
		switch {
		case c.Err != nil:
			f = f.is(Missing, oneLine(c.Err.Error()))
		case len(c.Notes) > 0:
			f = f.is(Limited, oneLine(strings.Join(c.Notes, "; ")))
		default:
			f = f.is(OK, sampleWorks[c.Name])
		}
		facts = append(facts, f.lacking(sampleCosts[c.Name], "see docs/MEMORY_SAMPLES.md"))
	}
	return facts
}
