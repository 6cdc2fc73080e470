//go:build linux

package oracle

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/kvcache"
)

// TestReportRequests: the page's causes and its timeline of slots are what llamatap requests says, of a run that
// recorded nothing but requests.
func TestReportRequests(t *testing.T) {
	s := serve(t, []string{"--tap-requests"}, "-np", "2", "-c", "2048", "-t", "1", "--no-webui")
	var all sync.WaitGroup
	for client := range 3 {
		all.Go(func() {
			for i := range 3 {
				s.ask(t, question{prompt: fmt.Sprintf("package p\nfunc f%d", client*i), slot: -1, n: 4 + i,
					options: map[string]any{"ignore_eos": true}})
			}
		})
	}
	all.Wait()
	for i, slot := range []int{0, 1, 0} { // another slot holds it; cache_prompt is off
		s.ask(t, question{prompt: "package main\nfunc main() {", slot: int32(slot), n: 4,
			options: map[string]any{"ignore_eos": true, "cache_prompt": i < 2}})
	}
	s.stop()
	dir := runDirs(t, s.out)[0]
	var said struct {
		Requests []map[string]any
		Totals   kvcache.RequestTotals
	}
	if err := json.Unmarshal([]byte(llamatap(t, "requests", dir, "--json").good(t).stdout), &said); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "page.html")
	llamatap(t, "report", dir, "-o", page).good(t)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, data, _ := strings.Cut(string(text), `id="charts">`)
	data, _, _ = strings.Cut(data, "</script>")
	var charts []struct {
		Kind, Title string
		Rows        []string
		Series      []struct {
			Name string
			X, W []float64
			Y    []float64
			Row  []int
			Text []string
		}
	}
	if err := json.Unmarshal([]byte(data), &charts); err != nil {
		t.Fatal(err)
	}
	got, want := map[string]float64{}, map[string]float64{}
	for _, c := range charts {
		for _, s := range c.Series {
			for i := range s.W {
				if c.Kind == "spans" {
					id, _, _ := strings.Cut(s.Text[i], ":")
					slot, _, _ := strings.Cut(c.Rows[s.Row[i]], ",")
					got[s.Name+" of "+id+" in "+slot] = s.W[i]
				}
			}
			for i := range s.Y {
				got["cost of "+c.Rows[i]] = s.Y[i]
			}
		}
	}
	number := func(q map[string]any, name string) float64 { n, _ := q[name].(float64); return n }
	for _, q := range said.Requests {
		of := fmt.Sprintf(" of request %v in slot %v", q["id"], q["seq_id"])
		for name, keys := range map[string][2]string{"queue": {"arrival_ns", "launch_ns"},
			"prefill": {"prompt_ns", "first_token_ns"}, "decode": {"first_token_ns", "last_token_ns"}} {
			want[name+of] = (number(q, keys[1]) - number(q, keys[0])) / 1e9
		}
	}
	for _, a := range said.Totals.Again {
		want["cost of "+a.Cause] = float64(a.CostNS) / 1e9
		row := fmt.Sprintf("<th scope=\"row\">%s</th><td class=\"n\">%d</td><td class=\"n\">%d</td><td "+
			"class=\"n\">%s</td>"+
			"<td class=\"n\">%s</td><td>%s</td>", a.Cause, a.Requests, a.Tokens, present.Bytes(a.Bytes),
			present.Nanoseconds(a.CostNS), kvcache.CauseWords(a.Cause))
		if !strings.Contains(string(text), row) {
			t.Errorf("the page lacks %s", row)
		}
	}
	if len(want) < 3*12+2 || len(got) != len(want) {
		t.Errorf("the page has %d figures, the records %d", len(got), len(want))
	}
	for what, seconds := range want {
		// Times since 1970 are read as floats here, to 0.3 µs.
		if math.Abs(got[what]-seconds) > 1e-6 {
			t.Errorf("%s: %v s, want %v s", what, got[what], seconds)
		}
	}
}
