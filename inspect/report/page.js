"use strict";
// The charts of a report. Their data are JSON in the page: see Chart in page.go. Charts over the time of the run show the
// same window of it.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const drawn = [];
  const maxTableRows = 2000;
  let whole = [Infinity, -Infinity],
    span = null; // of the charts over time

  const make = (name, attributes, ...children) => {
    const inSVG = ["svg", "path", "rect", "text", "circle", "g", "title", "clipPath"].includes(name);
    const e = inSVG ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) e.setAttribute(key, value);
    e.append(...children);
    return e;
  };
  const color = (s, i) => `var(--c${s.colour ? s.colour - 1 : i % 8})`;
  const known = (v) => v !== null && v !== undefined && isFinite(v);

  // digits writes a number with three digits.
  const digits = (v) => {
    const size = Math.abs(v);
    if (size >= 1e15 || (size > 0 && size < 1e-3)) return v.toExponential(2);
    if (size >= 1000) return Math.round(v).toLocaleString("en");
    return String(Number(v.toPrecision(3)));
  };
  const scaled = (v, units, step) => {
    let i = 0;
    for (; i + 1 < units.length && Math.abs(v) >= step; i++) v /= step;
    return digits(v) + " " + units[i];
  };
  const text = (v, axis) => {
    if (!known(v)) return "unknown";
    switch (axis.unit) {
      case "s": {
        const size = Math.abs(v);
        if (size >= 1 || size === 0) return digits(v) + " s";
        if (size >= 1e-3) return digits(v * 1e3) + " ms";
        return size >= 1e-6 ? digits(v * 1e6) + " µs" : digits(v * 1e9) + " ns";
      }
      case "B":
        return scaled(v, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
      case "B/s":
        return scaled(v, ["B/s", "kB/s", "MB/s", "GB/s"], 1000);
      case undefined:
        return digits(v);
    }
    return digits(v) + " " + axis.unit;
  };

  // ticks are round values from low to high.
  const ticks = (low, high, axis, most) => {
    if (axis.log) {
      const all = [];
      for (let e = Math.ceil(Math.log10(low)); e <= Math.log10(high); e++) all.push(10 ** e);
      return all.length > 1 ? all : [low, high];
    }
    if (!(high > low)) return [low];
    const base = axis.unit === "B" ? 1024 ** Math.max(0, Math.floor(Math.log(high) / Math.log(1024))) : 1;
    const rough = (high - low) / base / most,
      size = 10 ** Math.floor(Math.log10(rough));
    const step = ([1, 2, 5, 10].find((n) => n * size >= rough) || 10) * size * base;
    const all = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); i++) all.push(i * step);
    return all;
  };

  class Drawing {
    constructor(chart, figure) {
      Object.assign(this, { chart, figure, hidden: new Set(), at: -1, onTime: !!chart.x.time });
      this.plot = make("div", { class: "plot" });
      this.legend = make("div", { class: "legend" });
      this.says = make("output", { "aria-live": "polite" });
      this.tools = make("div", { class: "tools" });
      if (this.onTime) {
        for (const [label, does] of [
          ["Zoom in", () => zoom(0.5)],
          ["Zoom out", () => zoom(2)],
          ["Earlier", () => move(-0.5)],
          ["Later", () => move(0.5)],
          ["All", () => show(null)],
        ]) {
          const b = make("button", { type: "button" }, label);
          b.onclick = does;
          this.tools.append(b);
        }
      }
      figure.append(this.legend, this.plot, this.says, this.tools);
      if (chart.note) figure.append(make("p", { class: "note" }, chart.note));
      this.addTable();
      this.addLegend();
    }

    addLegend() {
      if (this.chart.series.length < 2 && this.chart.kind !== "spans") return;
      this.chart.series.forEach((s, i) => {
        const key = make("i");
        key.style.background = color(s, i);
        const b = make("button", { type: "button", "aria-pressed": "true" }, key, s.name);
        b.onclick = () => {
          this.hidden.has(i) ? this.hidden.delete(i) : this.hidden.add(i);
          b.setAttribute("aria-pressed", String(!this.hidden.has(i)));
          b.style.opacity = this.hidden.has(i) ? 0.4 : 1;
          this.draw();
        };
        this.legend.append(b);
      });
    }

    // rows are the values as a table.
    rows() {
      const c = this.chart,
        s = c.series;
      switch (c.kind) {
        case "heat":
          return [
            ["row", ...c.columns],
            ...c.rows.map((r, i) => [
              r,
              ...c.columns.map((_, k) => {
                const at = i * c.columns.length + k;
                return (s[0].text ? s[0].text[at] + " " : "") + text(s[0].y[at], c.y);
              }),
            ]),
          ];
        case "bars":
          return [["row", ...s.map((x) => x.name)], ...c.rows.map((r, i) => [r, ...s.map((x) => text(x.y[i], c.x))])];
        case "means":
          return [["row", ...s.map((x) => x.name)], ...c.rows.map((r, i) => [r, ...s.map((x) => this.mean(x, i))])];
        case "spans": {
          const all = [];
          s.forEach((x) => x.x.forEach((from, i) => all.push([from, c.rows[x.row[i]], x.name, x.text[i], x.w[i]])));
          all.sort((a, b) => a[0] - b[0]);
          return [
            ["row", "kind", "label", "from", "length"],
            ...all.map((a) => [a[1], a[2], a[3], text(a[0], c.x), text(a[4], c.x)]),
          ];
        }
      }
      const all = [["series", c.x.name || "x", c.y.name || "y", "label"]];
      s.forEach((x) =>
        x.x.forEach((v, i) => all.push([x.name, text(v, c.x), text(x.y[i], c.y), (x.text || [])[i] || ""])),
      );
      return all;
    }

    addTable() {
      const details = make("details", {}, make("summary", {}, "Table"));
      details.addEventListener("toggle", () => {
        if (!details.open || details.children.length > 1) return;
        const rows = this.rows(),
          table = make("table");
        rows
          .slice(0, maxTableRows + 1)
          .forEach((row, i) =>
            table.append(
              make(
                "tr",
                {},
                ...row.map((cell, k) =>
                  make(
                    i === 0 ? "th" : k === 0 ? "th" : "td",
                    i === 0 ? { scope: "col" } : k === 0 ? { scope: "row" } : {},
                    cell,
                  ),
                ),
              ),
            ),
          );
        details.append(make("div", { class: "scroll", tabindex: "0" }, table));
        if (rows.length > maxTableRows + 1)
          details.append(make("p", {}, `The first ${maxTableRows} of ${rows.length - 1} rows.`));
      });
      this.figure.append(details);
    }

    draw() {
      const c = this.chart,
        width = Math.max(280, this.plot.clientWidth || 280);
      this.points = []; // [x, y, what is there], in the order of the keyboard
      this.width = width;
      const longest = Math.min(c.rows ? Math.max(...c.rows.map((r) => r.length)) : 0, width < 500 ? 14 : 30);
      this.left = c.rows ? Math.max(50, longest * 6.3 + 8) : 66;
      this.right = width - 12;
      this.svg = make("svg", {
        role: "img",
        tabindex: "0",
        "aria-label": `${c.title}. Arrow keys read the values; the table has all of them.`,
      });
      ({ spans: this.spans, lines: this.lines, bars: this.bars, means: this.means, heat: this.heat })[c.kind].call(this);
      this.cursor = make("g");
      this.svg.append(this.cursor);
      this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
      this.svg.setAttribute("height", this.height);
      this.listen();
      this.plot.replaceChildren(this.svg);
    }

    scale(low, high, from, to, log) {
      if (log) {
        low = Math.log10(low);
        high = Math.log10(high);
      }
      const by = high > low ? (to - from) / (high - low) : 0;
      return (v) => from + ((log ? Math.log10(v) : v) - low) * by;
    }

    xAxis(low, high, bottom) {
      const c = this.chart,
        x = (this.x = this.scale(low, high, this.left, this.right, c.x.log));
      this.xRange = [low, high];
      for (const t of ticks(low, high, c.x, this.width / 110)) {
        const word = text(t, c.x),
          ends = x(t) + 3.5 * word.length > this.width; // it would be cut off
        this.svg.append(
          make("path", { class: "axis", d: `M${x(t)} 4V${bottom}` }),
          make("text", { x: x(t), y: bottom + 14, "text-anchor": ends ? "end" : "middle" }, word),
        );
      }
      if (c.x.name)
        this.svg.append(
          make("text", { x: (this.left + this.right) / 2, y: bottom + 29, "text-anchor": "middle" }, c.x.name),
        );
      this.height = bottom + 34;
    }

    rowNames(top, size) {
      const every = Math.max(1, Math.ceil(11 / size)),
        most = Math.floor((this.left - 6) / 6.3);
      this.chart.rows.forEach((r, i) => {
        if (i % every) return;
        const label = make(
          "text",
          { x: this.left - 6, y: top + (i + 0.5) * size + 4, "text-anchor": "end" },
          r.length > most ? r.slice(0, most - 1) + "…" : r,
        );
        label.append(make("title", {}, r));
        this.svg.append(label);
      });
    }

    spans() {
      const c = this.chart,
        size = Math.max(3, Math.min(26, 420 / c.rows.length)),
        bottom = 6 + size * c.rows.length;
      const [low, high] = span || whole;
      this.xAxis(low, high, bottom);
      this.rowNames(6, size);
      c.series.forEach((s, i) => {
        if (this.hidden.has(i)) return;
        const ends = []; // of what is drawn in each row: parts of less than a pixel are drawn once
        let d = "";
        s.x.forEach((from, k) => {
          const to = from + s.w[k];
          if (!known(from) || to < low || from > high) return;
          const a = Math.max(this.left, this.x(from)),
            b = Math.min(this.right, Math.max(this.x(to), a + 0.8));
          const y = 6 + s.row[k] * size;
          this.points.push([
            (a + b) / 2,
            y + size / 2,
            `${c.rows[s.row[k]]}: ${s.name}${s.text[k] ? " " + s.text[k] : ""}, ` +
              `${text(s.w[k], c.x)} from ${text(from, c.x)}`,
            a,
            b,
          ]);
          if (b <= ends[s.row[k]] + 0.3) return;
          ends[s.row[k]] = b;
          d += `M${a.toFixed(1)} ${(y + 1).toFixed(1)}h${Math.max(0.6, b - a - (b - a > 3 ? 1 : 0)).toFixed(1)}v${(size - 2 < 1 ? 1 : size - 2).toFixed(1)}H${a.toFixed(1)}z`;
        });
        this.svg.append(make("path", { d, fill: color(s, i) }));
      });
    }

    lines() {
      const c = this.chart,
        bottom = 210;
      const shown = c.series.filter((_, i) => !this.hidden.has(i));
      const all = (key) => shown.flatMap((s) => s[key].filter(known));
      const extent = (list) => list.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
      let [low, high] = this.onTime ? span || whole : extent(all("x"));
      // of a line, the values beside the window count too: it crosses the edges on the way to them
      const inside = (s, i) =>
        !this.onTime ||
        ((s.line ? s.x[Math.min(i + 1, s.x.length - 1)] : s.x[i]) >= low &&
          (s.line ? s.x[Math.max(i - 1, 0)] : s.x[i]) <= high);
      let [least, most] = extent(shown.flatMap((s) => s.y.filter((v, i) => known(v) && inside(s, i))));
      if (!isFinite(least)) [least, most] = extent(shown.flatMap((s) => s.y.filter(known)));
      if (!c.y.log) {
        least = Math.min(0, least);
        most = most > least ? most * 1.05 : least + 1;
      } else {
        least /= 1.5;
        most *= 1.5;
      }
      if (!isFinite(least) || !isFinite(most)) [least, most] = [c.y.log ? 0.1 : 0, 1];
      this.xAxis(low, high, bottom);
      const y = this.scale(least, most, bottom, 8, c.y.log),
        clip = `clip${this.figure.dataset.chart}`;
      this.svg.append(
        make(
          "clipPath",
          { id: clip },
          make("rect", { x: this.left, y: 0, width: this.right - this.left, height: bottom + 2 }),
        ),
      );
      for (const t of ticks(least, most, c.y, 5)) {
        this.svg.append(
          make("path", { class: "axis", d: `M${this.left} ${y(t)}H${this.right}` }),
          make("text", { x: this.left - 6, y: y(t) + 4, "text-anchor": "end" }, text(t, c.y)),
        );
      }
      c.series.forEach((s, i) => {
        if (this.hidden.has(i)) return;
        let d = "",
          dots = "",
          before = false;
        s.x.forEach((v, k) => {
          const w = s.y[k];
          if (!known(v) || !known(w)) {
            before = false;
            return;
          }
          if (!inside(s, k)) {
            before = false;
            return;
          }
          const px = this.x(v),
            py = y(w);
          d += before
            ? `${s.step ? `H${px.toFixed(1)}` : ""}L${px.toFixed(1)} ${py.toFixed(1)}`
            : `M${px.toFixed(1)} ${py.toFixed(1)}`;
          before = true;
          if (px < this.left - 1 || px > this.right + 1) return;
          this.points.push([
            px,
            py,
            `${s.name}${(s.text || [])[k] ? " " + s.text[k] : ""}: ${text(w, c.y)} at ${text(v, c.x)}`,
          ]);
          if (!s.line || s.x.length === 1)
            dots += `M${(px - 2.2).toFixed(1)} ${py.toFixed(1)}a2.2 2.2 0 1 0 4.4 0a2.2 2.2 0 1 0 -4.4 0z`;
          if (!s.line && !this.onTime && s.text) this.svg.append(make("text", { x: px + 5, y: py - 4 }, s.text[k]));
        });
        this.svg.append(
          s.line && s.x.length > 1
            ? make("path", {
                d,
                fill: "none",
                stroke: color(s, i),
                "stroke-width": 1.6,
                "clip-path": `url(#${clip})`,
              })
            : make("path", { d: dots, fill: color(s, i) }),
        );
      });
    }

    bars() {
      const c = this.chart,
        size = 22,
        bottom = 6 + size * c.rows.length;
      const shown = c.series.map((s, i) => [s, i]).filter(([, i]) => !this.hidden.has(i));
      const most = Math.max(
        0,
        ...c.rows.map((_, k) => shown.reduce((sum, [s]) => sum + (known(s.y[k]) ? s.y[k] : 0), 0)),
      );
      this.xAxis(0, most || 1, bottom);
      this.rowNames(6, size);
      c.rows.forEach((r, k) => {
        let sum = 0;
        for (const [s, i] of shown) {
          const v = s.y[k];
          if (!known(v) || v === 0) continue;
          const a = this.x(sum),
            b = this.x(sum + v),
            y = 6 + k * size;
          this.svg.append(
            make("rect", { x: a, y: y + 3, width: Math.max(0.5, b - a), height: size - 6, fill: color(s, i) }),
          );
          this.points.push([(a + b) / 2, y + size / 2, `${r}: ${s.name} ${text(v, c.x)}`, a, b]);
          sum += v;
        }
      });
    }

    // mean is a value with half of its interval.
    mean(s, i) {
      return text(s.y[i], this.chart.x) + (s.w[i] > 0 ? " ± " + text(s.w[i], this.chart.x) : "");
    }

    means() {
      const c = this.chart,
        shown = c.series.map((s, i) => [s, i]).filter(([, i]) => !this.hidden.has(i)),
        size = 12 + 9 * c.series.length,
        bottom = 6 + size * c.rows.length;
      this.xAxis(0, Math.max(0, ...shown.flatMap(([s]) => s.y.map((v, k) => v + s.w[k]))) || 1, bottom);
      this.rowNames(6, size);
      c.rows.forEach((r, k) =>
        shown.forEach(([s, i]) => {
          const y = 6 + k * size + 10 + 9 * i,
            a = this.x(Math.max(0, s.y[k] - s.w[k])),
            b = this.x(s.y[k] + s.w[k]),
            x = this.x(s.y[k]);
          this.svg.append(
            make("path", { d: `M${a} ${y}H${b}M${a} ${y - 3}v6M${b} ${y - 3}v6`, stroke: color(s, i), fill: "none" }),
            make("circle", { cx: x, cy: y, r: 3, fill: color(s, i) }),
          );
          this.points.push([x, y, `${r}: ${s.name} ${this.mean(s, k)}`, a, b]);
        }),
      );
    }

    heat() {
      const c = this.chart,
        s = c.series[0],
        n = c.columns.length;
      const size = Math.max(5, Math.min(22, 560 / c.rows.length)),
        wide = Math.min(90, (this.right - this.left) / n);
      const longest = Math.min(18, Math.max(...c.columns.map((x) => x.length))),
        flat = longest * 6.5 < wide;
      const head = n > 40 ? 6 : flat ? 20 : 12 + 5.2 * longest,
        most = Math.max(...s.y.filter(known).map(Math.abs), 0);
      if (n <= 40) {
        c.columns.forEach((name, k) => {
          const x = this.left + (k + 0.5) * wide;
          this.svg.append(
            make(
              "text",
              {
                x,
                y: head - 5,
                "text-anchor": flat ? "middle" : "start",
                ...(flat ? {} : { transform: `rotate(-55 ${x} ${head - 5})` }),
              },
              name.slice(0, 18),
            ),
          );
        });
      }
      this.rowNames(head, size);
      c.rows.forEach((r, i) =>
        c.columns.forEach((name, k) => {
          const v = s.y[i * n + k],
            x = this.left + k * wide,
            y = head + i * size;
          const cell = {
            x,
            y,
            width: Math.max(1, wide - (wide > 6 ? 1 : 0)),
            height: Math.max(1, size - (size > 6 ? 1 : 0)),
          };
          if (known(v)) {
            const part = most > 0 ? Math.sqrt(Math.abs(v) / most) : 0;
            this.svg.append(make("rect", { ...cell, fill: `rgba(var(--heat), ${(0.03 + 0.97 * part).toFixed(3)})` }));
            if (s.text && size > 10) {
              const label = part > 0.6 ? "label dark" : "label";
              const most = Math.floor(wide / 6.5);
              const word = s.text[i * n + k].length > most ? s.text[i * n + k].slice(0, most - 1) + "…" : s.text[i * n + k];
              this.svg.append(
                make("text", { x: x + wide / 2, y: y + size / 2 + 4, "text-anchor": "middle", class: label }, word),
              );
            }
          } else {
            this.svg.append(make("rect", { ...cell, fill: "none", stroke: "var(--rule)" }));
          }
          const word = s.text ? s.text[i * n + k] + " " : "";
          this.points.push([x + wide / 2, y + size / 2, `${r}, ${name}: ${word}${text(v, c.y)}`, x, x + wide]);
        }),
      );
      this.height = head + c.rows.length * size + 22;
      this.svg.append(
        make("text", { x: this.left, y: this.height - 6 }, `full shade: ${text(most, c.y)} (square root scale)`),
      );
    }

    // read shows a point and says what it is.
    read(i) {
      this.at = i;
      const p = this.points[i];
      if (!p) return;
      this.says.textContent = p[2];
      this.cursor.replaceChildren(
        make("path", { class: "cursor", d: `M${p[0]} 0V${this.height}` }),
        make("circle", { cx: p[0], cy: p[1], r: 3.5, fill: "none", stroke: "var(--ink)" }),
      );
    }

    nearest(x, y) {
      let best = -1,
        distance = Infinity;
      this.points.forEach((p, i) => {
        const dx = p.length > 3 ? Math.max(p[3] - x, 0, x - p[4]) : p[0] - x,
          d = dx * dx + 4 * (p[1] - y) ** 2;
        if (d < distance) [best, distance] = [i, d];
      });
      return best;
    }

    listen() {
      const svg = this.svg,
        place = (e) => {
          const box = svg.getBoundingClientRect();
          return [
            ((e.clientX - box.left) * this.width) / box.width,
            ((e.clientY - box.top) * this.height) / box.height,
          ];
        };
      const time = (x) =>
        this.xRange[0] +
        ((Math.min(Math.max(x, this.left), this.right) - this.left) / (this.right - this.left)) *
          (this.xRange[1] - this.xRange[0]);
      let from = null,
        brush = null;
      svg.addEventListener("pointermove", (e) => {
        const [x, y] = place(e);
        if (from !== null) {
          brush.setAttribute("x", Math.min(from, x));
          brush.setAttribute("width", Math.abs(x - from));
          return;
        }
        this.read(this.nearest(x, y));
      });
      if (this.onTime) {
        svg.addEventListener("pointerdown", (e) => {
          if (e.button !== 0) return;
          from = place(e)[0];
          brush = make("rect", { class: "brush", x: from, y: 0, width: 0, height: this.height - 30 });
          svg.append(brush);
          svg.setPointerCapture(e.pointerId);
        });
        svg.addEventListener("pointerup", (e) => {
          if (from === null) return;
          const x = place(e)[0],
            [a, b] = [time(from), time(x)].sort((p, q) => p - q),
            moved = Math.abs(x - from);
          from = null;
          brush.remove();
          if (moved > 5) show([a, b]);
        });
        svg.addEventListener("dblclick", () => show(null));
      }
      svg.addEventListener("keydown", (e) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
        if (step && this.points.length) this.read((this.at + step + this.points.length) % this.points.length);
        else if (this.onTime && (e.key === "+" || e.key === "=")) zoom(0.5);
        else if (this.onTime && e.key === "-") zoom(2);
        else if (this.onTime && (e.key === "0" || e.key === "Escape")) show(null);
        else return;
        e.preventDefault();
        if (!step) this.svg.focus();
      });
    }
  }

  // show sets the window of all charts over time; null is all of it.
  const show = (range) => {
    if (range) {
      const least = (whole[1] - whole[0]) * 1e-6 || 1e-9,
        size = Math.max(least, range[1] - range[0]);
      const low = Math.max(whole[0], Math.min(range[0], whole[1] - size));
      range = [low, Math.min(whole[1], low + size)];
      if (range[0] <= whole[0] && range[1] >= whole[1]) range = null;
    }
    span = range;
    drawn.forEach((d) => d.onTime && d.draw());
  };
  const zoom = (by) => {
    const [a, b] = span || whole,
      mid = (a + b) / 2,
      half = ((b - a) / 2) * by;
    show([mid - half, mid + half]);
  };
  const move = (by) => {
    const [a, b] = span || whole;
    show([a + (b - a) * by, b + (b - a) * by]);
  };

  // The window begins with the first execution after the set-up: what was before is not of the tokens.
  const timed = charts.filter((c) => c.x.time);
  for (const c of timed.some((c) => c.kind === "spans")
    ? timed.filter((c) => c.kind === "spans").slice(0, 1)
    : timed) {
    for (const s of c.series) {
      if (s.name === "page fault") continue;
      s.x.forEach((v, i) => {
        if (!known(v)) return;
        whole[0] = Math.min(whole[0], v);
        whole[1] = Math.max(whole[1], v + (s.w ? s.w[i] : 0));
      });
    }
  }
  if (!(whole[1] > whole[0])) whole = [0, 1];
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    drawn.push(new Drawing(charts[Number(figure.dataset.chart)], figure));
  }
  const redraw = () => drawn.forEach((d) => d.draw());
  redraw();
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    redraw();
  }).observe(document.body);
  document.getElementById("keys").textContent =
    "In a chart: arrow keys read values, + and - zoom, 0 shows all; drag to zoom, double click to show all.";
})();
