//go:build linux

package report

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestBrowser reads a page in Chromium: charts are drawn and read by keys, zoom changes those over time alone, and
// nothing is asked for or reported as an error.
func TestBrowser(t *testing.T) {
	m := quiet()
	m.stalled = 0.5
	m.other = tokenNS
	m.more = `{"event":"memory_allocation","mono_ns":1000,"session_id":"s","allocation_bytes":6000,"live_bytes":6000,` +
		`"memory_type":"ram","source":"measured"}` + "\n"
	run := readRun(t, m.write(t))
	var html bytes.Buffer
	if err := WriteHTML(context.Background(), &html, run); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, html.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	b := testenv.NeedBrowser(t)
	for _, c := range []struct {
		width  int
		isDark bool
	}{{1440, false}, {360, true}} {
		b.Open("file://"+path, c.width, 900, c.isDark)
		var got struct {
			Charts, Drawn, Wide int
			Asked               []string
		}
		b.Eval(`({charts: document.querySelectorAll("figure").length,
			drawn: document.querySelectorAll("figure svg path").length,
			wide: document.documentElement.scrollWidth,
			asked: performance.getEntriesByType("resource").map((e) => e.name)})`, &got)
		if got.Charts < 2 || got.Drawn < got.Charts || got.Wide > c.width || len(got.Asked) > 0 {
			t.Errorf("%d pixels: %+v", c.width, got)
		}
		if named := b.Problems(); len(named) > 0 {
			t.Errorf("%d pixels: %q", c.width, named)
		}
		var says []string
		b.Eval(`(() => {
			const chart = () => document.querySelector("figure svg");
			const key = (key) => chart().dispatchEvent(
				new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
			const axis = () => [...chart().querySelectorAll("text")].map((e) => e.textContent).join(" ");
			key("ArrowRight");
			const all = [document.querySelector("figure output").textContent, axis()];
			key("+");
			all.push(axis());
			key("0");
			return [...all, axis()];
		})()`, &says)
		if says[0] != "context 0: prefill 64 tokens, 100 ms from 0 s" {
			t.Errorf("%d pixels: the first value reads %q", c.width, says[0])
		}
		if says[1] == says[2] || says[1] != says[3] {
			t.Errorf("%d pixels: axes %q before, in and after a zoom", c.width, says[1:])
		}
		var rows []int
		b.Eval(`new Promise((done) => {
			const details = document.querySelector("figure details");
			const first = JSON.parse(document.getElementById("charts").textContent)[0];
			details.addEventListener("toggle", () => done([details.querySelectorAll("tr").length,
				first.series.reduce((n, s) => n + s.x.length, 1)]));
			details.open = true;
		})`, &rows)
		if rows[0] != rows[1] || rows[0] < tokens {
			t.Errorf("%d pixels: the table has %d rows, the chart %d", c.width, rows[0], rows[1])
		}
	}
	if errs := b.Errors(); len(errs) > 0 {
		t.Errorf("the page reports %q", errs)
	}
}
