package resources

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/llamatap/llamatap/internal/present"
)

// View is how a snapshot is laid out on a screen.
type View struct {
	Width, Height int    // in cells; a height of 0: as many lines as there are
	By            string // what time is shown by, one of ViewBy
	Keys          string // the last line
}

// maxTextLines bounds the lines of text.
const maxTextLines = 20

// ViewBy are the tables of times that a view can show.
var ViewBy = []string{"component", "layer", "op"}

// Screen lays a snapshot out in at most v.Height lines of at most v.Width cells, safe for a terminal.
func (s *Snapshot) Screen(v View) []string {
	above, below := s.head(v.Width), s.devices(v.Width)
	rows := s.times(v)
	text := s.text(v.Width)
	if v.Keys != "" {
		below = append(below, v.Keys)
	}
	if text = text[max(0, len(text)-maxTextLines):]; v.Height > 0 {
		room := max(0, v.Height-len(above)-len(below))
		forText := min(len(text), max(room/3, room-len(rows)))
		text = text[len(text)-forText:]
		rows = rows[:min(len(rows), room-forText)]
	}
	lines := slices.Concat(above, rows, text, below)
	if v.Height > 0 && len(lines) > v.Height {
		lines = append(lines[:max(0, v.Height-1)], v.Keys)
	}
	for i, line := range lines {
		lines[i] = fit(strings.TrimRight(present.Line(line), " "), v.Width)
	}
	return lines
}

// fit cuts a line that is wider than a screen.
func fit(line string, width int) string {
	if uniseg.StringWidth(line) <= width {
		return line
	}
	cut, _ := cutAt(line, width-1)
	return cut + "…"
}

// cutAt cuts a line into what fits into so many cells, at least a character, and the rest.
func cutAt(line string, width int) (head, rest string) {
	used, at, state := 0, 0, -1
	for rest = line; rest != ""; {
		cluster, after, cells, next := uniseg.FirstGraphemeClusterInString(rest, state)
		if used += cells; used > width && at > 0 {
			break
		}
		at, rest, state = at+len(cluster), after, next
	}
	return line[:at], rest
}

// fill writes items after a title into as many lines as they take.
func fill(title string, items []string, width int) (lines []string) {
	for i, item := range items {
		switch last := len(lines) - 1; {
		case i == 0:
			lines = append(lines, title+item)
		case uniseg.StringWidth(lines[last])+uniseg.StringWidth(item)+2 <= width:
			lines[last] += ", " + item
		default:
			lines = append(lines, "  "+item)
		}
	}
	return lines
}

// head is what the run is, its tokens and how fast they come.
func (s *Snapshot) head(width int) []string {
	lines := []string{fmt.Sprintf("%s  %s  %s %s  %s", s.Run, s.Model, s.State, s.elapsed(), s.Level)}
	if ended := s.ended(); ended != "" {
		lines = append(lines, ended+": the figures are of the time before")
	}
	lines = append(lines, fill("", s.tokens(), width)...)
	if l := s.Latency; l != nil {
		lines = append(lines, fmt.Sprintf("from token to token: %s in half of them, %s in 99 %% at most",
			present.Nanoseconds(l.P50), present.Nanoseconds(l.P99)))
	}
	if s.Speed != nil && len(s.Speed.History) > 1 {
		n := s.Speed.History[max(0, len(s.Speed.History)-max(1, width-30)):]
		lines = append(lines, fmt.Sprintf("%s  0 to %d tokens a second", spark(n), slices.Max(n)))
	}
	if age := s.UnixNS - s.LastNS; s.State == StateRunning && s.LastNS > 0 && age > int64(writeTime) {
		lines = append(lines, fmt.Sprintf("the newest event is %s old, %s of the log are not read yet",
			present.Nanoseconds(age), present.Bytes(s.Unread)))
	}
	if s.Skimmed > 0 {
		lines = append(lines, fmt.Sprintf("time leaves out %s graphs, which were skipped to keep up with the log",
			present.Count(s.Skimmed)))
	}
	if lost := s.lost(); lost != "" {
		lines = append(lines, lost)
	}
	return lines
}

// eighths are bars of a character's height, from none to all of it.
var eighths = []rune(" ▁▂▃▄▅▆▇█")

// spark draws numbers from 0 to the largest as bars of eighths.
func spark(n []int64) string {
	most := max(1, slices.Max(n))
	var b strings.Builder
	for _, v := range n {
		b.WriteRune(eighths[(v*8+most-1)/most])
	}
	return b.String()
}

