package testenv

import "fmt"

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
    const style = getComputedStyle(e), a = light(e instanceof SVGElement ? style.fill : style.color),
          b = light(behind(e));
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
  each("svg", (e) => want(e.getAttribute("role") === "img" && e.getAttribute("aria-label") && e.tabIndex === 0,
        "no label", e));
  each("[id]", (e) => want(document.querySelectorAll("#" + CSS.escape(e.id)).length === 1, "not unique", e));
  each(".scroll", (e) => want(e.tabIndex === 0, "not reached by keys", e));
  let level = 1;
  each("h1, h2, h3", (e) => { const n = Number(e.tagName[1]); want(n <= level + 1, "skips a level", e); level = n; });
  want(document.documentElement.lang === "en" && document.title, "no language or title", document.documentElement);
  return all;
})()`

// Problems are what an accessibility checker would name in the page: see problems, texts whose contrast is below 4.5,
// and a page that is wider than its window.
func (b *Browser) Problems() (named []string) {
	b.t.Helper()
	b.Eval(problems, &named)
	var least []any
	if b.Eval(contrast, &least); least[0].(float64) < 4.5 {
		named = append(named, fmt.Sprintf("contrast %v", least))
	}
	var wide, window int
	b.Eval("document.documentElement.scrollWidth", &wide)
	if b.Eval("innerWidth", &window); wide > window {
		named = append(named, fmt.Sprintf("%d pixels wide in a window of %d", wide, window))
	}
	return named
}
