package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// levels is what the chart compares. Every configuration is visited once per round, in random order.
const levels = `repetitions: 8
rounds: 8
scenarios:
  - name: overhead
    prompts: [{gen: 64}]
    settings: {threads: 1}
    tap:
      - name: off
      - {name: "--tap-kv", kv: true}
      - {name: "--tap-ledger windows", ledger: windows}
      - {name: "--tap-tensor 'l_out*'", tensors: l_out*}
      - {name: "--tap-resource-level DETAILED", resource-level: DETAILED}
      - {name: "--tap-preset attention_analysis", preset: attention_analysis}
      - {name: "--tap-preset balanced (all)", preset: balanced}
`

// A row is what the chart needs of one of bench's.
type row struct {
	Tap     string    `json:"tap"`
	Median  float64   `json:"itl_p50_ns"`
	Samples []float64 `json:"samples_itl_ns"` // each visit's median
	Params  float64   `json:"model_n_params"`
	CPU     string    `json:"cpu_info"`
	Threads int       `json:"n_threads"`
}

// overhead measures the time per token with recorders, and without any.
func overhead(dir string) (drawing, error) {
	if err := os.WriteFile(filepath.Join(dir, "levels.yaml"), []byte(levels), 0o644); err != nil {
		return nil, err
	}
	text, err := shell(dir, "llamatap bench -f levels.yaml -o json 2>/dev/null")
	if err != nil {
		return nil, err
	}
	var rows []row
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		return nil, fmt.Errorf("read bench's rows: %w", err)
	}
	if len(rows) < 2 || rows[0].Tap != "off" {
		return nil, fmt.Errorf("bench wrote %d rows, and the first is not without the tap", len(rows))
	}
	return func(p palette) []byte { return chart(rows, p) }, nil
}

// chart draws a bar per row: the median time per token, with the quartiles of the visits.
func chart(rows []row, p palette) []byte {
	const left, full, rise, top = 290, 400, 34, 64
	longest := 0.0
	for _, r := range rows {
		longest = max(longest, quartile(r.Samples, 3), r.Median)
	}
	scale := full / longest
	var b bytes.Buffer
	begin(&b, left+full+170, top+len(rows)*rise+36, p)
	fmt.Fprintf(&b,
		`<g font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif" font-size="14" fill="%s">`+"\n",
		p.text)
	fmt.Fprintf(&b,
		`<text x="20" y="30" font-size="16" font-weight="bold">Time per generated token, by what is recorded</text>`+
			"\n")
	fmt.Fprintf(&b,
		`<text x="20" y="49" font-size="12" fill="%s">median of %d visits each, interleaved; whiskers: quartiles. The embedded model, %.1f million parameters; %s, %d thread</text>`+"\n",
		p.muted, len(rows[0].Samples), rows[0].Params/1e6, html.EscapeString(rows[0].CPU), rows[0].Threads)
	for i, r := range rows {
		y := top + i*rise
		fill, note := p.accent, fmt.Sprintf("%+.1f %%", (r.Median/rows[0].Median-1)*100)
		name := strings.TrimPrefix(r.Tap, "off")
		if quartile(r.Samples, 1) <= quartile(rows[0].Samples, 3) &&
			quartile(r.Samples, 3) >= quartile(rows[0].Samples, 1) {
			note = "not resolved"
		}
		if i == 0 {
			fill, note, name = p.muted, "", "nothing recorded"
		}
		low, high := left+quartile(r.Samples, 1)*scale, left+quartile(r.Samples, 3)*scale
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" font-size="13">%s</text>`, left-12, y+19,
			html.EscapeString(name))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="20" fill="%s"/>`, left, y+4, r.Median*scale, fill)
		fmt.Fprintf(&b, `<path d="M%.1f %dH%.1fM%.1f %dv8M%.1f %dv8" stroke="%s" fill="none"/>`, low, y+14, high, low,
			y+10, high, y+10, p.text)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" font-size="13">%.2f ms  <tspan fill="%s">%s</tspan></text>`+"\n",
			max(high, left+r.Median*scale)+10, y+19, r.Median/1e6, p.second, note)
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}

// quartile is the sample below which n quarters of them lie.
func quartile(samples []float64, n int) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[(len(sorted)-1)*n/4]
}
