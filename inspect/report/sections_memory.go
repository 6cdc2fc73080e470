package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/present"
)

// The bytes up to which files are read for the report. A larger one is named with the command that reads it.
const (
	maxTensorBytes = 1 << 30 // in the element type that is stored
	maxTraceBytes  = 64 << 20
)

// truncationNote says so of data of a recorder.
func (r *Run) truncationNote(what string, most int64) string {
	for _, d := range r.data {
		if d.What == what && d.Bytes > most {
			return fmt.Sprintf("%s of %s are more than the %s that a report reads: %s", upper(d.What),
				present.Bytes(d.Bytes), present.Bytes(most), d.Command)
		}
	}
	return ""
}

// maxLives bounds the lives of blocks that are drawn.
const maxLives = 4096

// kvSection is what the KV cache held.
func kvSection(ctx context.Context, r *Run, over *tracks) (*section, error) {
	s := &section{ID: "kv", Title: "KV cache"}
	if r.KV == nil {
		s.Missing = upper(r.noKV())
		return s, nil
	}
	for _, c := range r.KV.Timeline {
		at := &curve{Name: "used", Line: true}
		n := len(c.Cells)
		for i, cells := range c.Cells {
			mid := int64((float64(i) + 0.5) / float64(n) * r.KV.Seconds * 1e9)
			at.X, at.Y = append(at.X, over.unixSeconds(r.KV.BeginUnixNS+mid)), append(at.Y, cells)
		}
		chart := &figure{Kind: drawnLines, Title: fmt.Sprintf("Cells in use, context %d, %s cache", c.Ctx, c.Cache),
			X: timeAxis,
			Y: axis{Name: "cells", Unit: "cells"}, Series: []*curve{at}}
		if c.Total > 0 && n > 0 {
			chart.Series = append(chart.Series, &curve{Name: "capacity", Line: true, X: values{at.X[0], at.X[n-1]},
				Y: values{float64(c.Total), float64(c.Total)}})
		}
		if n > 0 && at.X[0]-at.X[0] == 0 {
			chart.Note = fmt.Sprintf("Each value is the mean of %s.", present.Seconds(r.KV.Seconds/float64(n)))
			s.Charts = append(s.Charts, chart)
		}
	}
	blocks, err := lives(ctx, r.Path, over)
	if err != nil {
		r.note("the lives of blocks cannot be read: %v", err)
	} else if blocks != nil {
		s.Charts = append(s.Charts, blocks)
	}
	rows := [][]string{{"sequence", "context", "cache", "blocks", "cells", "ended", "lifetime, median",
		"idle at the end, median"}}
	seconds := func(v *float64) string { return present.Maybe(v, present.Seconds) }
	for _, q := range r.KV.Sequences {
		var ended []string
		for _, why := range slices.Sorted(maps.Keys(q.Ended)) {
			ended = append(ended, fmt.Sprintf("%d %s", q.Ended[why], why))
		}
		rows = append(rows, []string{strconv.FormatInt(q.Seq, 10), strconv.FormatInt(q.Ctx, 10), q.Cache,
			present.Count(q.Lives), present.Count(q.Cells), cmp.Or(strings.Join(ended, ", "), "-"),
			seconds(q.Lifetime.P50),
			seconds(q.Idle.P50)})
		if len(rows) > maxRows {
			s.Text = append(s.Text, fmt.Sprintf("The first %d of %d sequences.", maxRows, len(r.KV.Sequences)))
			break
		}
	}
	s.Tables = append(s.Tables, &titled{"Sequences", rows})
	return s, nil
}

// maxRows bounds a table.
const maxRows = 64

// lives are the blocks of one tensor of the cache over time, a row for each block.
func lives(ctx context.Context, dir string, over *tracks) (*figure, error) {
	c := &figure{Kind: drawnSpans, Title: "Lives of the cache's blocks, from the first write to the eviction",
		X: timeAxis}
	bySeq, rows := map[int64]*curve{}, map[int64]int{}
	var blocks []int64
	var first *memory.Life // its tensor is drawn
	n := 0
	end := over.seconds(over.End)
	err := memory.EachLife(ctx, dir, func(l *memory.Life) error {
		if first == nil {
			first = new(*l)
			if c.Title += fmt.Sprintf(" (%s of layer %d", l.KV, l.Layer); l.Ctx > 0 {
				c.Title += fmt.Sprintf(", context %d", l.Ctx)
			}
			c.Title += ")"
		}
		if l.Ctx != first.Ctx || l.Layer != first.Layer || l.KV != first.KV || l.WriteNS == 0 {
			return nil
		}
		if n++; n > maxLives {
			return nil
		}
		s := bySeq[l.Seq]
		if s == nil {
			s = &curve{Name: "sequence " + strconv.FormatInt(l.Seq, 10)}
			if l.Seq < 0 {
				s.Name = "no known sequence"
			}
			bySeq[l.Seq] = s
		}
		if _, ok := rows[l.Block]; !ok {
			rows[l.Block] = 0
			blocks = append(blocks, l.Block)
		}
		from, to := over.unixSeconds(l.WriteNS), end
		if l.EndNS > 0 {
			to = over.unixSeconds(l.EndNS)
		}
		s.X, s.W, s.Row = append(s.X, from), append(s.W, max(0, to-from)), append(s.Row, int(l.Block))
		s.Text = append(s.Text, fmt.Sprintf("cells %d to %d, %s", l.Cell, l.End-1, present.Plural(l.Reads, "read")))
		return nil
	})
	if err != nil || n == 0 || over.Unix == 0 {
		return nil, err
	}
	slices.Sort(blocks)
	for i, b := range blocks {
		rows[b] = i
		c.Rows = append(c.Rows, "block "+strconv.FormatInt(b, 10))
	}
	for _, seq := range slices.Sorted(maps.Keys(bySeq)) {
		s := bySeq[seq]
		for i := range s.Row {
			s.Row[i] = rows[int64(s.Row[i])]
		}
		c.Series = append(c.Series, s)
	}
	if n > maxLives {
		c.Note = fmt.Sprintf("The first %d of %d lives.", maxLives, n)
	}
	return c, nil
}

