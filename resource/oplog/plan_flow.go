package oplog

import "github.com/llamatap/llamatap/ggmlhooks"

var residual = ggmlhooks.ComponentResidual.String()

// flow is what one run computed and another one, of another component, reads.
type flow struct {
	from    int     // run
	through int     // run of the residual stream that passes it on, -1 = none
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
			at := p.graph.Shown(src)
			if at < 0 || p.nodes[at].run < 0 {
				continue
			}
			from, through := p.nodes[at].run, -1
			if added := p.added(from); added >= 0 && run.component != residual &&
				p.runs[added].component != run.component {
				from, through = added, from
			}
			if p.runs[from].component != run.component {
				run.reads(flow{from: from, through: through}, src, at)
			}
		}
	}
	p.flows += len(run.flows)
}

// added is the run whose result a run of the residual stream adds to it, -1 where run r is none.
func (p *plan) added(r int) int {
	run, newest := &p.runs[r], int32(-1)
	if run.component != residual {
		return -1
	}
	for i := run.first; i <= run.last; i++ {
		if p.nodes[i].run != r {
			continue
		}
		for _, src := range p.graph.Nodes[i].Src {
			if at := p.graph.Shown(src); at >= 0 && p.nodes[at].run >= 0 &&
				p.runs[p.nodes[at].run].component != run.component {
				newest = max(newest, at)
			}
		}
	}
	if newest < 0 {
		return -1
	}
	return p.nodes[newest].run
}

// reads adds a tensor that the run reads of another one.
func (run *runPlan) reads(of flow, src, origin int32) {
	k := 0
	for k < len(run.flows) && (run.flows[k].from != of.from || run.flows[k].through != of.through) {
		k++
	}
	if k == len(run.flows) {
		run.flows = append(run.flows, of)
	}
	f := &run.flows[k]
	for _, known := range f.origins {
		if known == origin {
			return
		}
	}
	f.tensors, f.origins = append(f.tensors, src), append(f.origins, origin)
}
