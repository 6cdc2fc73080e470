"use strict";
// The token comes in the fragment of the link that the server printed, which no browser sends anywhere, and stays in
// this tab.
const key = "llamatap-token", most = { runs: 500, lines: 200, squares: 256 };
const by = (id) => document.getElementById(id);
const show = (id, text) => { const e = by(id); if (e.textContent !== text) e.textContent = text; };
function make(tag, text, cls) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
}
function readFragment() {
  if (!location.hash.startsWith("#token=")) return;
  sessionStorage.setItem(key, decodeURIComponent(location.hash.slice(7)));
  history.replaceState(null, "", location.pathname);
}
async function ask(path, options = {}) {
  const headers = { Authorization: "Bearer " + (sessionStorage.getItem(key) || ""), ...options.headers };
  const answer = await fetch(path, { ...options, headers });
  if (answer.ok) return answer;
  if (answer.status === 401) throw new Error("Open the link that llamatap serve printed: it carries the token.");
  let text = await answer.text();
  try { text = JSON.parse(text).error; } catch { /* not an error of the server's own */ }
  throw new Error(text);
}

// Figures, formatted as the commands print them.
const digits = (v) => v >= 99.95 ? v.toFixed(0) : v >= 9.995 ? v.toFixed(1) : v.toFixed(2);
function scaled(v, step, units) {
  let i = 0;
  for (; v >= step - 0.5 && i < units.length - 1; i++) v /= step;
  return (i ? digits(v) : v.toFixed(0)) + " " + units[i];
}
const bytes = (n) => scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const count = (n) => scaled(n, 1000, ["", "k", "M", "G"]).trim();
const duration = (ns) =>
  ns < 1e6 ? digits(ns / 1e3) + " µs" : ns < 1e9 ? digits(ns / 1e6) + " ms" : digits(ns / 1e9) + " s";
function clock(ns) {
  const seconds = Math.max(0, Math.floor(ns / 1e9)), two = (n) => String(n % 60).padStart(2, "0");
  return `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60))}:${two(seconds)}`;
}
const percent = (share) => share === undefined ? "–" : (100 * share).toFixed(1) + " %";
const some = (v, format) => v === undefined ? "–" : format(v);

// The list of runs.
let runs = [], listed = "", absent = "";
async function list() {
  if (document.hidden) return;
  try {
    const text = await (await ask("/api/v1/runs")).text();
    show("status", absent);
    if (text === listed) return;
    listed = text;
    const all = JSON.parse(text);
    runs = all.runs;
    absent = (all.hosts || []).filter((h) => h.error).map((h) => h.error).join(" ");
    show("status", absent);
    drawRuns();
  } catch (err) { show("status", err.message); }
}
function drawRuns() {
  const words = by("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (r) => words.every((w) => `${r.run} ${r.model} ${r.state}`.toLowerCase().includes(w));
  const found = runs.filter(matches);
  const rows = found.slice(0, most.runs).map((r) => {
    const item = make("li"), link = make("a", r.run);
    link.href = "#run=" + encodeURIComponent(r.run);
    if (r.run === chosen()) link.ariaCurrent = "true";
    link.append(make("small", [r.model, r.state, r.events ? bytes(r.log_bytes) : "no events"].join(" · ")));
    item.append(link);
    return item;
  });
  by("runs").replaceChildren(...rows);
  const cut = found.length > rows.length ? `, the newest ${rows.length} are listed` : "";
  show("count", runs.length === 0 ? "There are no runs yet." : `${found.length} of ${runs.length} runs${cut}`);
}
const chosen = () => new URLSearchParams(location.hash.slice(1)).get("run") ?? "";

// A stream of a route, read line by line until it ends or is stopped. It returns whether it ended by itself.
async function stream(path, stop, take) {
  const reader = (await ask(path, { signal: stop })).body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    take(lines);
  }
}

