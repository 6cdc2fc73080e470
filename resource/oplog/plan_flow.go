package oplog

// flow is what one run computed and another one, of another component, reads.
type flow struct {
	from    int     // run
	tensors []int32 // as they are read; each origin once
	origins []int32
}

// flow finds what run r reads of runs of other components.
func (p *plan) flow(r int) {
	run := &p.runs[r]
	for i := run.first; i <= run.last; i++ {
		if p.nodes[i].run != r {
			continue
		}
		for _, src := range p.graph.Nodes[i].Src {
			at := origin(p.graph, src)
			if at >= 0 && p.nodes[at].run >= 0 && p.runs[p.nodes[at].run].component != run.component {
				run.reads(p.nodes[at].run, src, at)
			}
		}
	}
	p.flows += len(run.flows)
}

// reads adds a tensor that the run reads of another one.
func (run *runPlan) reads(from int, src, origin int32) {
	k := 0
	for k < len(run.flows) && run.flows[k].from != from {
		k++
	}
	if k == len(run.flows) {
		run.flows = append(run.flows, flow{from: from})
	}
	f := &run.flows[k]
	for _, known := range f.origins {
		if known == origin {
			return
		}
	}
	f.tensors, f.origins = append(f.tensors, src), append(f.origins, origin)
}
