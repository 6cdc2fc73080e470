package report

import (
	"fmt"

	"github.com/llamatap/llamatap/store/rundir"
)

// promptAgain is prompts whose beginning had been computed before.
func promptAgain(r *Run) *Finding {
	f := ofSteps(r, &Finding{Cause: "prompts processed again", Phase: prefill},
		func(s *steps) float64 { return r.again().ns }, againShare)
	if f.Share == nil {
		return f
	}
	f.Evidence = r.again().String()
	if r.Requests != nil {
		f.Files += ", " + rundir.RequestsName
	}
	if r.KV != nil {
		f.Evidence += fmt.Sprintf("; prompts found %d of %d cells in the KV cache", r.KV.Last.Reuse.Reused,
			r.KV.Last.Reuse.Needed)
		f.Files += ", " + rundir.LivesName
	}
	f.Remedy = "keeping the common beginning in the KV cache (cached prompts, one sequence for each conversation)"
	return f
}

// processedAgain is what of the computed prompts had been computed before, or could have been in the cache.
type processedAgain struct {
	tokens, of int64
	ns         float64
	requests   bool // by the records of requests
}

// again is what was processed again: by the records of requests where there are any, since these follow slots and the
// states that were saved of them; otherwise by the tokens in the events.
func (r *Run) again() (a processedAgain) {
	if r.Requests == nil {
		return processedAgain{r.steps.Again.Tokens, r.steps.Prompts, r.steps.Again.NS, false}
	}
	t := r.Requests.Totals()
	a = processedAgain{of: t.Computed, requests: true}
	for _, cause := range t.Again {
		a.tokens, a.ns = a.tokens+cause.Tokens, a.ns+float64(cause.CostNS)
	}
	return a
}

func (a processedAgain) String() string {
	if a.requests {
		return fmt.Sprintf("%d of %d computed prompt tokens had been computed before, by the records of requests, "+
			"at a cost of %s", a.tokens, a.of, ns(a.ns))
	}
	text := fmt.Sprintf("%d of %d prompt tokens had been computed after the same tokens before", a.tokens, a.of)
	if a.tokens > 0 {
		text += fmt.Sprintf("; they are %s of their graphs by number", ns(a.ns))
	}
	return text
}