// The selected run: one stream of snapshots and one of events, both ended while the page is hidden.
let following, snapshot, shown, table = "components"; // shown: the run, with its host
async function follow() {
  following?.abort();
  const run = chosen(), stop = new AbortController();
  following = stop;
  for (const link of by("runs").querySelectorAll("a")) link.ariaCurrent = link.hash === location.hash ? "true" : null;
  document.body.classList.toggle("open", run !== "");
  by("live").hidden = !run;
  by("empty").hidden = !!run;
  show("problem", "");
  if (!run || document.hidden) return;
  if (shown !== run) {
    shown = run;
    snapshot = undefined;
    show("run", run);
    show("state", "…");
    by("state").className = "badge";
    show("about", "");
    for (const e of document.querySelectorAll("article, #report, #level")) e.hidden = true;
    drawEvents([]);
  }
  const query = "?run=" + encodeURIComponent(run);
  for (let failed = false; !stop.signal.aborted;) {
    let ended = false;
    try {
      await stream("/api/v1/live" + query, stop.signal, (lines) => {
        for (const line of lines) {
          if (line === "event: end") ended = true;
          if (!line.startsWith("data: {\"run\"")) continue;
          const first = !snapshot;
          snapshot = JSON.parse(line.slice(6));
          draw(snapshot);
          if (failed) show("problem", "");
          failed = false;
          if (first || !watching) watch(query);
        }
      });
      show("problem", "");
    } catch (err) {
      if (stop.signal.aborted) return;
      show("problem", err.message);
      failed = true;
    }
    if (ended) return;
    watching?.abort(); // what cut this stream off has cut that one off, too
    watching = undefined;
    await new Promise((done) => setTimeout(done, 2000));
  }
}
let watching, newest = [], waiting;
async function watch(query) {
  watching?.abort();
  const stop = watching = new AbortController(), kind = by("kind").value, layer = by("layer").value.trim();
  following.signal.addEventListener("abort", () => { stop.abort(); if (watching === stop) watching = undefined; });
  drawEvents([]);
  const back = kind || layer ? 100000 : most.lines;
  let path = `/api/v1/resource-logs${query}&follow&from_line=${Math.max(0, snapshot.lines - back)}`;
  if (kind) path += "&event=" + kind;
  if (layer) path += "&layer=" + encodeURIComponent(layer);
  try {
    await stream(path, stop.signal, (lines) => {
      if (stop.signal.aborted) return;
      newest = newest.concat(lines.slice(-most.lines)).slice(-most.lines);
      waiting ??= setTimeout(() => {
        waiting = undefined;
        if (by("pause").ariaPressed !== "true") drawEvents(newest);
      }, 500);
    });
  } catch (err) {
    if (!stop.signal.aborted) show("events", snapshot.lines ? err.message : "");
  }
}
function drawEvents(lines) {
  newest = lines;
  const text = lines.map((line) => {
    try {
      const { event, timestamp, unix_ns, mono_ns, session_id, source, sources, resource_id, ...rest } =
        JSON.parse(line);
      const when = new Date(unix_ns / 1e6).toLocaleTimeString();
      return `${when} ${event} ${JSON.stringify(rest).slice(1, -1).replaceAll('"', "").slice(0, 300)}`;
    } catch { return line.slice(0, 300); }
  });
  show("events", text.reverse().join("\n"));
}

