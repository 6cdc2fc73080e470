package report

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv/memrun"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

func ptr[T any](v T) *T { return &v }

// ms is a millisecond in ns.
const ms = int64(1e6)

// The quiet run: a warm-up of a second, which counts nowhere, a prompt of 64 tokens in one execution of 100 ms, then 20
// tokens of 10 ms with 1 ms between them.
const (
	promptNS = 100 * ms
	tokenNS  = 10 * ms
	tokens   = 20
	quietNS  = promptNS + tokens*tokenNS // in graphs
	pauseNS  = 1 * ms
	moved    = 100 * ms // bytes of a token: 10 GB/s
)

// made is a recording that never was.
type made struct {
	prompts [][]int32 // tokens of each execution of the prompt
	// promptNS is how long each but the last of them took; 0: the same
	promptNS  int64
	again     int64   // ns of a second sequence with the prompt's tokens; 0: there is none
	other     int64   // ns of each of four tokens of two sequences in alternation; 0: there are none
	onCPU     float64 // share of the time of nodes, the rest on a device; 0: there is none
	shift     int64   // ns of a graph without tokens; 0: there is none
	pause     int64
	peak      float64 // GB/s; 0: not measured
	runnable  float64 // share
	throttled float64 // share of the time of two threads; below 0: the recorder saw no control group
	stalled   float64 // share of the time in graphs
	cpus      int     // that the two threads may run on; 0: not known
	preempted float64 // share of what was stalled
	lost      float64 // share of the wall time
	free      float64 // share of the bytes that graphs read: of free cells
	settings  map[string]any
	phases    map[string]rundir.PhaseUse
	without   []string // files that are not written
	more      string   // further lines of events

	events strings.Builder
	exec   uint64
	at     int64
}

func quiet() *made {
	prompt := make([]int32, 64)
	for i := range prompt {
		prompt[i] = int32(100 + i)
	}
	return &made{phases: map[string]rundir.PhaseUse{"setup": {NS: 1000 * ms}, prefill: {NS: promptNS},
		decode: {NS: tokens * tokenNS}}, prompts: [][]int32{prompt}, promptNS: promptNS, pause: pauseNS, peak: 100,
		cpus: 2}
}

func line(t testing.TB, to *strings.Builder, v any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	to.Write(text)
	to.WriteByte('\n')
}

func (m *made) head(kind resource.Kind) resource.Header {
	return resource.Header{Event: kind, MonoNS: m.at, UnixNS: 1_790_000_000e9 + m.at, SessionID: "s",
		Ctx: ptr(uint32(0)), Source: resource.Measured}
}

func (m *made) graph(t testing.TB, phase string, n int, ns int64) {
	line(t, &m.events, resource.Graph{Header: m.head(resource.KindGraph), Exec: m.exec, Graph: 1, Phase: phase,
		Tokens: n, NodeCount: 1, BytesRead: ptr(moved), BytesWritten: ptr(int64(0)), DurationNS: &ns})
	m.at += ns + m.pause
}

// node is nodes that a device computed.
func (m *made) node(t testing.TB, device string, ns int64) {
	line(t, &m.events, resource.Compute{Header: m.head(resource.KindCompute),
		ResourceID: device + "_compute_layer_0_mlp_1",
		Exec:       m.exec, Phase: prefill, Operation: "range", ComponentType: "mlp", NodeCount: 3,
		TimeSource: resource.TimeRange, DurationNS: &ns})
}

func (m *made) prompt(t testing.TB, seq, pos int32, ids []int32, ns int64) {
	m.exec++
	e := resource.InputTokens{Header: m.head(resource.KindInputTokens), Exec: m.exec, TokenIDs: ids}
	for i := range ids {
		e.Positions, e.SeqIDs = append(e.Positions, pos+int32(i)), append(e.SeqIDs, seq)
	}
	line(t, &m.events, e)
	m.graph(t, prefill, len(ids), ns)
}

func (m *made) token(t testing.TB, seq, pos int32, ns int64) {
	m.exec++
	line(t, &m.events, resource.OutputToken{Header: m.head(resource.KindOutputToken), Exec: m.exec, TokenID: 7,
		Pos: pos, SeqID: &seq})
	m.graph(t, decode, 1, ns)
}

