package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/rundir"
)

// Comparison is what differs between two runs.
type Comparison struct {
	A *Report `json:"a"`
	B *Report `json:"b"`
	// Made is what differs in the model, the machine, the program and the recording: the figures compare these too.
	Made []Made `json:"made_differently"`
	// Speed is tokens per second and the time from token to token. Times are times per token, the largest change
	// first; Others all further figures, the largest relative change first.
	Speed  []*Difference `json:"speed"`
	Times  []*Difference `json:"times_per_token"`
	Others []*Difference `json:"others"`
	// Tensors is how the captured tensors differ; absent where that was not compared. TensorLines are those that
	// differ, the largest relative difference first.
	Tensors     *tensors.Diff       `json:"tensors,omitempty"`
	TensorLines []tensors.DiffGroup `json:"tensors_that_differ,omitempty"`
	Notes       []string            `json:"notes,omitempty"` // what could not be compared
}

// Made is something that two runs were not made alike with; "" where a run does not state it.
type Made struct {
	What string `json:"what"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// The units of differences.
const (
	unitNS    = "ns"
	unitRate  = "tokens/s"
	unitBytes = "bytes"
	unitShare = "share"
	unitCount = "count"
)

// Difference is one figure of two runs.
type Difference struct {
	What   string `json:"what"`
	Unit   string `json:"unit"`
	A      Amount `json:"a"`
	B      Amount `json:"b"`
	Change Amount `json:"change"` // b − a
	// Relative is change ÷ a; absent where a is 0. Differs: the interval of the change does not contain 0, or without
	// one, the change is not 0.
	Relative *float64 `json:"relative,omitempty"`
	Differs  bool     `json:"differs"`
}

// Amount is a figure with half of its 95 % interval; absent for one that a run has only once.
type Amount struct {
	Value float64  `json:"value"`
	Half  *float64 `json:"half_interval,omitempty"`
}

// allGraphs ends the name of the time of whole graphs.
const allGraphs = ", graphs"

func amountOf(value, half float64, ok bool) Amount {
	if !ok {
		return Amount{Value: value}
	}
	return Amount{value, &half}
}

// differ compares two means.
func differ(what, unit string, a, b resources.Mean) *Difference {
	d := &Difference{What: what, Unit: unit}
	for _, side := range []struct {
		to *Amount
		of resources.Mean
	}{{&d.A, a}, {&d.B, b}} {
		half, ok := side.of.Half()
		*side.to = amountOf(side.of.Value, half, ok)
	}
	change, half, ok := a.Change(b)
	d.Change, d.Differs = amountOf(change, half, ok), math.Abs(change) > half
	if a.Value != 0 {
		d.Relative = new(change / a.Value)
	}
	return d
}

// maxCompared bounds the captured bytes of a run whose tensors are compared.
const maxCompared = 256 << 20

// comparedOnce are figures that a run has one of.
var comparedOnce = []func(c *Comparison, a, b *Run){compareMemory, compareReuse, compareCuts, compareFaults}

// Compare compares two runs. It returns early when ctx is done.
func Compare(ctx context.Context, a, b *Run) (*Comparison, error) {
	c := &Comparison{A: a.Report(), B: b.Report(), Made: madeDifferently(a, b), Speed: []*Difference{},
		Times: []*Difference{}, Others: []*Difference{}}
	if err := c.times(ctx, a, b); err != nil {
		return nil, err
	}
	c.causes()
	for _, compare := range comparedOnce {
		compare(c, a, b)
	}
	slices.SortStableFunc(c.Times, func(x, y *Difference) int {
		return cmp.Compare(math.Abs(y.Change.Value), math.Abs(x.Change.Value))
	})
	slices.SortStableFunc(c.Others, func(x, y *Difference) int { return cmp.Compare(y.size(), x.size()) })
	return c, c.tensors(ctx, a, b)
}

// size is the relative change; the largest where it is of 0.
func (d *Difference) size() float64 {
	switch {
	case d.Relative != nil:
		return math.Abs(*d.Relative)
	case d.Differs:
		return math.Inf(1)
	}
	return 0
}

func (c *Comparison) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.Notes, text) {
		c.Notes = append(c.Notes, text)
	}
}

// noteMissing notes what only one run has, or neither, and reports whether it cannot be compared.
func (c *Comparison) noteMissing(what, remedy string, a, b bool) bool {
	switch {
	case a && b:
		return false
	case a:
		c.note("b has no %s: %s", what, remedy)
	case b:
		c.note("a has no %s: %s", what, remedy)
	default:
		c.note("neither run has %s: %s", what, remedy)
	}
	return true
}

// times compares speeds, and times per token.
func (c *Comparison) times(ctx context.Context, a, b *Run) error {
	if c.noteMissing("resource events", "record with --tap-resource-level", a.Resources != nil, b.Resources != nil) {
		return nil
	}
	var paces [2]*resources.Paces
	for i, run := range []*Run{a, b} {
		var err error
		if paces[i], err = resources.ReadPaces(ctx, run.Path); err != nil {
			return err
		}
	}
	all := maps.Clone(paces[0].Phases)
	maps.Copy(all, paces[1].Phases)
	for _, phase := range slices.Sorted(maps.Keys(all)) {
		x, y := paces[0].Phases[phase], paces[1].Phases[phase]
		if c.noteMissing("graphs of "+phase, "it computed none", x != nil, y != nil) {
			continue
		}
		whole := resources.Part{}
		p, q := x.Graphs.PerToken(whole), y.Graphs.PerToken(whole)
		c.Speed = append(c.Speed, differ(phase, unitRate, p.Inverse(1e9), q.Inverse(1e9)))
		c.Times = append(c.Times, differ(phase+allGraphs, unitNS, p, q))
		c.parts(phase, &x.Inside, &y.Inside)
	}
	if x, y := &paces[0].Latency, &paces[1].Latency; x.Tokens > 0 && y.Tokens > 0 {
		c.Speed = append(c.Speed, differ("from token to token", unitNS, x.PerToken(resources.Part{}),
			y.PerToken(resources.Part{})))
	}
	return nil
}

// parts compares the time of components, layers and ops. One that a run does not have took no time in it.
func (c *Comparison) parts(phase string, a, b *resources.Series) {
	if c.noteMissing("graphs of "+phase+" that were timed inside",
		"record with --tap-resource-level DETAILED, or --tap-resource-sample 1", a.Tokens > 0, b.Tokens > 0) {
		return
	}
	for _, by := range []string{resources.ByComponent, resources.ByLayer, resources.ByOp} {
		names := map[string]bool{}
		has := func(s *resources.Series) (any bool) {
			for part := range s.NS {
				if part.By == by {
					names[part.Name], any = true, true
				}
			}
			return any
		}
		if inA, inB := has(a), has(b); c.noteMissing("times by "+by, "record with --tap-resource-level VERBOSE", inA,
			inB) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			part := resources.Part{By: by, Name: name}
			what := fmt.Sprintf("%s, %s %s", phase, by, name)
			if part.By == resources.ByLayer && name == "-1" {
				what = phase + ", in no layer"
			}
			c.Times = append(c.Times, differ(what, unitNS, a.PerToken(part), b.PerToken(part)))
		}
	}
}

// single compares figures that each run has once.
func (c *Comparison) single(what, unit string, a, b float64) {
	c.Others = append(c.Others, differ(what, unit, resources.Mean{Value: a}, resources.Mean{Value: b}))
}

// causes compares the shares of causes that stand out in a run, of waiting for a CPU, and of the overhead.
func (c *Comparison) causes() {
	always := []string{causeStarvation, causeThrottling, causeRecording}
	for _, x := range c.A.Findings {
		for _, y := range c.B.Findings {
			switch {
			case x.Cause != y.Cause:
			case x.Share != nil && y.Share != nil:
				if x.StandsOut || y.StandsOut || slices.Contains(always, x.Cause) {
					c.single(fmt.Sprintf("%s, of %s", x.Cause, x.Of), unitShare, *x.Share, *y.Share)
				}
			case x.StandsOut:
				c.note("%s stands out in a, and is not judged in b: %s", x.Cause, y.NotJudged)
			case y.StandsOut:
				c.note("%s stands out in b, and is not judged in a: %s", y.Cause, x.NotJudged)
			}
		}
	}
}

// compareMemory compares what backends allocated.
func compareMemory(c *Comparison, runA, runB *Run) {
	a, b := runA.Resources, runB.Resources
	if a == nil || b == nil {
		return
	}
	if x, y := &a.Memory, &b.Memory; x.Allocations > 0 && y.Allocations > 0 {
		c.single("memory of ggml at most", unitBytes, float64(x.Peak), float64(y.Peak))
		of := func(m *resources.MemoryRow) map[string]float64 {
			by := map[string]float64{}
			for _, t := range m.Types {
				by[t.Type] = float64(t.Allocated)
			}
			return by
		}
		c.compareByName("memory allocated as ", unitBytes, of(x), of(y))
	}
	if len(a.Caches)+len(b.Caches) == 0 ||
		c.noteMissing("events of the KV cache", "record with --tap-resource-level DETAILED", len(a.Caches) > 0,
			len(b.Caches) > 0) {
		return
	}
	cells := func(r *resources.Report, figure func(*resources.CacheRow) float64) map[string]float64 {
		by := map[string]float64{}
		for _, cache := range r.Caches {
			by[fmt.Sprintf("context %d, %s %s", cache.Ctx, cache.Type, cache.Cache)] = figure(cache)
		}
		return by
	}
	c.compareByName("cells in use at most, ", unitCount,
		cells(a, func(c *resources.CacheRow) float64 { return float64(c.Peak) }),
		cells(b, func(c *resources.CacheRow) float64 { return float64(c.Peak) }))
	c.compareByName("cells evicted, ", unitCount,
		cells(a, func(c *resources.CacheRow) float64 { return float64(c.Evicted) }),
		cells(b, func(c *resources.CacheRow) float64 { return float64(c.Evicted) }))
}

// compareByName compares figures by name; one that a run does not have is 0.
func (c *Comparison) compareByName(what, unit string, a, b map[string]float64) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c.single(what+name, unit, a[name], b[name])
	}
}

// compareReuse compares how much of what prompts needed was in the KV cache.
func compareReuse(c *Comparison, a, b *Run) {
	if a.KV == nil || b.KV == nil {
		return
	}
	x, okA := a.KV.Last.Reuse.Ratio()
	y, okB := b.KV.Last.Reuse.Ratio()
	if okA && okB {
		c.single("cells that prompts found in the KV cache, of those needed", unitShare, x, y)
	}
}

// compareCuts compares how often recording cut graphs.
func compareCuts(c *Comparison, a, b *Run) {
	perToken := func(r *Run) (cuts float64, ok bool) {
		if r.Metadata == nil || r.Metadata.Account == nil || r.Metadata.Account.Time.Tokens == 0 {
			return 0, false
		}
		t := &r.Metadata.Account.Time
		return float64(t.Cuts) / float64(t.Tokens), true
	}
	x, okA := perToken(a)
	y, okB := perToken(b)
	if okA && okB {
		c.single("cuts of graphs by recording, per token", unitCount, x, y)
	}
}

// compareFaults compares page faults within the graphs of prompts and generated tokens.
func compareFaults(c *Comparison, a, b *Run) {
	if c.noteMissing("waits for files", "record with --tap-host waits", a.Waits != nil, b.Waits != nil) {
		return
	}
	perToken := func(r *Run) (faults, major, read float64) {
		var tokens float64
		for i := range r.Waits.Phases {
			if p := &r.Waits.Phases[i]; p.Phase == prefill || p.Phase == decode {
				tokens += float64(p.Tokens)
				faults, major, read = faults+float64(p.Faults), major+float64(p.Major), read+float64(p.ReadBytes)
			}
		}
		tokens = max(tokens, 1)
		return faults / tokens, major / tokens, read / tokens
	}
	faultsA, majorA, readA := perToken(a)
	faultsB, majorB, readB := perToken(b)
	c.single("page faults per token", unitCount, faultsA, faultsB)
	c.single("major page faults per token", unitCount, majorA, majorB)
	c.single("bytes read from files per token", unitBytes, readA, readB)
}

// tensors compares captured tensors, of runs that are not too large for it.
func (c *Comparison) tensors(ctx context.Context, a, b *Run) error {
	var runs [2]*tensors.Run
	for i, run := range []*Run{a, b} {
		if m := run.Metadata; m != nil && m.Account != nil && m.Account.Captured.Bytes > maxCompared {
			c.note("the tensors are more than %d MiB: 'llamatap diff' compares them", maxCompared>>20)
			return nil
		}
		opened, err := tensors.Open(run.Path)
		if err == nil {
			defer opened.Close()
			runs[i], err = opened, tensors.Comparable(opened)
		}
		switch {
		case errors.Is(err, tensors.ErrNotARun):
		case err != nil:
			c.note("%v", err)
			return nil
		}
	}
	if runs[0] == nil && runs[1] == nil ||
		c.noteMissing("captured tensors", "record with --tap-tensor", runs[0] != nil, runs[1] != nil) {
		return nil
	}
	groups, err := tensors.NewDiffGroups(runs[0], tensors.DiffByTensor)
	if err != nil {
		return err
	}
	d, err := tensors.Compare(ctx, runs[0], runs[1], tensors.DiffOptions{}, groups.Add)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.note("%v", err)
		return nil
	}
	c.Tensors = d
	c.TensorLines = slices.DeleteFunc(groups.Lines(), func(g tensors.DiffGroup) bool {
		return g.Max == 0 && g.NonFinite == 0
	})
	slices.SortStableFunc(c.TensorLines, func(x, y tensors.DiffGroup) int {
		return cmp.Compare(y.Relative(), x.Relative())
	})
	return nil
}

// madeDifferently lists what differs in how two runs were made.
func madeDifferently(a, b *Run) []Made {
	differences := []Made{}
	x, y := making(a), making(b)
	for i := range x {
		if x[i].A != y[i].A {
			differences = append(differences, Made{x[i].What, x[i].A, y[i].A})
		}
	}
	if p, q := ownFlags(a, b), ownFlags(b, a); p != q {
		differences = append(differences, Made{"command", p, q})
	}
	of, other := a.settings(), b.settings()
	names := maps.Clone(of)
	if names == nil {
		names = map[string]rundir.Setting{}
	}
	maps.Copy(names, other)
	delete(names, "out") // where a run is changes nothing of it
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if p, q := of[name].String(), other[name].String(); p != q {
			differences = append(differences, Made{"recording: " + name, p, q})
		}
	}
	return differences
}

// ownFlags are the flags in the command of a run, with their values, that the other one's does not have.
func ownFlags(r, other *Run) string {
	flags := func(r *Run) (all []string) {
		if r.Metadata == nil {
			return nil
		}
		for _, word := range r.Metadata.Command {
			if n := len(all); n == 0 || strings.HasPrefix(word, "-") {
				all = append(all, word)
			} else {
				all[n-1] += " " + word
			}
		}
		return slices.DeleteFunc(all, func(flag string) bool { return strings.HasPrefix(flag, "--tap-out") })
	}
	theirs := flags(other)
	return strings.Join(slices.DeleteFunc(flags(r), func(f string) bool { return slices.Contains(theirs, f) }), " ")
}

// contextText is the size of a context.
func contextText(c *rundir.Context) string {
	return fmt.Sprintf("n_ctx %d, n_batch %d, n_ubatch %d, n_seq_max %d, flash_attn %s", c.NCtx, c.NBatch, c.NUBatch,
		c.NSeqMax, cmp.Or(c.FlashAttn, "unknown"))
}

// making says in the field A of each entry how a run was made. Two runs have the same entries.
func making(r *Run) []Made {
	m := r.Metadata
	if m == nil {
		m = &rundir.Metadata{}
	}
	number := func(n int64) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	var contexts []string
	for _, c := range m.Contexts {
		contexts = append(contexts, contextText(&c))
	}
	var prompt, generated int64
	if m.Tokens != nil {
		prompt, generated = m.Tokens.Prompt, m.Tokens.Generated
	}
	levels := ""
	if r.Resources != nil {
		levels = strings.Join(r.Resources.Levels, ", ")
	}
	return []Made{
		{"state", string(r.State), ""},
		{"model", m.Model.Name, ""}, {"model's architecture", m.Model.Arch, ""},
		{"model's file type", m.Model.FileType, ""}, {"model's bytes", number(m.Model.SizeBytes), ""},
		{"model's SHA-256", m.Model.SHA256, ""},
		{"llama.cpp", strings.TrimSpace(m.Llama.Version + " ggml " + m.Llama.GGML), ""},
		{"backends", strings.Join(m.Llama.Backends, ", "), ""}, {"llamatap", m.Llamatap, ""},
		{"CPU", m.Host.CPU, ""}, {"cores", number(int64(m.Host.Cores)), ""},
		{"machine's memory in bytes", number(m.Host.MemoryBytes), ""}, {"kernel", m.Host.Kernel, ""},
		{"contexts", strings.Join(contexts, "; "), ""}, {"prompt tokens", number(prompt), ""},
		{"generated tokens", number(generated), ""}, {"resource levels", levels, ""},
	}
}
