//go:build linux

package oracle

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/resources"
)

// TestRequestMetrics: what llamatap serve says of a live llama-server's requests is what the answers and the server's
// own metrics sum up to.
func TestRequestMetrics(t *testing.T) {
	s := serve(t, []string{"--tap-requests", "--tap-kv"}, "-np", "2", "-c", "2048", "-t", "1", "--no-webui",
		"--metrics")
	view := show(t, "--live", s.out)
	var lock sync.Mutex
	cached, computed, predicted := 0, 0, 0
	var all sync.WaitGroup
	for client := range int32(3) {
		all.Go(func() {
			for i := range 4 {
				a := s.ask(t, question{prompt: fmt.Sprintf("package p%d\nfunc f%d", client, i), slot: -1, n: 3 + i})
				lock.Lock()
				cached, computed, predicted = cached+a.Timings.Cached, computed+a.Timings.Prompt, predicted+a.Predicted
				lock.Unlock()
			}
		})
	}
	all.Wait()
	var m map[string]float64
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if m = figures(view.ask(t, "GET", "/metrics", "")); m["requests_total"] == 12 || time.Now().After(end) {
			break
		}
	}
	counters := s.counters(t)
	for name, want := range map[string]float64{
		"requests_total": 12, "requests_running": 0, "requests_waiting": 0, "request_draft_tokens_total/drafted": 0,
		"request_prompt_tokens_total/cached":   float64(cached),
		"request_prompt_tokens_total/computed": float64(computed),
		"request_output_tokens_total":          float64(predicted), "request_time_to_first_token_seconds_count": 12,
		"request_queue_seconds_count": 12, "request_duration_seconds_count": 12,
		"request_inter_token_seconds_count": float64(predicted - 12),
	} {
		if got, known := m[name]; !known || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if m["request_prompt_tokens_total/computed"] != float64(counters["prompt_tokens_total"]) || computed == 0 ||
		m["request_output_tokens_total"] != float64(counters["tokens_predicted_total"]) {
		t.Errorf("llama-server counts %v", counters)
	}
	queue, first, whole := m["request_queue_seconds_sum"], m["request_time_to_first_token_seconds_sum"],
		m["request_duration_seconds_sum"]
	if !(0 < queue && queue < first && first < whole) {
		t.Errorf("queue %v s, first token %v s, whole %v s", queue, first, whole)
	}
	if u := m["kv_utilization_ratio"]; !(u > 0 && u <= 1) {
		t.Errorf("the caches are used by %v", u)
	}
	dir := runDirs(t, s.out)[0]
	ctl(t, dir, "flush")
	r, err := resources.OpenRequests(t.Context(), dir)
	if err != nil || len(r.All) != 12 {
		t.Errorf("after a flush, the live run has %d requests: %v", len(r.All), err)
	}
}

// figures are the metrics of llamatap serve: sums by name, and by name and source or state.
func figures(text string) map[string]float64 {
	all := map[string]float64{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "llamatap_"), "{")
		labels, value, _ := strings.Cut(rest, "} ")
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if !ok || err != nil || math.IsNaN(n) {
			continue
		}
		all[name] += n
		for pair := range strings.SplitSeq(labels, ",") {
			if key, word, _ := strings.Cut(pair, "="); key == "source" || key == "state" || key == "phase" {
				all[name+"/"+strings.Trim(word, `"`)] += n
			}
		}
	}
	return all
}