// write makes the run directory.
func (m *made) write(t testing.TB) string {
	t.Helper()
	m.at = 1000
	start := resource.SessionStart{Header: m.head(resource.KindSessionStart), Version: resource.Version}
	if m.peak > 0 {
		start.Roofline = &resource.Roofline{GFLOPsPerS: 1000, GBPerS: m.peak}
	}
	line(t, &m.events, start)
	m.exec++
	m.graph(t, "setup", 2, 1000*ms)
	if m.exec++; m.onCPU > 0 {
		m.node(t, "cpu", int64(m.onCPU*float64(tokenNS)))
		m.node(t, "rpc0", int64((1-m.onCPU)*float64(tokenNS)))
	} else {
		m.node(t, "cpu", tokenNS)
	}
	pos := int32(0)
	for i, ids := range m.prompts {
		ns := m.promptNS
		if i == len(m.prompts)-1 {
			ns = promptNS
		}
		m.prompt(t, 0, pos, ids, ns)
		pos += int32(len(ids))
	}
	for range tokens {
		m.token(t, 0, pos, tokenNS)
		pos++
	}
	if m.again > 0 {
		m.prompt(t, 1, 0, m.prompts[0], m.again)
	}
	if m.shift > 0 {
		m.exec++
		m.graph(t, maintenance, 0, m.shift)
	}
	if m.other > 0 {
		for i := range int32(4) {
			m.token(t, 1-i%2, pos+i, m.other)
		}
	}
	m.events.WriteString(m.more)

	var waits, system strings.Builder
	var total resource.WaitLine
	for _, l := range []resource.WaitLine{{Phase: "setup", DurationNS: 1000 * ms, StalledNS: 900 * ms,
		WaitFigures: resource.WaitFigures{WaitNS: 900 * ms}}, {Phase: prefill, DurationNS: promptNS},
		{Phase: decode, DurationNS: tokens * tokenNS}} {
		l.Kind = resource.WaitGraph
		if l.Phase != "setup" {
			l.StalledNS = int64(m.stalled * float64(l.DurationNS))
			l.WaitNS = l.StalledNS
			l.PreemptedNS = int64(m.preempted * float64(l.StalledNS))
			l.Faults, l.Major, l.ReadBytes = 12, 3, 1<<20
			l.Places = []resource.WaitPlace{{File: "m.gguf", Tensor: "blk.8.attn_q.weight", WaitFigures: l.WaitFigures}}
		}
		total.Add(&l.WaitFigures)
		line(t, &waits, l)
	}
	total.Kind = resource.WaitTotal
	line(t, &waits, total)
	for i := range 2 {
		l := resource.SystemLine{HostHeader: resource.HostHeader{Timestamp: 1_790_000_000 + float64(i), IntervalS: 1,
			ActualS: 1, Origin: resource.OriginBPF}, OffCPU: map[string]int64{}, Faults: map[string]uint64{}}
		if m.throttled >= 0 {
			l.CgroupCPU = &resource.QuotaLine{CPUs: m.cpus}
		}
		if m.throttled > 0 {
			*l.CgroupCPU = resource.QuotaLine{Group: "/sys/fs/cgroup/box", QuotaCPUs: 1.5, CPUs: m.cpus, Periods: 10,
				Throttled: 9, ThrottledNS: uint64(m.throttled * 2e9)}
		}
		for tid, role := range map[int]resource.ThreadRole{7: resource.RoleCompute, 8: resource.RoleCompute,
			9: resource.RoleUnknown} {
			thread := resource.ThreadLine{TID: tid, TGID: 7, LivedNS: 1e9, Role: role, IdleNS: ptr(int64(0)),
				FutexNS: ptr(int64(0)), BlockedLockNS: ptr(int64(0))}
			thread.RunnableWaitNS = 9e8 // of a thread that computes nothing
			if role == resource.RoleCompute {
				thread.RunnableWaitNS = int64(m.runnable * 1e9)
			}
			l.Threads = append(l.Threads, thread)
		}
		line(t, &system, l)
	}
	metadata := rundir.Metadata{Version: 1, Model: rundir.Model{Name: "never"}, Losses: []rundir.Loss{},
		Contexts: []rundir.Context{{NCtx: 512, NBatch: 512, NUBatch: 512}},
		Account: &rundir.Account{Lost: []rundir.Loss{}, Time: rundir.TimeAccount{WallNS: 1000 * ms, Tokens: 84, Cuts: 4,
			CutNS: int64(m.lost * 1000 * float64(ms))}}}
	metadata.Phases = m.phases
	settings := map[string]any{}
	for name, value := range m.settings {
		settings[name] = map[string]any{"value": value}
	}
	metadata.Config = map[string]any{"settings": settings}
	run := memrun.Run{Model: "never", Metadata: metadata, Files: map[string]string{
		rundir.EventsName: m.events.String(), rundir.WaitsName: waits.String(), rundir.SystemName: system.String()}}
	const read = (1 + tokens) * moved // by the graphs of tokens
	run.Lives = []memrun.Life{{KV: "k", CellBytes: 1, Cells: 32, Alloc: 1, Write: 1, Writes: 32, Reads: 64}}
	run.KV.Caches = []kvcache.Gauge{{Layers: 1, Streams: 1, Block: 32, CellBytes: 1, Cells: 64, Used: 32, Free: 32,
		Whole: true, Attended: &kvcache.Attended{Cells: 2 * read, Readable: read,
			Free: int64(math.Round(m.free * float64(read)))}}}
	for _, name := range m.without {
		delete(run.Files, name)
		if name == rundir.LivesName {
			run.Lives = nil
		}
	}
	return run.Write(t, t.TempDir())
}
