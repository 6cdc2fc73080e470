package report

import (
	"fmt"

	"github.com/llamatap/llamatap/store/rundir"
)

// promptAgain is prompts whose beginning had been computed before.
func promptAgain(r *Run) *Finding {
	f := ofSteps(r, &Finding{Cause: "prompts processed again", Phase: prefill},
		func(s *steps) float64 { return r.promptRecomputation().ns }, againShare)
	if f.Share == nil {
		return f
	}
	f.Evidence = r.promptRecomputation().String()
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

// promptRecomputation returns what was processed again: by the records of requests where there are any, since these
// follow slots and the states that were saved of them; otherwise by the tokens in the events. The time is of graphs,
// which several prompts share: what requests cost adds up to more.
func (r *Run) promptRecomputation() (a processedAgain) {
	if r.Requests == nil {
		return processedAgain{r.steps.Again.Tokens, r.steps.Prompts, r.steps.Again.NS, false}
	}
	t := r.Requests.Totals()
	a = processedAgain{of: t.Computed, requests: true}
	for _, cause := range t.Again {
		a.tokens += cause.Tokens
	}
	if r.steps != nil && a.of > 0 {
		a.ns = r.steps.PromptNS * float64(a.tokens) / float64(a.of)
	}
	return a
}

func (a processedAgain) String() string {
	text := fmt.Sprintf("%d of %d prompt tokens had been computed after the same tokens before", a.tokens, a.of)
	if a.requests {
		text = fmt.Sprintf("%d of %d computed prompt tokens had been computed before, by the records of requests",
			a.tokens, a.of)
	}
	if a.tokens > 0 && a.ns > 0 {
		text += fmt.Sprintf("; they are %s of their graphs by number", ns(a.ns))
	}
	return text
}