// What a snapshot shows. A card whose figures were not recorded is hidden; "Not recorded" names the flag.
const card = (name, visible) => { by("card-" + name).hidden = !visible; return visible; };
function draw(s) {
  const live = s.state === "running";
  show("run", shown);
  show("state", s.state);
  by("state").className = "badge " + s.state.split(" ")[0];
  const parts = [s.model, s.level, s.first_unix_ns && clock((live ? s.unix_ns : s.last_unix_ns) - s.first_unix_ns),
    s.pid && "process " + s.pid];
  const age = s.unix_ns - s.last_unix_ns, unread = `${bytes(s.unread_bytes)} of the log are not read yet`;
  if (live && age > 2e9) parts.push(`the newest event is ${duration(age)} old, ${unread}`);
  else if (!live && s.unread_bytes > 1 << 20) parts.push(unread); // less is a last line that was cut off
  show("about", parts.filter(Boolean).join(" · "));
  by("report").hidden = live;
  by("level").hidden = !live || !s.level;
  const level = (s.level || "").toLowerCase();
  for (const b of by("level").children) b.ariaPressed = String(b.textContent.toLowerCase() === level);
  drawSpeed(s);
  if (card("text", s.texts)) drawTexts(s.texts);
  if (card("times", s.components)) drawTimes(s);
  if (card("kv", s.kv)) by("kv").replaceChildren(...s.kv.flatMap(drawCache));
  if (card("experts", s.experts)) drawExperts(s.experts);
  const devices = [];
  const m = s.memory, c = s.captured;
  if (m) devices.push(["backends, now", bytes(m.live_bytes)], ["backends, at most", bytes(m.peak_bytes)]);
  for (const g of s.gpus || []) {
    const figures = [some(g.gpu_power_w, digits) + " W", some(g.gpu_utilization_percent, digits) + " % busy",
      some(g.gpu_memory_used_bytes, bytes)];
    devices.push([`GPU ${g.gpu_index} ${g.gpu_name}`, figures.join(", ")]);
  }
  for (const z of s.rapl || [])
    devices.push([z.domain, `${some(z.power_w, digits)} W, ${z.energy_j.toPrecision(4)} J`]);
  if (c?.packets) devices.push(["captured tensors", `${count(c.packets)}, ${bytes(c.bytes_stored)}`]);
  if (card("devices", devices.length)) drawPairs("devices", devices);
  if (card("host", s.host)) drawPairs("host", hostPairs(s.host));
  const lost = s.losses.map((l) => `${count(l.count)} ${l.kind} events (${l.cause})`);
  for (const [cause, n] of Object.entries(s.captured?.losses || {})) lost.push(`${count(n)} tensors (${cause})`);
  if (s.bad_lines) lost.push(`${count(s.bad_lines)} lines that cannot be read`);
  if (s.missed_log_files)
    lost.push(`${count(s.missed_log_files)} files of the log that were given back before they were read`);
  if (card("lost", lost.length)) by("lost").replaceChildren(...lost.map((text) => make("li", text)));
  if (card("missing", s.missing)) by("missing").replaceChildren(...s.missing.map((figure) => {
    const item = make("li", figure.what + ": ");
    item.append(make(figure.how.startsWith("--") ? "code" : "span", figure.how));
    return item;
  }));
  card("events", s.lines);
}
function drawSpeed(s) {
  if (!card("speed", s.speed)) return;
  const tokens = (phase) => count(s.phases.find((p) => p.phase === phase)?.tokens || 0);
  show("recent", digits(s.speed.recent_tokens_per_s));
  show("whole", some(s.speed.tokens_per_s, digits));
  show("generated", tokens("decode"));
  show("prompt", tokens("prefill"));
  show("p50", some(s.latency?.p50_at_most_ns, duration));
  show("p99", some(s.latency?.p99_at_most_ns, duration));
  const h = s.speed.history;
  const text = `tokens in each of the last ${h.length} seconds, at most ${Math.max(...h)}`;
  by("history").replaceChildren(...h.length > 1 ? bars(h, 60, text) : []);
}
// bars draws numbers as bars from 0, with a caption that says what they are.
function bars(values, places, text) {
  const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg");
  const top = Math.max(1, ...values);
  svg.setAttribute("viewBox", `0 0 ${places} 20`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", text);
  values.forEach((v, i) => {
    const r = document.createElementNS(space, "rect"), height = 20 * v / top;
    const place = { x: i + places - values.length + 0.1, y: 20 - height, width: 0.8, height };
    for (const [name, value] of Object.entries(place)) r.setAttribute(name, value);
    svg.append(r);
  });
  return [svg, make("p", text, "note")];
}
function drawTexts(texts) {
  const box = by("text");
  while (box.children.length > texts.length) box.lastChild.remove();
  texts = [...texts].sort((a, b) => (a.ctx || 0) - (b.ctx || 0) || (a.seq_id || 0) - (b.seq_id || 0));
  texts.forEach((t, i) => {
    const part = box.children[i] || box.appendChild(make("div"));
    if (!part.firstChild) { const pre = make("pre"); pre.tabIndex = 0; part.append(make("p", "", "note"), pre); }
    const pre = part.lastChild, bottom = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4;
    part.firstChild.textContent = t.seq_id === undefined ? "" : "sequence " + t.seq_id;
    pre.ariaLabel = "newest text " + part.firstChild.textContent;
    if (pre.textContent !== t.text) pre.textContent = t.text;
    if (bottom) pre.scrollTop = pre.scrollHeight;
  });
}
function drawTimes(s) {
  show("skimmed", s.skimmed_graphs ? `without ${count(s.skimmed_graphs)} graphs, skipped to keep up with the log` : "");
  const share = (r) => r.recent_share ?? r.share ?? 0, rows = [...s[table] || []];
  if (table !== "layers") rows.sort((a, b) => share(b) - share(a));
  const body = by("times");
  while (body.children.length > rows.length) body.lastChild.remove();
  rows.forEach((r, i) => {
    const row = body.children[i] || body.appendChild(make("tr"));
    if (!row.firstChild) {
      const last = make("td"), bar = make("span", undefined, "bar");
      bar.append(make("span", undefined, "fill"));
      last.append(bar);
      row.append(make("td"), make("td"), make("td"), make("td"), last);
    }
    const texts = [r.name, some(r.ns, duration), percent(r.share), percent(r.recent_share)];
    texts.forEach((text, k) => { row.children[k].textContent = text; });
    row.querySelector(".fill").style.width = 100 * Math.min(1, share(r)) + "%";
  });
}
// drawCache draws a cache as squares of equally many cells. They are by sequence, not where the cells lie.
function drawCache(c) {
  const sequences = c.sequences || [], of = c.cells ? `of ${count(c.cells)} ` : "";
  const head = make("p", `${c.cache}, context ${c.ctx}: ${count(c.cells_used)} ${of}cells`);
  const keys = make("p", undefined, "keys note");
  sequences.slice(0, 16).forEach((q, i) => {
    const one = make("span", ` ${q.seq_id < 0 ? "unknown" : "sequence " + q.seq_id}: ${count(q.cells)}`);
    one.prepend(make("b", undefined, "s" + i % 8));
    keys.append(one);
  });
  if (!c.cells) return [head, keys];
  const each = Math.ceil(c.cells / most.squares), map = make("div", undefined, "map");
  map.setAttribute("role", "img");
  map.setAttribute("aria-label", `${percent(c.cells_used / c.cells)} of the cells are used`);
  const ends = [];
  sequences.reduce((sum, q) => (ends.push(sum + q.cells), sum + q.cells), 0);
  for (let cell = 0; cell < c.cells; cell += each) {
    const i = cell < c.cells_used ? ends.findIndex((end) => cell < end) : -1;
    map.append(make("i", undefined, i >= 0 ? "s" + i % 8 : cell < c.cells_used ? "s0" : undefined));
  }
  const size = each === 1 ? "a cell" : each + " cells";
  return [head, map, make("p", `a square is ${size}; sequences are in order, not where their cells lie`, "note"), keys];
}
function drawExperts(experts) {
  const last = Math.max(...experts.map((e) => e.expert)), n = new Array(Math.min(last + 1, 1024)).fill(0);
  let sum = 0;
  for (const e of experts) { sum += e.count; if (e.expert < n.length) n[e.expert] = e.count; }
  const top = experts.reduce((a, b) => b.count > a.count ? b : a);
  const text = `${top.expert} most: ${percent(top.count / sum)} of ${count(sum)}`;
  by("experts").replaceChildren(...bars(n, n.length, `choices of experts 0 to ${last} in all layers; ${text}`));
}
function hostPairs(h) {
  const pairs = [];
  for (const [where, all] of [["", h.pressure], [" of the control group", h.cgroup_pressure || {}]])
    for (const [what, { some }] of Object.entries(all))
      if (some) pairs.push([`${what} pressure${where}, 10 s`, some.avg10.toFixed(1) + " %"]);
  if (h.interval_actual_s > 0) {
    const each = (n) => n / h.interval_actual_s;
    pairs.push(["delayed off the CPU, per second", duration(each(h.off_cpu_ns))],
      ["page faults per second", count(each(h.page_faults))]);
    if (h.major_faults !== undefined) pairs.push(["of them major", count(each(h.major_faults))]);
  }
  if (h.rss_bytes !== undefined) pairs.push(["resident", bytes(h.rss_bytes)]);
  return pairs;
}
function drawPairs(id, pairs) {
  by(id).replaceChildren(...pairs.flatMap(([name, value]) => [make("dt", name), make("dd", value)]));
}

// Controls.
document.querySelector(".skip").onclick = (e) => { e.preventDefault(); by("view").focus(); };
for (const level of ["MINIMAL", "DETAILED", "VERBOSE", "off"]) {
  const b = make("button", level);
  b.type = "button";
  b.onclick = async () => {
    try {
      const headers = { "Content-Type": "application/json" }, body = JSON.stringify({ level });
      await ask("/api/v1/level?run=" + encodeURIComponent(chosen()), { method: "PUT", body, headers });
      show("problem", "");
      show("status", `Level ${level} from the next graph on.`);
    } catch (err) { show("problem", err.message); }
  };
  by("level").append(b);
}
by("report").onclick = async () => {
  try {
    const answer = await ask(`/runs/${encodeURIComponent(chosen())}/report`, { method: "POST" });
    location.assign((await answer.json()).path);
  } catch (err) { show("problem", err.message); }
};
for (const b of document.querySelectorAll("[data-by]")) b.onclick = () => {
  table = b.dataset.by;
  for (const other of document.querySelectorAll("[data-by]")) other.ariaPressed = String(other === b);
  drawTimes(snapshot);
};
by("filter").oninput = drawRuns;
by("kind").onchange = by("layer").onchange = () => {
  if (snapshot && by("layer").checkValidity()) watch("?run=" + encodeURIComponent(shown));
};
by("pause").onclick = () => { by("pause").ariaPressed = String(by("pause").ariaPressed !== "true"); };
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) { readFragment(); listed = ""; list(); }
  follow();
});
addEventListener("visibilitychange", () => { list(); follow(); });
readFragment();
list().then(follow);
setInterval(list, 5000);
