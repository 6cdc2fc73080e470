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

// contrast is the least contrast of a page's texts with what is behind them, as WCAG 2 computes it, and the text that
// has it.
const contrast = `(() => {
  const parts = (color) => color.match(/[\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = parts(color).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (parts(color)[3] !== 0) return color;
    }
    return getComputedStyle(document.documentElement).colorScheme.includes("dark") &&
      matchMedia("(prefers-color-scheme: dark)").matches ? "rgb(0,0,0)" : "rgb(255,255,255)";
  };
  let least = [100, ""];
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), a = light(e instanceof SVGElement ? style.fill : style.color), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least[0]) least = [ratio, e.textContent.slice(0, 40)];
  }
  return least;
})()`

// problems are what an accessibility checker would name: texts that are missing, ids that are not unique, headings that
// skip a level.
const problems = `(() => {
  const all = [], want = (ok, what, e) => { if (!ok) all.push(what + ": " + e.outerHTML.slice(0, 80)); };
  const each = (selector, check) => document.querySelectorAll(selector).forEach(check);
  each("button, a, th, summary, figcaption, h1, h2, h3", (e) => want(e.textContent.trim(), "no text", e));
  each("svg", (e) => want(e.getAttribute("role") === "img" && e.getAttribute("aria-label") && e.tabIndex === 0, "no label", e));
  each("[id]", (e) => want(document.querySelectorAll("#" + CSS.escape(e.id)).length === 1, "not unique", e));
  each(".scroll", (e) => want(e.tabIndex === 0, "not reached by keys", e));
  let level = 1;
  each("h1, h2, h3", (e) => { const n = Number(e.tagName[1]); want(n <= level + 1, "skips a level", e); level = n; });
  want(document.documentElement.lang === "en" && document.title, "no language or title", document.documentElement);
  return all;
})()`

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
		b.Eval(`({charts: document.querySelectorAll("figure").length, drawn: document.querySelectorAll("figure svg path").length,
			wide: document.documentElement.scrollWidth, asked: performance.getEntriesByType("resource").map((e) => e.name)})`, &got)
		if got.Charts < 2 || got.Drawn < got.Charts || got.Wide > c.width || len(got.Asked) > 0 {
			t.Errorf("%d pixels: %+v", c.width, got)
		}
		var named []string
		if b.Eval(problems, &named); len(named) > 0 {
			t.Errorf("%d pixels: %q", c.width, named)
		}
		var least []any
		if b.Eval(contrast, &least); least[0].(float64) < 4.5 {
			t.Errorf("%d pixels: contrast %v", c.width, least)
		}
		var says []string
		b.Eval(`(() => {
			const chart = () => document.querySelector("figure svg");
			const key = (key) => chart().dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
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
			details.addEventListener("toggle", () => done([details.querySelectorAll("tr").length,
				JSON.parse(document.getElementById("charts").textContent)[0].series.reduce((n, s) => n + s.x.length, 1)]));
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