// bar draws a share of 1 in so many cells.
func bar(share float64, cells int) string {
	full := int(min(max(share, 0), 1)*float64(cells) + 0.5)
	return strings.Repeat("█", full) + strings.Repeat("░", cells-full)
}

// times is the table of times, the longest in the last seconds first.
func (s *Snapshot) times(v View) []string {
	rows := map[string][]TimeRow{"layer": s.Layers, "op": s.Ops}[v.By]
	if v.By != "layer" && v.By != "op" {
		v.By, rows = "component", s.Components
	}
	if len(rows) == 0 {
		return nil
	}
	share := func(t TimeRow) float64 { return *cmp.Or(t.Recent, t.Share, new(float64)) }
	rows = slices.SortedStableFunc(slices.Values(rows),
		func(a, b TimeRow) int { return cmp.Compare(share(b), share(a)) })
	table := [][]string{{v.By, " time", " of the run", fmt.Sprintf(" last %d s", RecentSeconds), ""}}
	for _, t := range rows {
		table = append(table, []string{t.Name, nsText(t.NS), percentText(t.Share), percentText(t.Recent),
			bar(share(t), max(0, min(30, v.Width-60)))})
	}
	var b strings.Builder
	present.Table(&b, table)
	return append([]string{""}, strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")...)
}

// text returns the newest text, wrapped.
func (s *Snapshot) text(width int) (lines []string) {
	for _, t := range slices.Backward(s.Texts) { // the newest stays on the screen
		title := "text"
		if t.Seq != nil {
			title += fmt.Sprintf(" of sequence %d", *t.Seq)
		}
		lines = append(lines, "", title)
		for line := range strings.Lines(t.Text) {
			for rest := present.Line(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ")); ; {
				var head string
				head, rest = cutAt(rest, max(1, width))
				if lines = append(lines, head); rest == "" {
					break
				}
			}
		}
	}
	return lines
}

// devices is what the run uses: caches, experts, memory, power, the host; and what was not recorded.
func (s *Snapshot) devices(width int) []string {
	lines := []string{""}
	for _, c := range s.Caches {
		line := fmt.Sprintf("KV %s %d  %s", c.Cache, c.Ctx, c.cells())
		if c.Cells > 0 {
			line += "  " + bar(float64(c.Used)/float64(c.Cells), max(0, min(20, width-60)))
		}
		for i, seq := range c.Sequences {
			line += fmt.Sprintf("%s %d: %d", []string{"  sequence", ","}[min(i, 1)], seq.Seq, seq.Cells)
		}
		lines = append(lines, line)
	}
	if len(s.Experts) > 0 {
		sum := int64(0)
		most := s.Experts[0]
		for _, e := range s.Experts {
			if sum += e.Count; e.Count > most.Count {
				most = e
			}
		}
		lines = append(lines, fmt.Sprintf("experts  %d were chosen, expert %d most: %s of %s choices", len(s.Experts),
			most.Expert, present.Percent(float64(most.Count)/float64(sum)), present.Count(sum)))
	}
	if m := s.Memory; m != nil {
		lines = append(lines, fmt.Sprintf("memory of ggml's backends  %s, at most %s", present.Bytes(m.Live),
			present.Bytes(m.Peak)))
	}
	for _, g := range s.GPUs {
		lines = append(lines, fmt.Sprintf("GPU %d %s  %s W, %s busy, %s used", g.Index, g.Name, rateText(g.PowerW),
			present.Maybe(g.Utilization, func(p float64) string { return present.Percent(p / 100) }),
			present.Maybe(g.MemoryUsed, present.Bytes)))
	}
	for _, z := range s.Zones {
		lines = append(lines, fmt.Sprintf("%s  %s W, %.4g J in the run", z.Domain, present.Digits(z.PowerW),
			z.EnergyJ))
	}
	if h := s.Host; h != nil {
		lines = append(lines, fill("host  ", h.text(), width)...)
	}
	var missing []string
	for _, m := range s.Missing {
		missing = append(missing, fmt.Sprintf("%s (%s)", m.What, m.How))
	}
	return append(lines, fill("not recorded: ", missing, width)...)
}

// text describes the host. Figures of an interval are per second.
func (h *HostNow) text() (parts []string) {
	for _, of := range []string{"cpu", "io", "memory"} {
		if stall, ok := h.Pressure[of]["some"]; ok {
			parts = append(parts, fmt.Sprintf("%s pressure %.1f %%", of, stall.Avg10))
		}
	}
	if h.IntervalS > 0 {
		parts = append(parts,
			present.Seconds(float64(h.OffCPUNS)/1e9/h.IntervalS)+"/s delayed off the CPU",
			present.Count(float64(h.Faults)/h.IntervalS)+" page faults/s")
		if h.Major != nil {
			parts[len(parts)-1] += fmt.Sprintf(" (%s major)", present.Count(float64(*h.Major)/h.IntervalS))
		}
	}
	if h.RSSBytes != nil {
		parts = append(parts, present.Bytes(*h.RSSBytes)+" resident")
	}
	return parts
}

// ended says that recording has ended while the program continues; "" where it has not.
func (s *Snapshot) ended() string {
	if s.Stopped == nil || s.State != StateRunning {
		return ""
	}
	return fmt.Sprintf("recording ended at %s (%s)", s.Stopped.At.Local().Format(time.TimeOnly), s.Stopped.Cause)
}

// Summary is the snapshot in a line.
func (s *Snapshot) Summary() string {
	parts := []string{fmt.Sprintf("%s %s", s.elapsed(), s.State)}
	if ended := s.ended(); ended != "" {
		parts = append(parts, ended)
	}
	parts = append(parts, s.tokens()...)
	for _, c := range s.Caches {
		parts = append(parts, fmt.Sprintf("KV %s %s", c.Cache, c.cells()))
	}
	if len(s.Components) > 0 {
		c := slices.MaxFunc(s.Components, func(a, b TimeRow) int {
			return cmp.Compare(*cmp.Or(a.Recent, new(float64)), *cmp.Or(b.Recent, new(float64)))
		})
		parts = append(parts, fmt.Sprintf("%s %s", c.Name, percentText(cmp.Or(c.Recent, c.Share))))
	}
	if lost := s.lost(); lost != "" {
		parts = append(parts, lost)
	}
	if s.Unread > maxLine {
		parts = append(parts, present.Bytes(s.Unread)+" of the log not read yet")
	}
	if s.Lines == 0 {
		parts = append(parts, "no events yet")
	}
	return strings.Join(parts, ", ")
}

// elapsed is the time from the first event to the snapshot, or to the newest event of a run that has ended.
func (s *Snapshot) elapsed() string {
	end := s.LastNS
	if s.State == StateRunning {
		end = s.UnixNS
	}
	if s.FirstNS == 0 {
		end = 0
	}
	d := time.Duration(max(0, end-s.FirstNS)).Truncate(time.Second)
	return fmt.Sprintf("%d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
}

// tokens are the tokens so far, and how fast they come.
func (s *Snapshot) tokens() (parts []string) {
	for _, p := range s.Phases {
		switch p.Phase {
		case phasePrefill:
			parts = append(parts, present.Count(p.Tokens)+" prompt tokens")
		case phaseDecode:
			parts = append(parts, present.Count(p.Tokens)+" generated")
		}
	}
	if s.Speed != nil {
		parts = append(parts,
			fmt.Sprintf("%s tokens/s in the last %d s", present.Digits(s.Speed.Recent), RecentSeconds))
		if s.Speed.Run != nil {
			parts = append(parts, present.Digits(*s.Speed.Run)+"/s of the time in graphs")
		}
	}
	return parts
}

func (c *CacheNow) cells() string {
	if c.Cells == 0 {
		return fmt.Sprintf("%d cells", c.Used)
	}
	return fmt.Sprintf("%d of %d cells", c.Used, c.Cells)
}

// lost returns what the log and the captured tensors lack; "" where nothing is.
func (s *Snapshot) lost() string {
	var parts []string
	for _, l := range s.Losses {
		parts = append(parts, fmt.Sprintf("%d %s events (%s)", l.Count, l.Kind, l.Cause))
	}
	if s.Captured != nil {
		for _, cause := range slices.Sorted(maps.Keys(s.Captured.Losses)) {
			parts = append(parts, fmt.Sprintf("%d tensors (%s)", s.Captured.Losses[cause], cause))
		}
	}
	if s.BadLines > 0 {
		parts = append(parts, present.Plural(s.BadLines, "line")+" that cannot be read")
	}
	if s.Missed > 0 {
		parts = append(parts, present.Plural(s.Missed, "file")+" of the log, given back unread")
	}
	if len(parts) == 0 {
		return ""
	}
	return "LOST " + strings.Join(parts, ", ")
}
