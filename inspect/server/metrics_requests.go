package server

import "github.com/llamatap/llamatap/kvcache"

// What the collector of a live llama-server knows of its requests.
var (
	requestsEnded = counter("requests_total",
		"Requests that have ended, by how: stop, length, completed, cancelled, error, unknown.", "end")
	requestsRunning = gauge("requests_running", "Requests that have a slot.")
	requestsWaiting = gauge("requests_waiting", "Prompts that were tokenized and wait for a slot.")
	requestsPrompt  = counter("request_prompt_tokens_total",
		"Tokens of prompts of requests that have ended: cached ones were in the slot's cache, the others computed.",
		"source")
	requestsOutput = counter("request_output_tokens_total", "Tokens that requests that have ended were given.")
	requestsDraft  = counter("request_draft_tokens_total", "Tokens that were drafted and verified, and those accepted.",
		"state")
	againRequests = counter("request_recomputed_requests_total",
		"Requests of whose prompts tokens were computed again.", "cause")
	againTokens = counter("request_recomputed_tokens_total",
		"Tokens of prompts that a cache held, or had held, and that were computed again.", "cause")
	againBytes = counter("request_recomputed_bytes_total", "Keys and values that were written for them.", "cause")
	againTime  = counter("request_recomputed_seconds_total",
		"Their share of the time of their prompts, by tokens: computed, not measured.", "cause")
	requestQueue = histogram("request_queue_seconds", "Time from a request's arrival to its slot.")
	requestFirst = histogram("request_time_to_first_token_seconds",
		"Time from a request's arrival to the choice of its first token.")
	requestTime = histogram("request_duration_seconds", "Time from a request's arrival to the end of its slot.")
	requestGap  = histogram("request_inter_token_seconds",
		"Time from a token of a request to the next, of requests that have ended.")
	spans = counter("otlp_spans_total", "Spans that were exported to an OpenTelemetry collector, or dropped and why.",
		"outcome")

	kvUtilization = gauge("kv_utilization_ratio", "Share of the cells of all KV caches that are used, 0 to 1.")
)

// requests describes the requests of a live run.
func (t *metricFold) requests(now *kvcache.RequestsNow) {
	ended := &now.Ended
	for end, n := range ended.Ends {
		if end == "" {
			end = "unknown"
		}
		t.add(requestsEnded, float64(n), end)
	}
	t.add(requestsRunning, float64(now.Running))
	t.add(requestsWaiting, float64(now.Waiting))
	t.add(requestsPrompt, float64(ended.Cached), "cached")
	t.add(requestsPrompt, float64(ended.Computed), "computed")
	t.add(requestsOutput, float64(ended.Output))
	t.add(requestsDraft, float64(ended.Drafted), "drafted")
	t.add(requestsDraft, float64(ended.Accepted), "accepted")
	for _, a := range ended.Again {
		t.add(againRequests, float64(a.Requests), a.Cause)
		t.add(againTokens, float64(a.Tokens), a.Cause)
		t.add(againBytes, float64(a.Bytes), a.Cause)
		t.add(againTime, float64(a.CostNS)/1e9, a.Cause)
	}
	t.histogram(requestQueue, &ended.Queue)
	t.histogram(requestFirst, &ended.FirstToken)
	t.histogram(requestTime, &ended.Duration)
	t.histogram(requestGap, &ended.Gaps)
	if e := now.Exported; e != nil {
		t.add(spans, float64(e.Spans), "sent")
		t.add(spans, float64(e.Full), "buffer_full")
		t.add(spans, float64(e.Refused), "refused")
	}
}

// utilization is how full the caches of a live run are.
func (t *metricFold) utilization(s *kvcache.Snapshot) {
	used, cells := 0, 0
	for _, c := range s.Caches {
		used, cells = used+c.Used, cells+c.Cells
	}
	if cells > 0 {
		t.add(kvUtilization, float64(used)/float64(cells))
	}
}
