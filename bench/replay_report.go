package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/llamatap/llamatap/internal/present"
)

// Quantiles are those of a figure over requests, in milliseconds, by nearest rank.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// A ReplayReport is the outcome of a trace. Shares and rates are of the requests that were answered, and of the time
// from the first request to the end of the last. Quantiles of nothing are absent.
type ReplayReport struct {
	URL         string           `json:"url"`
	Speed       float64          `json:"speed"`
	Concurrency int              `json:"concurrency"`
	Requests    int              `json:"requests"` // of the trace
	Sent        int              `json:"sent"`
	Answered    int              `json:"answered"`
	Errors      map[string]int64 `json:"errors"` // by cause
	WallSeconds float64          `json:"wall_s"`
	Input       int64            `json:"input_tokens"`
	Cached      int64            `json:"cached_tokens"`
	Shared      int64            `json:"shared_tokens"` // that a cache without end would have had
	Output      int64            `json:"output_tokens"`
	InputRate   float64          `json:"input_tokens_per_s"`
	OutputRate  float64          `json:"output_tokens_per_s"`
	Latency     *Quantiles       `json:"latency_ms,omitempty"`
	TTFT        *Quantiles       `json:"ttft_ms,omitempty"`
	PerToken    *Quantiles       `json:"time_per_output_token_ms,omitempty"`
	Late        *Quantiles       `json:"late_ms,omitempty"`
	Rows        []*ReplayRow     `json:"-"` // of those that were sent
}

func newReplayReport(r *Replay, rows []*ReplayRow, wall time.Duration) *ReplayReport {
	p := &ReplayReport{URL: r.URL, Speed: r.Speed, Concurrency: r.Concurrency, Requests: len(r.Trace),
		Errors: map[string]int64{}, WallSeconds: wall.Seconds()}
	var latency, ttft, perToken, late []int64 // ns
	note := func(to *[]int64, ms *float64) {
		if ms != nil {
			*to = append(*to, int64(*ms*1e6))
		}
	}
	for _, row := range rows {
		if row == nil {
			continue
		}
		p.Rows = append(p.Rows, row)
		note(&late, &row.LateMS)
		if row.Cause != "" {
			p.Errors[row.Cause]++
			continue
		}
		p.Answered++
		p.Input, p.Cached, p.Output = p.Input+row.Input, p.Cached+*row.Cached, p.Output+*row.Chosen
		p.Shared += row.Shared
		note(&latency, row.TookMS)
		note(&ttft, row.FirstMS)
		note(&perToken, row.TokenMS)
	}
	p.Sent = len(p.Rows)
	p.InputRate, p.OutputRate = float64(p.Input)/p.WallSeconds, float64(p.Output)/p.WallSeconds
	p.Latency, p.TTFT, p.PerToken, p.Late = quantiles(latency), quantiles(ttft), quantiles(perToken), quantiles(late)
	return p
}

func quantiles(ns []int64) *Quantiles {
	if len(ns) == 0 {
		return nil
	}
	at := func(share float64) float64 { return float64(quantile(ns, share)) / 1e6 }
	return &Quantiles{P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
}

// Write writes the report as text or, with json, as an object.
func (p *ReplayReport) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return out.Encode(p)
	}
	out := &present.Text{W: w}
	out.Line("%d of %d requests answered in %.1f s, at %gx the speed of the trace, at most %d at a time", p.Answered,
		p.Requests, p.WallSeconds, p.Speed, p.Concurrency)
	share := func(n int64) float64 { return 100 * float64(n) / float64(max(p.Input, 1)) }
	out.Line("prompts %d tokens, %.1f per s; %d cached (%.1f %%), %d (%.1f %%) shared with an earlier request", p.Input,
		p.InputRate, p.Cached, share(p.Cached), p.Shared, share(p.Shared))
	out.Line("output  %d tokens, %.1f per s\n", p.Output, p.OutputRate)
	rows := [][]string{{"", " p50", " p90", " p99", " max"}}
	for _, f := range []struct {
		name string
		*Quantiles
	}{{"latency", p.Latency}, {"TTFT", p.TTFT}, {"per output token", p.PerToken}, {"sent late", p.Late}} {
		if q := f.Quantiles; q != nil {
			row := []string{f.name}
			for _, ms := range []float64{q.P50, q.P90, q.P99, q.Max} {
				row = append(row, present.Nanoseconds(int64(ms*1e6)))
			}
			rows = append(rows, row)
		}
	}
	out.Columns(rows)
	for _, cause := range slices.Sorted(maps.Keys(p.Errors)) {
		first := slices.IndexFunc(p.Rows, func(row *ReplayRow) bool { return row.Cause == cause })
		out.Line("%d requests failed, %s: %s", p.Errors[cause], cause, present.Line(p.Rows[first].Error))
	}
	return out.Err
}

// WriteReplayRow writes a row as a JSON line.
func WriteReplayRow(w io.Writer, row *ReplayRow) error {
	line, err := json.Marshal(row)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", line)
	}
	return err
}
