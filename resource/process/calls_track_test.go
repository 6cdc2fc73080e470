package process

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestRequests: requests, from the rows of calls that take 10 ns each and begin 100 ns after one another.
func TestRequests(t *testing.T) {
	cached := func(n int) *int { return &n }
	for name, c := range map[string]struct {
		calls []callRun // one a call
		want  []CallRequest
	}{
		"a prompt in two batches, and three tokens": {
			[]callRun{{0, 0, 8, 0}, {0, 8, 4, 1}, {0, 12, 1, 1}, {0, 13, 1, 1}},
			[]CallRequest{{Cached: cached(0), Prompt: 12, Generated: 3, PromptNS: 110, GapP50NS: 100, GapP99NS: 100,
				EndNS: 410}},
		},
		"a second prompt that reuses the first": {
			[]callRun{{0, 0, 8, 1}, {0, 8, 1, 1}, {0, 6, 5, 1}},
			[]CallRequest{{Cached: cached(0), Prompt: 8, Generated: 2, PromptNS: 10, GapP50NS: 100, GapP99NS: 100,
				EndNS: 210},
				{BeginNS: 300, Cached: cached(6), Prompt: 5, Generated: 1, PromptNS: 10, EndNS: 310}},
		},
		"a conversation that goes on": {
			[]callRun{{0, 0, 8, 1}, {0, 8, 1, 1}, {0, 9, 4, 1}},
			[]CallRequest{{Cached: cached(0), Prompt: 8, Generated: 2, PromptNS: 10, GapP50NS: 100, GapP99NS: 100,
				EndNS: 210},
				{BeginNS: 300, Cached: cached(9), Prompt: 4, Generated: 1, PromptNS: 10, EndNS: 310}},
		},
		"a prompt of one new token, where a generated one was": {
			[]callRun{{0, 0, 8, 1}, {0, 8, 1, 1}, {0, 9, 1, 1}, {0, 9, 1, 1}},
			[]CallRequest{{Cached: cached(0), Prompt: 8, Generated: 3, PromptNS: 10, GapP50NS: 100, GapP99NS: 100,
				EndNS: 310},
				{BeginNS: 400, Cached: cached(9), Prompt: 1, Generated: 1, PromptNS: 10, EndNS: 410}},
		},
		"drafts of 4, of which the first has 3 accepted and the second none": {
			[]callRun{{0, 0, 8, 1}, {0, 8, 4, 4}, {0, 11, 4, 4}, {0, 12, 1, 1}},
			[]CallRequest{{Cached: cached(0), Prompt: 8, Generated: 1 + 3 + 1 + 1, PromptNS: 10, GapP50NS: 100,
				GapP99NS: 100,
				EndNS:    410}},
		},
		"positions that are shifted": {
			[]callRun{{0, 0, 8, 1}, {0, 8, 1, 1}, {shift, -6, 0, 0}, {0, 3, 1, 1}},
			[]CallRequest{{Cached: cached(0), Prompt: 8, Generated: 3, PromptNS: 10, GapP50NS: 100, GapP99NS: 200,
				EndNS: 410}},
		},
		"one that had begun": {
			[]callRun{{0, 40, 1, 1}, {0, 41, 1, 1}},
			[]CallRequest{{Partial: true, Generated: 3, GapP50NS: 100, GapP99NS: 100, EndNS: 210}},
		},
	} {
		var tracker tracker
		for i, run := range c.calls {
			begin := int64(100 * (i + 1))
			if run.Sequence == shift {
				tracker.Shift(0, run.Position)
				continue
			}
			tracker.Add(&call{Context: 7, BeginNS: begin, EndNS: begin + 10, Runs: []callRun{run}})
		}
		_, got := tracker.flush(1000, true)
		for i := range c.want {
			w := &c.want[i]
			w.Number = i
			if w.BeginNS == 0 {
				w.BeginNS = 100
			}
		}
		if a, b := text(t, got), text(t, c.want); a != b {
			t.Errorf("%s:\n%s\nwant\n%s", name, a, b)
		}
		if _, again := tracker.flush(2000, true); len(again) > 0 {
			t.Errorf("%s: %d requests are written twice", name, len(again))
		}
	}
}

const shift = -1

func text(t *testing.T, requests []CallRequest) (lines string) {
	t.Helper()
	for _, r := range requests {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		lines += fmt.Sprintln(string(line))
	}
	return lines
}
