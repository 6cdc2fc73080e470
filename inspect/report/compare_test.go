package report

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv/memrun"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// pair is a recording whose decode has two components, each one op of one layer.
type pair struct {
	slow     float64 // times as long as usual takes attention
	tokens   int
	minimal  bool // no times within graphs
	batch    uint32
	noEvents bool
}

// write makes the run. Times vary from token to token, in every run alike.
func (p pair) write(t testing.TB) string {
	t.Helper()
	var events strings.Builder
	at, exec := int64(1000), uint64(0)
	head := func(kind resource.Kind) resource.Header {
		return resource.Header{Event: kind, MonoNS: at, UnixNS: 1_790_000_000e9 + at, SessionID: "s",
			Ctx: ptr(uint32(0)), Source: resource.Measured}
	}
	line(t, &events, resource.SessionStart{Header: head(resource.KindSessionStart), Version: resource.Version})
	step := func(phase string, n int, attention, mlp int64) {
		exec++
		both := attention + mlp
		for i, ns := range []int64{attention, mlp} {
			if p.minimal {
				break
			}
			line(t, &events, resource.Compute{Header: head(resource.KindCompute), Exec: exec, NodeCount: 1,
				Phase: phase, Operation: []string{"FLASH_ATTN_EXT", "MUL_MAT"}[i], LayerID: i,
				TimeSource: resource.TimeOp, ComponentType: []string{"attention", "mlp"}[i], DurationNS: &ns})
		}
		g := resource.Graph{Header: head(resource.KindGraph), Exec: exec, Phase: phase, Tokens: n, NodeCount: 2,
			DurationNS: &both}
		if !p.minimal {
			g.TimedNS = &both
		}
		line(t, &events, g)
		at += both + ms
	}
	step(prefill, 64, 40*ms, 60*ms)
	for i := range p.tokens {
		latency := 11 * ms
		line(t, &events, resource.OutputToken{Header: head(resource.KindOutputToken), Exec: exec + 1, TokenID: 7,
			Pos: int32(64 + i), SeqID: ptr(int32(0)), LatencyNS: &latency})
		wave := int64(float64(ms) / 20 * math.Sin(float64(i)))
		step(decode, 1, int64(p.slow*float64(4*ms+wave)), 6*ms-wave)
	}
	run := memrun.Run{Model: "never", Files: map[string]string{rundir.EventsName: events.String()},
		Metadata: rundir.Metadata{Version: 1, Model: rundir.Model{Name: "never"}, Losses: []rundir.Loss{},
			Contexts: []rundir.Context{{NCtx: 512, NBatch: p.batch}}}}
	if p.noEvents {
		run.Files = nil
	}
	return run.Write(t, t.TempDir())
}

// compared compares two run directories.
func compared(t testing.TB, a, b string) *Comparison {
	t.Helper()
	var runs [2]*Run
	for i, dir := range []string{a, b} {
		var err error
		if runs[i], err = Read(context.Background(), dir, nil); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Compare(context.Background(), runs[0], runs[1])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// differing are the names of what differs.
func (c *Comparison) differing() (names []string) {
	for _, d := range slices.Concat(c.Speed, c.Times, c.Others) {
		if d.Differs {
			names = append(names, d.What)
		}
	}
	return names
}

var usual = pair{slow: 1, tokens: 100, batch: 512}

// TestPlanted: of two runs in which one component's time differs, that component's time, that of its op, its layer and
// of graphs, and the speed differ, and nothing else; runs of different lengths compare.
func TestPlanted(t *testing.T) {
	base := usual.write(t)
	for _, tokens := range []int{100, 37, 3} {
		slow := usual
		slow.slow, slow.tokens = 1.3, tokens
		c := compared(t, base, slow.write(t))
		want := []string{"decode", "decode, component attention", "decode, layer 0", "decode, op FLASH_ATTN_EXT",
			"decode, graphs"}
		got := c.differing()
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) || len(c.Made) != 0 {
			t.Fatalf("%d tokens: %q and %v differ, want %q", tokens, got, c.Made, want)
		}
		first := c.Times[0]
		if math.Abs(first.Change.Value-1.2*float64(ms)) > 0.05*float64(ms) || first.Change.Half == nil ||
			*first.Change.Half <= 0 || *first.Change.Half > first.Change.Value {
			t.Errorf("%d tokens: %+v is first", tokens, first)
		}
	}
}

// TestSameRun: a run does not differ from a copy of it.
func TestSameRun(t *testing.T) {
	dir := usual.write(t)
	c := compared(t, dir, dir)
	if d := c.differing(); d != nil || len(c.Made) > 0 || len(c.Times) == 0 || len(c.Speed) == 0 {
		t.Errorf("%q, %v differ", d, c.Made)
	}
	var text bytes.Buffer
	if err := c.WriteText(&text); err != nil || !strings.Contains(text.String(), "figures without a difference") ||
		strings.Contains(text.String(), "±") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// TestSettingsDiffer: what two runs were not made alike with is named.
func TestSettingsDiffer(t *testing.T) {
	other := usual
	other.batch = 64
	c := compared(t, usual.write(t), other.write(t))
	if len(c.Made) != 1 || c.Made[0].What != "contexts" || !strings.Contains(c.Made[0].B, "n_batch 64") {
		t.Errorf("%+v", c.Made)
	}
}

// TestUnlike: what only one run has is named with what records it, and the rest compared; a run that is cut off is
// read as far as it goes.
func TestUnlike(t *testing.T) {
	minimal, none := usual, usual
	minimal.minimal, none.noEvents = true, true
	cut := usual.write(t)
	text, err := os.ReadFile(filepath.Join(cut, rundir.EventsName))
	if err == nil {
		err = os.WriteFile(filepath.Join(cut, rundir.EventsName), text[:len(text)/2], 0o600)
	}
	if err == nil {
		err = os.Remove(filepath.Join(cut, rundir.ManifestName))
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir, note string
		times     bool
	}{
		"no times inside": {minimal.write(t),
			"b has no graphs of decode that were timed inside: record with --tap-resource-level DETAILED, " +
				"or --tap-resource-sample 1", true},
		"no events": {none.write(t), "b has no resource events: record with --tap-resource-level", false},
		"cut off":   {cut, "neither run has waits for files: record with --tap-host waits", true},
	} {
		got := compared(t, usual.write(t), c.dir)
		if !slices.Contains(got.Notes, c.note) || (len(got.Times) > 0) != c.times || got.differing() != nil {
			t.Errorf("%s: %q differ, notes %q", name, got.differing(), got.Notes)
		}
	}
}

// TestGoldenComparison compares the layouts.
func TestGoldenComparison(t *testing.T) {
	slow := usual
	slow.slow, slow.batch = 1.3, 64
	c := compared(t, usual.write(t), slow.write(t))
	c.A.Path, c.B.Path = "RUN_A", "RUN_B"
	var text, document, js bytes.Buffer
	encoder := json.NewEncoder(&js)
	encoder.SetIndent("", "  ")
	if err := c.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteMarkdown(&document); err != nil {
		t.Fatal(err)
	}
	if err := encoder.Encode(c); err != nil {
		t.Fatal(err)
	}
	golden(t, map[string]*bytes.Buffer{"compare.txt": &text, "compare.md": &document, "compare.json": &js})
}
