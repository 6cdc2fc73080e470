package report

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/rundir"
)

// The bytes up to which files are read for the report. A larger one is named with the command that reads it.
const (
	maxTensorBytes = 1 << 30 // as the model computed them
	maxTraceBytes  = 64 << 20
)

// beyond says so of data of a recorder.
func (r *Run) beyond(what string, most int64) string {
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
func kvSection(ctx context.Context, r *Run, over *tracks) (*Section, error) {
	s := &Section{ID: "kv", Title: "KV cache"}
	if r.KV == nil {
		s.Missing = "Not recorded: --tap-kv"
		return s, nil
	}
	for _, c := range r.KV.Timeline {
		at := &Series{Name: "used", Line: true}
		n := len(c.Cells)
		for i, cells := range c.Cells {
			mid := int64((float64(i) + 0.5) / float64(n) * r.KV.Seconds * 1e9)
			at.X, at.Y = append(at.X, over.unixSeconds(r.KV.BeginUnixNS+mid)), append(at.Y, cells)
		}
		chart := &Chart{Kind: Lines, Title: fmt.Sprintf("Cells in use, context %d, %s cache", c.Ctx, c.Cache),
			X: timeAxis,
			Y: Axis{Name: "cells", Unit: "cells"}, Series: []*Series{at}}
		if c.Total > 0 && n > 0 {
			chart.Series = append(chart.Series, &Series{Name: "capacity", Line: true, X: values{at.X[0], at.X[n-1]},
				Y: values{float64(c.Total), float64(c.Total)}})
		}
		if n > 0 && at.X[0]-at.X[0] == 0 {
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
	s.Tables = append(s.Tables, &Table{"Sequences", rows})
	return s, nil
}

// maxRows bounds a table.
const maxRows = 64

// lives are the blocks of one tensor of the cache over time, a row for each block.
func lives(ctx context.Context, dir string, over *tracks) (*Chart, error) {
	c := &Chart{Kind: Spans, Title: "Lives of the cache's blocks, from the first write to the eviction", X: timeAxis}
	bySeq, rows := map[int64]*Series{}, map[int64]int{}
	var blocks []int64
	var layer int64 = -1
	kv, n := "", 0
	end := over.seconds(over.End)
	err := memory.EachLife(ctx, dir, func(l *memory.Life) error {
		if layer < 0 {
			layer, kv = l.Layer, l.KV
			c.Title += fmt.Sprintf(" (%s of layer %d)", kv, layer)
		}
		if l.Layer != layer || l.KV != kv || l.WriteNS == 0 {
			return nil
		}
		if n++; n > maxLives {
			return nil
		}
		s := bySeq[l.Seq]
		if s == nil {
			s = &Series{Name: "sequence " + strconv.FormatInt(l.Seq, 10)}
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
		s.Text = append(s.Text, fmt.Sprintf("cells %d to %d, %s", l.Cell, l.End-1, plural(l.Reads, "read")))
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
func promptsSection(_ context.Context, r *Run, _ *tracks) (*Section, error) {
	s := &Section{ID: "prompts", Title: "Prompts, reused or computed again"}
	if r.KV == nil && r.steps == nil {
		s.Missing = "Not recorded: --tap-kv, --tap-resource-level MINIMAL"
		return s, nil
	}
	if r.KV != nil {
		reuse := &r.KV.Last.Reuse
		text := fmt.Sprintf("%s needed %d cells and found %d of them in the KV cache", plural(reuse.Requests, "prompt"),
			reuse.Needed, reuse.Reused)
		if ratio, ok := reuse.Ratio(); ok {
			text += " (" + present.Percent(ratio) + ")"
		}
		if text += fmt.Sprintf("; %s found something.", plural(reuse.Hits, "prompt")); reuse.Unknown > 0 {
			text += fmt.Sprintf(" Of %s it is not known.", plural(reuse.Unknown, "prompt"))
		}
		s.Text = append(s.Text, text)
	} else {
		s.Text = append(s.Text, "What prompts found in the KV cache is not recorded: --tap-kv.")
	}
	if r.steps == nil {
		s.Text = append(s.Text, "Which tokens were computed again is not recorded: --tap-resource-level MINIMAL.")
		return s, nil
	}
	a := r.steps.Again
	text := fmt.Sprintf("%d of %d prompt tokens were computed after the same tokens as before", a.Tokens,
		r.steps.Prompts)
	if a.Tokens > 0 {
		text += fmt.Sprintf(": %s of their graphs by number", ns(a.NS))
		if r.KV != nil && r.KV.Last.Reuse.Reused == 0 {
			text += ", because no prompt found its beginning in the cache"
		} else if r.KV != nil {
			text += ", although the cache was used: the tokens were in another sequence or had been evicted"
		}
	}
	s.Text = append(s.Text, text+".")
	return s, nil
}

// memorySection is what memory held, and what moved.
func memorySection(ctx context.Context, r *Run, over *tracks) (*Section, error) {
	s := &Section{ID: "memory", Title: "Memory"}
	if r.Resources != nil && len(r.Resources.Memory.Types) > 0 {
		c := &Chart{Kind: Bars, Title: "Memory that backends allocated, by type", X: Axis{Name: "bytes", Unit: "B"}}
		of := &Series{Name: "allocated"}
		for _, t := range r.Resources.Memory.Types {
			c.Rows, of.Y = append(c.Rows, t.Type), append(of.Y, float64(t.Allocated))
		}
		c.Series = []*Series{of}
		s.Charts = append(s.Charts, c)
		s.Text = append(s.Text, fmt.Sprintf("At most %s were allocated at once.",
			present.Bytes(r.Resources.Memory.Peak)))
	}
	if c := over.counters("Memory that backends have allocated", "allocated", "B", func(name string) (string, bool) {
		return "allocated", name == "memory of backends"
	}); c != nil {
		s.Charts = append(s.Charts, c)
	}
	if large := r.beyond("memory accesses", maxTraceBytes); large != "" {
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
	c := &Chart{Kind: Bars, Title: "Bytes that were accessed, by type of region", X: Axis{Name: "bytes", Unit: "B"}}
	read, written := &Series{Name: "read"}, &Series{Name: "written"}
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
		c.Series = []*Series{read, written}
		s.Charts = append(s.Charts, c)
		s.Tables = append(s.Tables, &Table{"Types of regions", rows})
	}
	return s, nil
}

// activationsSection is what was captured of tensors.
func activationsSection(ctx context.Context, r *Run, _ *tracks) (*Section, error) {
	s := &Section{ID: "activations", Title: "Activations"}
	run, err := tensors.Open(r.Path)
	switch {
	case errors.Is(err, tensors.ErrNotARun) && !r.recorded("tensors"):
		s.Missing = "Not recorded: --tap-tensors 'l_out*'"
		return s, nil
	case err != nil:
		r.note("the captured tensors cannot be read: %v", err)
		return s, nil
	}
	defer run.Close()
	sum, err := tensors.Summarize(run, tensors.Filter{})
	if err != nil {
		s.Missing = err.Error()
		return s, nil
	}
	if sum.Packets == 0 {
		s.Missing = "No tensor is in the capture: --tap-tensors 'l_out*'"
		return s, nil
	}
	s.Text = append(s.Text, fmt.Sprintf("%s of %s, %s as the model computed them, %s on disk.",
		plural(sum.Packets, "captured tensor"), plural(sum.Tokens, "token"), present.Bytes(sum.BytesRaw),
		present.Bytes(sum.BytesStored)))
	if sum.BytesRaw > maxTensorBytes {
		s.Text = append(s.Text,
			fmt.Sprintf("They are more than the %s that a report reads: llamatap inspect %s --stats.",
				present.Bytes(maxTensorBytes), r.Path))
	} else if err := tensors.MeasureTensors(ctx, run, tensors.Filter{}, sum, nil); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r.note("statistics of tensors: %v", err)
	} else {
		s.addStatistics(sum)
	}
	if c, err := attentionMap(run); err != nil {
		s.Text = append(s.Text, "Attention: "+err.Error()+".")
	} else if c != nil {
		s.Charts = append(s.Charts, c)
	} else {
		s.Text = append(s.Text, "Attention maps are not recorded: --tap-attention.")
	}
	return s, nil
}

// opNone is the op of a graph's inputs, such as masks and indices, which are no activations.
const opNone = "NONE"

// layerNumber is a layer in a tensor's name.
var layerNumber = regexp.MustCompile(`(-|_l|\.)\d+`)

// addStatistics adds the root mean square of each tensor, and those with the largest values.
func (s *Section) addStatistics(sum *tensors.Summary) {
	heat := &Chart{Kind: Matrix, Title: "Root mean square of the captured values, by layer and tensor",
		Y: Axis{Name: "root mean square"}}
	columns := map[string]int{}
	column := func(t *tensors.Tensor) string { return layerNumber.ReplaceAllString(t.Name, "") }
	type largest struct {
		name string
		most float64
		of   *tensors.Tensor
	}
	var outliers []largest
	var bad, worst uint64
	worstName := ""
	for i := range sum.Layers {
		for k := range sum.Layers[i].Tensors {
			t := &sum.Layers[i].Tensors[k]
			if t.Op == opNone {
				continue
			}
			if _, ok := columns[column(t)]; !ok && len(columns) < maxColumns {
				columns[column(t)] = len(columns)
				heat.Columns = append(heat.Columns, column(t))
			}
			if t.Stats == nil || t.Stats.Moments == nil {
				continue
			}
			bad += t.Stats.NaN + t.Stats.Inf
			if n := t.Stats.NaN + t.Stats.Inf; n > worst {
				worst, worstName = n, t.Name
			}
			outliers = append(outliers, largest{t.Name, max(math.Abs(t.Stats.Min), math.Abs(t.Stats.Max)), t})
		}
	}
	shades := &Series{Name: "root mean square"}
	for i := range sum.Layers {
		row := make(values, len(heat.Columns))
		for k := range row {
			row[k] = math.NaN()
		}
		for k := range sum.Layers[i].Tensors {
			t := &sum.Layers[i].Tensors[k]
			if at, ok := columns[column(t)]; ok && t.Stats != nil && t.Stats.Moments != nil {
				if n := float64(t.Stats.Elements - t.Stats.NaN - t.Stats.Inf); n > 0 {
					row[at] = t.Stats.L2 / math.Sqrt(n)
				}
			}
		}
		heat.Rows = append(heat.Rows, layerName(sum.Layers[i].Layer))
		shades.Y = append(shades.Y, row...)
	}
	if len(outliers) == 0 {
		return
	}
	heat.Series = []*Series{shades}
	s.Charts = append(s.Charts, heat)
	if bad > 0 {
		s.Text = append(s.Text, fmt.Sprintf("%d values are not finite, most of them (%d) in %s.", bad, worst,
			worstName))
	}
	slices.SortStableFunc(outliers, func(a, b largest) int { return cmp.Compare(b.most, a.most) })
	rows := [][]string{{"tensor", "largest magnitude", "mean", "standard deviation", "largest ÷ deviation"}}
	for _, o := range outliers[:min(len(outliers), 12)] {
		ratio := "-"
		if o.of.Stats.Std > 0 {
			ratio = present.Digits(o.most / o.of.Stats.Std)
		}
		rows = append(rows, []string{o.name, present.Digits(o.most), present.Digits(o.of.Stats.Mean),
			present.Digits(o.of.Stats.Std), ratio})
	}
	s.Tables = append(s.Tables, &Table{"Tensors with the largest values", rows})
}

// maxColumns bounds the columns of a matrix, maxAttention the tokens of an attention map.
const (
	maxColumns   = 48
	maxAttention = 96
)

// attentionMap is the first captured layer's, of its first head; nil where there is none.
func attentionMap(run *tensors.Run) (*Chart, error) {
	var notes []struct{ Layer int }
	if run.Metadata == nil || run.Metadata.Extra["attention"] == nil ||
		json.Unmarshal(run.Metadata.Extra["attention"], &notes) != nil || len(notes) == 0 {
		return nil, nil
	}
	m, err := tensors.NewMap(run, tensors.MapOptions{Layer: notes[0].Layer, End: maxAttention})
	if err != nil {
		return nil, err
	}
	c := &Chart{Kind: Matrix, Y: Axis{Name: "weight"},
		Title: fmt.Sprintf("Attention of layer %d, head 0: the first tokens and the cells that they look at",
			notes[0].Layer)}
	var all [][]float32
	err = m.EachRow(func(row *tensors.MapRow) error {
		all = append(all, slices.Clone(row.Weights[:min(len(row.Weights), maxAttention)]))
		c.Rows = append(c.Rows, "token "+strconv.FormatInt(row.Token, 10))
		return nil
	})
	if err != nil {
		return nil, err
	}
	wide := 0
	for _, row := range all {
		for i, w := range row {
			if w > 0 {
				wide = max(wide, i+1)
			}
		}
	}
	for i := range wide {
		c.Columns = append(c.Columns, "cell "+strconv.Itoa(i))
	}
	shades := &Series{Name: "weight"}
	for _, row := range all {
		for i := range wide {
			v := 0.0
			if i < len(row) {
				v = float64(row[i])
			}
			shades.Y = append(shades.Y, v)
		}
	}
	c.Series = []*Series{shades}
	return c, nil
}

// hostSection is what the kernel did meanwhile.
func hostSection(_ context.Context, r *Run, over *tracks) (*Section, error) {
	s := &Section{ID: "host", Title: "Host"}
	add := func(c *Chart) {
		if c != nil {
			s.Charts = append(s.Charts, c)
		}
	}
	add(over.counters("Pressure: share of the time in which some thread of the machine waited", "share of the time",
		"%",
		func(name string) (string, bool) { return strings.CutPrefix(name, "pressure: ") }))
	add(over.counters("Threads: share of the time running or waiting", "share of the time", "%",
		func(name string) (string, bool) { return strings.CutPrefix(name, "thread ") }))
	add(over.counters("Disks: bytes per second", "bytes per second", "B/s", func(name string) (string, bool) {
		disk, op, ok := strings.Cut(name, ": ")
		return name, ok && !strings.Contains(disk, " ") && slices.Contains([]string{"read", "write", "discard"}, op)
	}))
	if w := r.Waits; w != nil {
		rows := [][]string{{"phase", "time", "waited", "faults", "major", "pre-empted", "read"}}
		for i := range w.Phases {
			p := &w.Phases[i]
			rows = append(rows, []string{p.Phase, ns(float64(p.DurationNS)), ns(float64(p.StalledNS)),
				present.Count(p.Faults),
				present.Count(p.Major), ns(float64(p.PreemptedNS)), present.Bytes(p.ReadBytes)})
		}
		s.Tables = append(s.Tables, &Table{"Waits for files, by phase", rows})
		rows = [][]string{{"tensor or file", "waited, all threads", "faults", "major", "read"}}
		for i := range w.Tensors[:min(len(w.Tensors), 12)] {
			t := &w.Tensors[i]
			rows = append(rows, []string{cmp.Or(t.Tensor, t.File), ns(float64(t.WaitNS)), present.Count(t.Faults),
				present.Count(t.Major), present.Bytes(t.ReadBytes)})
		}
		s.Tables = append(s.Tables, &Table{"Where threads waited most", rows})
	}
	if exists, err := r.has(rundir.SystemName); err == nil && exists && len(s.Charts) == 0 {
		s.Text = append(s.Text,
			"Nothing can be drawn over time: no interval ended during the tokens. Record a longer run, or "+
				"a shorter --tap-host-interval.")
	} else if len(s.Charts)+len(s.Tables) == 0 {
		s.Missing = "Not recorded: --tap-host system,waits"
	}
	return s, nil
}

// devicesSection is what GPUs and energy counters reported.
func devicesSection(_ context.Context, r *Run, over *tracks) (*Section, error) {
	s := &Section{ID: "devices", Title: "Devices"}
	for _, c := range []struct{ title, name, unit, suffix, prefix string }{
		{"Power", "power", "W", "power", "power of "},
		{"Utilization of GPUs: share of the time in which some kernel ran", "share of the time", "%", "utilization",
			""},
		{"Memory of GPUs in use, by all processes", "in use", "B", "memory used", ""},
		{"Clock of streaming multiprocessors", "clock", "MHz", "SM clock", ""},
	} {
		if chart := over.counters(c.title, c.name, c.unit, func(name string) (string, bool) {
			if label, ok := strings.CutSuffix(name, c.suffix); ok && strings.HasPrefix(name, "GPU ") {
				return strings.TrimSpace(label), true
			}
			return strings.TrimPrefix(name, "power of "), c.prefix != "" && strings.HasPrefix(name, c.prefix)
		}); chart != nil {
			s.Charts = append(s.Charts, chart)
		}
	}
	if r.Resources != nil && len(r.Resources.Energy) > 0 {
		rows := [][]string{{"device", "phase", "energy", "time", "tokens", "per token", "source"}}
		joule := func(j *float64) string { return present.Maybe(j, present.Digits) }
		for i := range r.Resources.Energy {
			e := &r.Resources.Energy[i]
			rows = append(rows, []string{e.Domain, e.Phase, joule(e.EnergyJ) + " J", ns(float64(e.DurationNS)),
				present.Maybe(e.Tokens, present.Count), joule(e.JoulesPerToken) + " J", e.EnergySource})
		}
		s.Tables = append(s.Tables, &Table{"Energy by phase", rows})
	}
	if len(s.Charts)+len(s.Tables) == 0 {
		s.Missing =
			"Nothing was recorded of devices: --tap-resource-level with a GPU, or on a machine with energy counters (RAPL)"
	}
	return s, nil
}

// lossesSection is what the recording lacks, and what it cost.
func lossesSection(_ context.Context, r *Run, _ *tracks) (*Section, error) {
	s := &Section{ID: "losses", Title: "Losses and validity"}
	switch r.State {
	case resources.StateSealed:
		s.Text = append(s.Text, "The run is sealed: llamatap verify checks it against its manifest.")
	default:
		s.Text = append(s.Text, fmt.Sprintf("The run is not sealed (%s).", r.State))
	}
	m := r.Metadata
	if m == nil {
		s.Text = append(s.Text, "It has no metadata.")
		return s, nil
	}
	if m.Stopped != nil {
		s.Text = append(s.Text, fmt.Sprintf("Recording stopped before the program did: %s.",
			strings.TrimSpace(m.Stopped.Cause+" "+m.Stopped.Error)))
	}
	for _, repair := range m.Repaired {
		s.Text = append(s.Text, "It was repaired: "+strings.Join(repair.What, "; ")+".")
	}
	a := m.Account
	if a == nil {
		s.Text = append(s.Text, "Its metadata have no account of losses.")
		return s, nil
	}
	s.Text = append(s.Text, "Lost: "+present.Losses(a)+".")
	if cost := present.Overhead(a); cost != "" {
		s.Text = append(s.Text, "Recording cost the model "+cost+".")
	}
	rows := [][]string{{"account", "tensors", "bytes"}}
	add := func(what string, packets, size uint64) {
		rows = append(rows, []string{what, strconv.FormatUint(packets, 10), present.Bytes(size)})
	}
	add("selected", a.Selected.Packets, a.Selected.Bytes)
	add("captured", a.Captured.Packets, a.Captured.Bytes)
	for _, l := range a.Lost {
		add("lost: "+l.Cause, l.Packets, l.Bytes)
	}
	s.Tables = append(s.Tables, &Table{"Captured tensors", rows})
	return s, nil
}

// recordingSection is how the run was recorded.
func recordingSection(_ context.Context, r *Run, _ *tracks) (*Section, error) {
	s := &Section{ID: "recording", Title: "How it was recorded"}
	m := r.Metadata
	if m == nil {
		s.Missing = "The run has no metadata: it was ended before they were written"
		return s, nil
	}
	rows := [][]string{{"what", "value"}}
	add := func(what, text string) {
		if text != "" && text != "0" && text != "0 B" {
			rows = append(rows, []string{what, text})
		}
	}
	add("command", strings.Join(m.Command, " "))
	if !m.Created.IsZero() {
		add("began", m.Created.Format("2006-01-02 15:04:05 -0700"))
	}
	if !m.Ended.IsZero() {
		add("took", present.Duration(m.Ended.Sub(m.Created)))
	}
	add("model", strings.TrimSpace(m.Model.Name+" "+m.Model.FileType))
	add("architecture", m.Model.Arch)
	add("model file", m.Model.Path)
	add("parameters", present.Count(m.Model.NParams))
	for _, c := range m.Contexts {
		var parts []string
		for _, p := range []struct {
			name  string
			value uint32
		}{{"n_ctx", c.NCtx}, {"n_batch", c.NBatch}, {"n_ubatch", c.NUBatch}, {"n_seq_max", c.NSeqMax}} {
			if p.value > 0 {
				parts = append(parts, fmt.Sprintf("%s %d", p.name, p.value))
			}
		}
		if c.FlashAttn != "" {
			parts = append(parts, "flash attention "+c.FlashAttn)
		}
		add(fmt.Sprintf("context %d", c.Ctx), strings.Join(parts, ", "))
	}
	add("llama.cpp", m.Llama.Version)
	add("backends", strings.Join(m.Llama.Backends, ", "))
	add("processor", m.Host.CPU)
	add("cores", strconv.Itoa(m.Host.Cores))
	add("memory", present.Bytes(m.Host.MemoryBytes))
	add("system", strings.TrimSpace(m.Host.OS+" "+m.Host.Kernel))
	add("llamatap", m.Llamatap)
	s.Tables = append(s.Tables, &Table{"Run", rows})
	rows = [][]string{{"recorder", "bytes", "command that reads it"}}
	for _, d := range r.data {
		rows = append(rows, []string{d.What, present.Bytes(d.Bytes), d.Command})
	}
	s.Tables = append(s.Tables, &Table{"Files", rows})
	rows = [][]string{{"setting", "value", "from"}}
	settings := r.settings()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if v := settings[name]; v.Source != "" && v.Source != "default" && v.Value != nil {
			rows = append(rows, []string{name, fmt.Sprint(v.Value), v.Source})
		}
	}
	if len(rows) > 1 {
		s.Tables = append(s.Tables, &Table{"Settings that are not the defaults", rows})
	}
	return s, nil
}
