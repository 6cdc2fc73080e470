package doctor

import "strings"

// sampleFacts are the collectors of --tap-samples: what it means that one works, and what is lost where it does not.
var sampleFacts = []struct{ name, works, costs string }{
	{"perf", "loads and stores of this process were sampled", "no loads and stores with their latency and cache level"},
	{"faults", "page faults of this process were sampled", "no page faults with their addresses"},
	{"pages", "pages of this process were write-protected", "no pages that each token wrote"},
}

// sampleCollectors lists which collectors of --tap-samples run here. They were opened and closed again.
func sampleCollectors(try func(name string) (notes []string, err error)) []Fact {
	if try == nil {
		return nil
	}
	var facts []Fact
	for _, c := range sampleFacts {
		f := Fact{Topic: "memory samples", Name: c.name}
		switch notes, err := try(c.name); {
		case err != nil:
			f = f.with(Missing, oneLine(err.Error()))
		case len(notes) > 0:
			f = f.with(Limited, oneLine(strings.Join(notes, "; ")))
		default:
			f = f.with(OK, c.works)
		}
		facts = append(facts, f.lacking(c.costs, "see docs/MEMORY_SAMPLES.md"))
	}
	return facts
}
