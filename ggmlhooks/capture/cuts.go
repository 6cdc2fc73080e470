package capture

import "slices"

// cutProbes are the newest measurements of what one cut of the graph costs, in nanoseconds.
type cutProbes struct {
	ns   []int64
	next int
}

const mostCutProbes = 1024

func (p *cutProbes) add(ns int64) {
	switch {
	case ns <= 0:
	case len(p.ns) < mostCutProbes:
		p.ns = append(p.ns, ns)
	default:
		p.ns[p.next] = ns
		p.next = (p.next + 1) % mostCutProbes
	}
}

// median is what one cut costs; 0 where that was not measured. One measurement that the kernel interrupted does not
// move it.
func (p *cutProbes) median() int64 {
	if len(p.ns) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(p.ns))
	return sorted[len(sorted)/2]
}
