package kvcache

import (
	"cmp"
	"fmt"
	"slices"
)

// Again is what one cause made be computed again.
type Again struct {
	Cause    string `json:"cause"`
	Requests int64  `json:"requests"`
	Tokens   int64  `json:"tokens"`
	Bytes    int64  `json:"bytes"`
	CostNS   int64  `json:"cost_ns"`
}

// RequestTotals are sums over requests that have ended. The zero value is of none.
type RequestTotals struct {
	Requests int64            `json:"requests"`
	Prompt   int64            `json:"prompt_tokens"` // cached and computed
	Cached   int64            `json:"cached_tokens"`
	Computed int64            `json:"computed_tokens"`
	Output   int64            `json:"output_tokens"`
	Drafted  int64            `json:"drafted_tokens"`
	Accepted int64            `json:"accepted_tokens"`
	PromptNS int64            `json:"prompt_ns"` // from the beginning of prompts to their first tokens
	OutputNS int64            `json:"output_ns"` // from first tokens to last ones
	Ends     map[string]int64 `json:"ends"`      // unknown ones under ""
	Again    []Again          `json:"again"`     // most expensive first
	Cut      bool             `json:"cut,omitempty"`
	// Of the requests whose times are known: from arrival to the slot, to the first token, to the end; and from token
	// to token, absent where no gaps were read.
	Queue      Histogram `json:"queue"`
	FirstToken Histogram `json:"time_to_first_token"`
	Duration   Histogram `json:"duration"`
	Gaps       Histogram `json:"inter_token,omitzero"`
}

// Tokens is a line on the tokens: how many were chosen is known of a server.
func (t *RequestTotals) Tokens() string {
	text := fmt.Sprintf("%d tokens of prompts, %d cached and %d computed", t.Prompt, t.Cached, t.Computed)
	if t.Output > 0 {
		text += fmt.Sprintf("; %d tokens chosen", t.Output)
	}
	return text
}

// Add adds a request. Its gaps count where they are there.
func (t *RequestTotals) Add(q *Request) {
	if t.Ends == nil {
		t.Ends = map[string]int64{}
	}
	t.Requests++
	t.Cached, t.Computed = t.Cached+max(q.Cached, 0), t.Computed+q.Computed
	t.Prompt = t.Cached + t.Computed
	t.Output, t.Drafted, t.Accepted = t.Output+max(q.Output, 0), t.Drafted+q.Drafted, t.Accepted+q.Accepted
	if q.FirstNS != 0 && q.PromptNS != 0 {
		t.PromptNS, t.OutputNS = t.PromptNS+q.FirstNS-q.PromptNS, t.OutputNS+q.LastNS-q.FirstNS
	}
	t.Ends[EndName(q.End)]++
	for _, h := range []struct {
		of *Histogram
		at int64
	}{{&t.Queue, q.LaunchNS}, {&t.FirstToken, q.FirstNS}, {&t.Duration, q.EndNS}} {
		if q.ArrivalNS != 0 && h.at != 0 {
			h.of.Add(h.at - q.ArrivalNS)
		}
	}
	for _, ms := range q.Gaps {
		t.Gaps.Add(int64(float64(ms) * 1e6))
	}
	if q.Cause == CauseNone {
		return
	}
	at := slices.IndexFunc(t.Again, func(a Again) bool { return a.Cause == CauseName(q.Cause) })
	if at < 0 {
		at = len(t.Again)
		t.Again = append(t.Again, Again{Cause: CauseName(q.Cause)})
	}
	a := &t.Again[at]
	a.Requests, a.Tokens, a.Bytes, a.CostNS = a.Requests+1, a.Tokens+q.Again, a.Bytes+q.Bytes, a.CostNS+q.CostNS
	slices.SortFunc(t.Again, func(a, b Again) int {
		return cmp.Or(cmp.Compare(b.CostNS, a.CostNS), cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(a.Cause, b.Cause))
	})
}

// Clone is a copy that does not change.
func (t *RequestTotals) Clone() RequestTotals {
	c := *t
	c.Again = slices.Clone(t.Again)
	c.Ends = map[string]int64{}
	for end, n := range t.Ends {
		c.Ends[end] = n
	}
	for _, h := range []*Histogram{&c.Queue, &c.FirstToken, &c.Duration, &c.Gaps} {
		*h = h.clone()
	}
	return c
}

// RequestsNow is how the requests of a live server are.
type RequestsNow struct {
	Running int           `json:"running"` // that have a slot
	Waiting int           `json:"waiting"` // prompts that were tokenized and have none
	Ended   RequestTotals `json:"ended"`
	// Exported is what an OpenTelemetry collector got; absent where nothing is exported.
	Exported *Exported `json:"otlp,omitempty"`
}

// Exported counts the outcome of spans. Those of a request that its caller does not sample are not among them.
type Exported struct {
	Spans   int64 `json:"spans_sent"`
	Full    int64 `json:"spans_dropped_buffer_full"`
	Refused int64 `json:"spans_dropped_refused"` // by the collector
	Unsent  int64 `json:"spans_dropped_unsent"`  // when the time to send the last ones had passed
	Points  int64 `json:"metric_points_refused"`
	// LastMetrics is false where the newest message of metrics did not reach the collector.
	LastMetrics bool `json:"last_metrics_sent"`
}

// Dropped is how many spans did not reach the collector.
func (e *Exported) Dropped() int64 { return e.Full + e.Refused + e.Unsent }