// promptsSection is what of the prompts was found in the cache, and what was computed again.
func promptsSection(_ context.Context, r *Run, _ *tracks) (*section, error) {
	s := &section{ID: "prompts", Title: "Prompts, reused or computed again"}
	if r.KV == nil && r.steps == nil {
		s.Missing = "Not recorded: --tap-kv, --tap-resource-level MINIMAL"
		return s, nil
	}
	if r.KV != nil {
		reuse := &r.KV.Last.Reuse
		text := fmt.Sprintf("%s needed %d cells and found %d of them in the KV cache",
			present.Plural(reuse.Requests, "prompt"), reuse.Needed, reuse.Reused)
		if ratio, ok := reuse.Ratio(); ok {
			text += " (" + present.Percent(ratio) + ")"
		}
		if text += fmt.Sprintf("; %s found something.", present.Plural(reuse.Hits, "prompt")); reuse.Unknown > 0 {
			text += fmt.Sprintf(" Of %s it is not known.", present.Plural(reuse.Unknown, "prompt"))
		}
		s.Text = append(s.Text, text)
	} else {
		s.Text = append(s.Text, "What prompts found in the KV cache: "+r.noKV()+".")
	}
	if r.steps == nil && r.Requests == nil {
		s.Text = append(s.Text, "Which tokens were computed again is not recorded: --tap-resource-level MINIMAL.")
		return s, nil
	}
	s.Text = append(s.Text, r.promptRecomputation().String()+".")
	return s, nil
}

// memorySection is what memory held, and what moved.
func memorySection(ctx context.Context, r *Run, over *tracks) (*section, error) {
	s := &section{ID: "memory", Title: "Memory"}
	if r.Resources != nil && len(r.Resources.Memory.Types) > 0 {
		c := &figure{Kind: drawnBars, Title: "Memory that backends allocated, by type",
			X: axis{Name: "bytes", Unit: "B"}}
		of := &curve{Name: "allocated"}
		for _, t := range r.Resources.Memory.Types {
			c.Rows, of.Y = append(c.Rows, t.Type), append(of.Y, float64(t.Allocated))
		}
		c.Series = []*curve{of}
		s.Charts = append(s.Charts, c)
		s.Text = append(s.Text, fmt.Sprintf("At most %s were allocated at once.",
			present.Bytes(r.Resources.Memory.Peak)))
	}
	if c := over.counters("Memory that backends have allocated", "allocated", "B", func(name string) (string, bool) {
		return "allocated", name == "memory of backends"
	}); c != nil {
		s.Charts = append(s.Charts, c)
	}
	if large := r.truncationNote("memory accesses", maxTraceBytes); large != "" {
		s.Text = append(s.Text, large+".")
		return s, nil
	}
	report, err := memory.Analyze(ctx, r.Path, memory.Options{})
	switch {
	case errors.Is(err, memory.ErrNoTrace) && !r.recorded("memory accesses"):
		s.Text = append(s.Text, "Accesses by region are not recorded: --tap-ledger.")
		return s, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		r.note("the accesses to memory cannot be read: %v", err)
		return s, nil
	}
	if report.GivenBack != "" {
		s.notes = append(s.notes, upper(report.GivenBack)+": the figures of accesses are of the others.")
	}
	c := &figure{Kind: drawnBars, Title: "Bytes that were accessed, by type of region",
		X: axis{Name: "bytes", Unit: "B"}}
	read, written := &curve{Name: "read"}, &curve{Name: "written"}
	rows := [][]string{{"type of region", "regions", "size", "read", "written", "needed for, median", "source"}}
	for i := range report.Types {
		t := &report.Types[i]
		c.Rows = append(c.Rows, t.Type)
		read.Y, written.Y = append(read.Y, float64(t.BytesRead)), append(written.Y, float64(t.BytesWritten))
		needed := "-"
		if t.Retention != nil {
			needed = present.Seconds(t.Retention.P50)
		}
		rows = append(rows, []string{t.Type, strconv.Itoa(t.Regions), present.Bytes(t.Bytes),
			present.Bytes(t.BytesRead),
			present.Bytes(t.BytesWritten), needed, t.Source})
	}
	if len(c.Rows) > 0 {
		c.Series = []*curve{read, written}
		s.Charts = append(s.Charts, c)
		s.Tables = append(s.Tables, &titled{"Types of regions", rows})
	}
	return s, nil
}
