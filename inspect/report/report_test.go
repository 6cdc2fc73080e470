package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

var update = flag.Bool("update", false, "write the golden files anew")

func judged(t testing.TB, m *made) *Report {
	t.Helper()
	r, err := Make(context.Background(), m.write(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *Report) finding(t testing.TB, cause string) *Finding {
	t.Helper()
	for _, f := range r.Findings {
		if f.Cause == cause {
			return f
		}
	}
	t.Fatalf("%q was not considered", cause)
	return nil
}

// slice is the time that is a share of itself and the rest.
func slice(share float64, rest int64) int64 {
	return int64(math.Round(share / (1 - share) * float64(rest)))
}

// slowRuns are recordings in which a cause has a given share, by the cause.
var slowRuns = map[string]struct {
	limit float64
	slow  func(m *made, share float64)
	says  string // what the verdict contains, with "|" between
}{
	"CPU starvation": {starvedShare, func(m *made, share float64) { m.runnable = share },
		"2 compute threads waited |of 4.00 s for a free CPU in 2 intervals"},
	"throttling by a cgroup": {starvedShare, func(m *made,
		share float64) {
		m.throttled, m.runnable = share, share+1e-3
	},
		"a quota of 1.5 CPUs stopped 2 compute threads for|of 4.00 s, in 18 of its 20 periods (/sys/fs/cgroup/box)"},
	"page faults and reads of files": {faultShare, func(m *made, share float64) { m.stalled = share },
		"of 300 ms at 24 page faults, 6 of them major, with 2.00 MiB read, most on blk.8.attn_q.weight|--mlock"},
	"memory bandwidth": {bandwidthShare, func(m *made, share float64) { m.peak = 10 / share },
		"Nothing stands out but the normal limit of decode: decode moved 10.0 GB/s of 16.6 GB/s|in 200 ms"},
	"prompts in small batches": {smallShare, func(m *made, share float64) {
		all := m.prompts[0]
		m.prompts = [][]int32{all[:16], all[16:32], all[32:48], all[48:]}
		m.promptNS = slice(share, quietNS) / 3
	}, "3 executions of prompts with fewer than 32 tokens|for 48 tokens|Larger batches would"},
	"sequences decoded one by one": {aloneShare, func(m *made, share float64) { m.other = slice(share, quietNS) / 4 },
		"4 executions of one token, each of another sequence"},
	"the recording itself": {recordingShare, func(m *made, share float64) {
		m.lost, m.settings = share, map[string]any{"resource_sample": 1, "resource_level": "VERBOSE"}
	}, "of 1.00 s:|in 4 cuts of graphs|--tap-resource-sample auto would"},
	"prompts processed again": {againShare, func(m *made, share float64) { m.again = slice(share, quietNS) },
		"64 of 128 prompt tokens"},
	"a full KV cache": {fullShare, func(m *made, share float64) { m.shift = slice(share, quietNS) },
		"1 graph that move cells|A larger context (-c)"},
	"a fragmented KV cache": {freeShare, func(m *made, share float64) { m.free = share },
		"cells that attention read in each layer were free, below the last cell in use|that graphs read|--kv-unified"},
	"layers on the CPU beside a device": {besideShare, func(m *made, share float64) { m.onCPU = share },
		"nodes took |on rpc0|with 1.00 changes between devices per graph|-ngl"},
	"sampling, grammar and the program's own work": {betweenShare,
		func(m *made, share float64) { m.pause = slice(share, tokenNS) },
		"passed between one decode graph and the next|simpler sampler"},
}

// TestVerdict: each cause stands out alone in a run where its share is at the limit, and does not just below it.
func TestVerdict(t *testing.T) {
	testenv.Once(t, "TestGolden")
	const near = 0.001
	for cause, c := range slowRuns {
		t.Run(cause, func(t *testing.T) {
			for _, share := range []float64{c.limit - near, c.limit + near} {
				m := quiet()
				c.slow(m, share)
				r := judged(t, m)
				f := r.finding(t, cause)
				if f.Share == nil || math.Abs(*f.Share-share) > near/10 || f.Threshold != c.limit ||
					f.StandsOut != (share > c.limit) {
					t.Errorf("share %v: %+v", share, f)
				}
				for _, other := range r.Findings {
					if other != f && other.StandsOut {
						t.Errorf("share %v: %s stands out, too: %+v", share, other.Cause, other)
					}
				}
				if !f.StandsOut {
					if want := "Nothing stands out among the 12 causes that could be judged."; r.Verdict != want {
						t.Errorf("share %v: %q", share, r.Verdict)
					}
					continue
				}
				for _, word := range strings.Split(c.says, "|") {
					if !strings.Contains(r.Verdict, word) {
						t.Errorf("%q lacks %q", r.Verdict, word)
					}
				}
			}
		})
	}
	for _, cause := range causes {
		f := cause(&Run{})
		if _, ok := slowRuns[f.Cause]; !ok {
			t.Errorf("no run shows %s", f.Cause)
		}
		if f.Share != nil || f.NotJudged == "" || f.StandsOut {
			t.Errorf("of nothing: %+v", f)
		}
	}
}

// TestNotRecorded: where files are absent the flag is named that records them, and nothing else is judged from them.
func TestNotRecorded(t *testing.T) {
	const events = "--tap-resource-level"
	for name, want := range map[string]map[string]string{
		rundir.SystemName: {"CPU starvation": "--tap-host system", "throttling by a cgroup": "--tap-host system"},
		rundir.LivesName:  {"a fragmented KV cache": "--tap-kv"},
		rundir.WaitsName:  {"page faults and reads of files": "--tap-host waits"},
		rundir.EventsName: {"memory bandwidth": events, "prompts in small batches": events,
			"sequences decoded one by one": events, "prompts processed again": events, "a full KV cache": events,
			"sampling, grammar and the program's own work": events, "layers on the CPU beside a device": events,
			"a fragmented KV cache": events},
	} {
		m := quiet()
		m.without = []string{name}
		for _, f := range judged(t, m).Findings {
			if word := want[f.Cause]; (f.Share == nil) != (word != "") || !strings.Contains(f.NotJudged, word) {
				t.Errorf("without %s: %+v", name, f)
			}
		}
	}
	run := readRun(t, quiet().write(t))
	run.Resources.Placement = nil // no execution was timed inside
	if f := besideDevice(run); f.Share != nil || !strings.Contains(f.NotJudged, "DETAILED") {
		t.Errorf("%+v", f)
	}
	run.Resources.Memory.Types = []*resources.MemoryType{{Type: "ram"}}
	if f := besideDevice(run); f.Share == nil || *f.Share != 0 {
		t.Errorf("without a device: %+v", f)
	}
	run.KV, run.State = nil, resources.StateRunning
	run.Metadata = &rundir.Metadata{Config: map[string]any{"recorders": []any{"kv"}}}
	if f := fragmented(run); f.Share != nil || strings.Contains(f.NotJudged, "--tap-kv") {
		t.Errorf("of a live run: %+v", f)
	}
	m := quiet()
	m.free = 0.5
	run = readRun(t, m.write(t))
	attended := run.KV.Gauges()[0].Attended
	for attended.OfGraphs = 7; attended.Graphs <= 7; attended.Graphs++ {
		f := fragmented(run)
		if isPart := strings.HasPrefix(f.NotJudged, fmt.Sprintf("cells that attention read are known of %d of 7 graphs",
			attended.Graphs)); isPart != (attended.Graphs < 7) || isPart != (f.Share == nil) {
			t.Errorf("cells of some graphs: %+v", f)
		}
	}
	for _, more := range []string{
		`{"event":"level","level":"OFF","previous":"VERBOSE","source":"measured"}`,
		`{"event":"loss","kind":"graph_execution","cause":"rate","count":7,"source":"measured"}`,
		`{"event":"graph_execution","exec":99,"phase":"decode","tokens":1,"node_count":1,"ops_without_bytes":3,` +
			`"source":"measured"}`,
	} {
		m := quiet()
		m.free, m.more = 0.5, more+"\n"
		if f := judged(t, m).finding(t, "a fragmented KV cache"); f.Share != nil || f.NotJudged == "" {
			t.Errorf("bytes of some graphs: %s: %+v", more, f)
		}
	}
	m = quiet()
	m.peak = 0
	if f := judged(t, m).finding(t, "memory bandwidth"); !strings.Contains(f.NotJudged, "doctor --roofline") {
		t.Errorf("%+v", f)
	}
	m = quiet()
	m.more = `{"event":"memory_allocation","resource_id":"cuda0_memory_layer_-1_weights_1","buffer_id":1,` +
		`"component_type":"weights","layer_id":-1,"allocation_bytes":1000,"memory_type":"vram","source":"measured"}` + "\n"
	if f := judged(t, m).finding(t, "memory bandwidth"); f.Share != nil || !strings.Contains(f.NotJudged, "a device") {
		t.Errorf("on a device: %+v", f)
	}
}

// TestNotBlamed: what resembles a cause and is none has no share.
func TestNotBlamed(t *testing.T) {
	for name, c := range map[string]struct {
		cause string
		set   func(*made)
	}{
		"faults of threads that were pre-empted": {"page faults and reads of files",
			func(m *made) { m.stalled, m.preempted = 0.5, 1 }},
		"the last part of a prompt": {"prompts in small batches", func(m *made) {
			all := m.prompts[0]
			m.prompts, m.promptNS = [][]int32{all[:48], all[48:]}, 1
		}},
		"another prompt": {"prompts processed again", func(m *made) {
			m.prompts = append(m.prompts, m.prompts[0]) // the same tokens after others
		}},
	} {
		m := quiet()
		c.set(m)
		if f := judged(t, m).finding(t, c.cause); f.Share == nil || *f.Share != 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestThrottledPart: what a quota explains of the waiting is throttling, and the rest starvation. Where the quota
// explains most, it alone is named.
func TestThrottledPart(t *testing.T) {
	for name, c := range map[string]struct {
		waited, stopped float64
		cpus            int
		throttled       float64 // -1: not judged
		starves         bool
	}{
		"no group is seen":                {0.5, -1, 2, -1, true},
		"no quota":                        {0.5, 0, 2, 0, true},
		"a quota, and others":             {0.5, 0.2, 2, 0.2, true},
		"mostly a quota":                  {0.5, 0.3, 2, 0.3, false},
		"other processes are stopped too": {0.2, 0.9, 2, 0.2, false},
		"two threads in one queue":        {0.8, 0.3, 1, 0.6, false},
		"the CPUs are not known":          {0.5, 0.2, 0, 0.2, true},
	} {
		m := quiet()
		m.runnable, m.throttled, m.cpus = c.waited, c.stopped, c.cpus
		r := judged(t, m)
		quota, others := r.finding(t, "throttling by a cgroup"), r.finding(t, "CPU starvation")
		if (quota.Share == nil) != (c.throttled < 0) || quota.Share != nil &&
			math.Abs(*quota.Share-c.throttled) > 1e-9 ||
			math.Abs(*others.Share-(c.waited-max(c.throttled, 0))) > 1e-9 || others.StandsOut != c.starves ||
			strings.Contains(r.Verdict, "free CPU") != c.starves {
			t.Errorf("%s: throttled %+v, starved %+v: %s", name, quota, others, r.Verdict)
		}
	}
}

// TestShortRun: in intervals that have little but loading, threads that load are not taken for compute threads.
func TestShortRun(t *testing.T) {
	m := quiet()
	m.runnable, m.phases = 0.9, map[string]rundir.PhaseUse{decode: {NS: 999 * ms}} // of two seconds
	if f := judged(t, m).finding(t, "CPU starvation"); f.Share != nil || !strings.Contains(f.NotJudged,
		"graphs took 999 ms of the 2.00 s in which threads computed") {
		t.Errorf("%+v", f)
	}
	for _, phases := range []map[string]rundir.PhaseUse{{decode: {NS: 1000 * ms}}, nil} { // nil: 1.3 s by the events
		m := quiet()
		m.runnable, m.phases = 0.9, phases
		if f := judged(t, m).finding(t, "CPU starvation"); !f.StandsOut {
			t.Errorf("%v: %+v", phases, f)
		}
	}
}

// TestUnreported: an execution whose tokens or time were not reported is not taken for the one before.
func TestUnreported(t *testing.T) {
	m := quiet()
	m.again = promptNS
	m.events.Reset()
	line(t, &m.events, resource.Graph{Header: m.head(resource.KindGraph), Exec: 90, Phase: prefill, Tokens: 64,
		DurationNS: ptr(promptNS)})
	line(t, &m.events, resource.Graph{Header: m.head(resource.KindGraph), Exec: 91, Phase: decode, Tokens: 1})
	m.more, m.events = m.events.String(), strings.Builder{}
	f := judged(t, m).finding(t, "prompts processed again")
	if want := float64(promptNS) / float64(quietNS+2*promptNS); math.Abs(*f.Share-want) > 1e-6 {
		t.Errorf("%v, want %v", *f.Share, want)
	}
}

// TestAgainOfRequests: prompts that slots compute together take the time of their graphs once, however many requests
// waited for it.
func TestAgainOfRequests(t *testing.T) {
	s := &steps{contexts: map[uint32]*following{}, seqs: map[sequence][]uint64{}, seen: map[uint64]bool{}}
	for _, n := range []int{8, 6} { // of 8 tokens, the others generated
		s.addEvent(&resource.Graph{Phase: prefill, Tokens: 8, PrefillTokens: &n, DurationNS: ptr(int64(4000))})
	}
	s.addEvent(&resource.Graph{Phase: decode, Tokens: 1, PrefillTokens: ptr(0), DurationNS: ptr(int64(2000))})
	r := &Run{steps: s, Resources: &resources.Report{GraphNS: 10_000}, Requests: &resources.Requests{}}
	for range 2 {
		r.Requests.All = append(r.Requests.All, kvcache.Request{Computed: 7, Cause: kvcache.CauseOff, Again: 5,
			CostNS: 7000 * 5 / 7})
	}
	f := promptAgain(r)
	if want := 0.7 * 10 / 14; math.Abs(*f.Share-want) > 1e-9 || !strings.Contains(f.Evidence, "10 of 14 computed") ||
		!strings.Contains(f.Evidence, "5.00 µs of their graphs") {
		t.Errorf("share %v, want %v: %s", *f.Share, want, f.Evidence)
	}
}

// TestCold: where weights are read page by page because a flag asked for it, the remedy is to drop it.
func TestCold(t *testing.T) {
	m := quiet()
	m.stalled, m.settings = 0.5, map[string]any{"cold": "on"}
	if r := judged(t, m); !strings.Contains(r.Verdict, "50.0 % of the time in graphs. Recording without --tap-cold") {
		t.Error(r.Verdict)
	}
}

// TestOrder: the largest share comes first, the next one second; what is normal comes after what is not.
func TestOrder(t *testing.T) {
	m := quiet()
	m.stalled, m.runnable, m.lost, m.peak = 0.41, 0.2, 0.3, 10
	r := judged(t, m)
	for i, want := range []string{"page faults and reads of files", "the recording itself", "CPU starvation",
		"memory bandwidth"} {
		if r.Findings[i].Cause != want || !r.Findings[i].StandsOut {
			t.Errorf("%d: %+v, want %s", i, r.Findings[i], want)
		}
	}
	if !strings.HasPrefix(r.Verdict, "Page faults and reads of files: ") ||
		!strings.Contains(r.Verdict, ", 41.0 % of the time in graphs. ") ||
		!strings.Contains(r.Verdict, " Next is the recording itself: ") ||
		!strings.HasSuffix(r.Verdict, ", 30.0 % of the wall time.") || strings.Contains(r.Verdict, "starvation") {
		t.Error(r.Verdict)
	}
}

// TestNotes: what the figures lack is stated.
func TestNotes(t *testing.T) {
	m := quiet()
	m.more = `{"event":"loss","kind":"graph_execution","cause":"rate","count":7,"source":"measured"}` + "\nnonsense\n"
	dir := m.write(t)
	if err := os.Remove(filepath.Join(dir, rundir.ManifestName)); err != nil {
		t.Fatal(err)
	}
	r, err := Make(context.Background(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(r.Notes, "\n")
	for _, want := range []string{"not sealed", "7 graph_execution events got lost (rate)", "1 line of"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q lacks %q", notes, want)
		}
	}
}

// TestRefused: what is no run directory is an error with a remedy.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{filepath.Join(dir, "b"): "llamatap runs", file: "run directory"} {
		if _, err := Make(context.Background(), path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Make(context.Background(), t.TempDir(), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Make(ctx, quiet().write(t), nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestGolden compares the layouts.
func TestGolden(t *testing.T) {
	m := quiet()
	m.runnable, m.lost, m.peak = 0.5, 0.1, 0
	r := judged(t, m)
	r.Path = "RUN_1"
	r.Notes = []string{"7 graph_execution events got lost (rate): the figures are of the others"}
	var text, document, js bytes.Buffer
	encoder := json.NewEncoder(&js)
	encoder.SetIndent("", "  ")
	if err := errors.Join(r.WriteText(&text), r.WriteMarkdown(&document), encoder.Encode(r)); err != nil {
		t.Fatal(err)
	}
	golden(t, map[string]*bytes.Buffer{"report.txt": &text, "report.md": &document, "report.json": &js})
}

// golden compares texts with files of testdata.
func golden(t *testing.T, texts map[string]*bytes.Buffer) {
	t.Helper()
	for name, got := range texts {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: %v\ngot:\n%s", path, err, got)
		}
	}
}

// TestTokensBeyondTheBound: tokens that find no room are counted.
func TestTokensBeyondTheBound(t *testing.T) {
	s := &steps{held: maxPositions - 1, seqs: map[sequence][]uint64{}, seen: map[uint64]bool{}}
	for pos := range int32(3) {
		s.token(sequence{0, 0}, pos, 7)
	}
	if s.Beyond != 1 || s.held != maxPositions { // the third one follows a token that is not known
		t.Errorf("%d tokens are beyond the bound, %d are held", s.Beyond, s.held)
	}
}

// TestBetweenBesideRecording: a time between graphs that waiting for the recording may explain is no verdict. What it
// cannot explain names it where it is much.
func TestBetweenBesideRecording(t *testing.T) {
	for _, c := range []struct {
		gap, tap, wait    int64
		judged, standsOut bool
		says              string
	}{
		{680, 0, 0, true, true, "on average"}, {680, 10, 490, false, false, "took up to 500 ns of that"},
		{680, 0, 900, false, false, "took up to 680 ns of that"}, {680, 10, 90, true, true, "took up to 100 ns of that"},
		{190, 10, 10, true, false, "on average"},
	} {
		time := rundir.TimeAccount{WallNS: 2000, Tokens: 1, TapNS: c.tap, WaitNS: c.wait}
		f := betweenGraphs(&Run{Metadata: &rundir.Metadata{Account: &rundir.Account{Time: time}},
			steps: &steps{GapNS: c.gap, WallNS: 1000, Gaps: 10}})
		if (f.NotJudged == "") != c.judged || (f.Share != nil) != c.judged || f.StandsOut != c.standsOut ||
			!strings.Contains(f.Evidence+f.NotJudged, c.says) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}

// TestRecordingBesideLoad: time in the tap that may be waiting for a processor is no verdict; waiting for the recording
// is one on any machine.
func TestRecordingBesideLoad(t *testing.T) {
	for _, c := range []struct {
		runnable, tap, wait int64
		judged              bool
	}{{99, 100, 0, true}, {100, 100, 0, false}, {100, 100, 30, true}} {
		time := rundir.TimeAccount{WallNS: 1000, Tokens: 1, TapNS: c.tap, WaitNS: c.wait, RunnableNS: &c.runnable}
		f := recording(&Run{Metadata: &rundir.Metadata{Account: &rundir.Account{Time: time}}})
		if (f.NotJudged == "") != c.judged || f.StandsOut != c.judged {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}
