package server

import (
	"cmp"
	"context"
	"io/fs"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/store/rundir"
)

// metrics are what the events of runs sum up to, for Prometheus. Looked at, they read what has come since the last
// look.
type metrics struct {
	server *Server
	mu     sync.Mutex       // held for no file
	held   map[string]*life // between looks, by directory
	lives  lives
}

// maxFolds bounds the runs that have metrics: live ones, the newest first, else the newest that holds events.
const maxFolds = 16

func newMetrics(s *Server) *metrics {
	return &metrics{server: s, held: map[string]*life{}, lives: lives{all: map[string]*life{}}}
}

var (
	runInfo = gauge("run_info", "A run that is served; always 1. State is running, sealed, damaged or cut off.",
		"model", "state", "level")
	stoppedInfo = gauge("recording_stopped",
		"A run that was recorded no more while its program went on; always 1.", "cause")
	logBehind = gauge("log_unread_bytes",
		"Bytes of the run's resource log that the other metrics do not include yet.")
	logMissed = counter("log_files_missed_total",
		"Files of the log that rotation gave back before they were read: the other metrics are without them.")
	eventsTotal = counter("events_total", "Resource events in the log.", "event")
	badTotal    = counter("bad_lines_total", "Lines of the log that are not events.")
	lostTotal   = counter("events_lost_total", "Resource events that are not in the log.", "event", "cause")

	graphsTotal = counter("graphs_total", "Executions of graphs; of prefill where any of their tokens is a prompt's.",
		"phase")
	graphTime  = counter("graph_seconds_total", "Time in graphs, measured.", "phase")
	insideTime = counter("timed_graph_seconds_total",
		"Time in graphs that were timed inside, by component or op, measured.", "phase")
	lookTime = counter("looking_seconds_total",
		"Time that timing nodes cost the model, measured; it is part of the time in graphs.", "phase")
	tokensTotal = counter("tokens_total", "Tokens that graphs computed, by the phase of each.", "phase")
	flopsTotal  = counter("floating_point_operations_total",
		"Floating point operations, computed from shapes and masks, without ops whose count is not known.", "phase")
	paddedTotal = counter("padded_floating_point_operations_total",
		"The same with cells of a KV cache that attention is given and no token may read.", "phase")
	readTotal    = counter("read_bytes_total", "Bytes that ops read, computed from shapes.", "phase")
	writtenTotal = counter("written_bytes_total", "Bytes that ops wrote, computed from shapes.", "phase")
	componentsNS = counter("component_seconds_total",
		"Time in nodes of a component, measured in the graphs of llamatap_timed_graph_seconds_total.", "phase",
		"component")
	latency = histogram("token_latency_seconds",
		"Time from a generated token of a sequence to the next, measured.")

	kvCells = gauge("kv_cells", "Cells of a KV cache by state: used, and capacity where it is known.", "ctx",
		"cache", "state")
	kvRatio = gauge("kv_prompt_reuse_ratio",
		"Share of the cells that prompts needed and found, at the newest operation.", "ctx", "cache")
	kvCellOps = counter("kv_cell_operations_total", "Cells that were allocated, updated or evicted.", "ctx", "cache",
		"operation")
	kvWritten = counter("kv_written_bytes_total", "Bytes of keys or values that were written in all layers.", "ctx",
		"cache", "part")
	memoryLive = gauge("memory_bytes", "Bytes that backends of ggml have allocated.")
	memoryPeak = gauge("memory_peak_bytes", "The most bytes that they had allocated.")
	gpuBusy    = gauge("gpu_utilization_ratio",
		"NVML's utilization.gpu: share of the last interval in which some kernel of any process ran.", "gpu",
		"name")
	gpuMemory = gauge("gpu_memory_utilization_ratio",
		"NVML's utilization.memory: share of that time in which the GPU's memory was read or written.", "gpu", "name")
	gpuUsed    = gauge("gpu_memory_used_bytes", "Memory of the GPU that is in use, by all processes.", "gpu", "name")
	gpuPower   = gauge("gpu_power_watts", "Power that the GPU draws.", "gpu", "name")
	gpuEnergy  = counter("gpu_energy_joules_total", "Energy that the GPU used since the run began.", "gpu", "name")
	raplEnergy = counter("rapl_energy_joules_total",
		"Energy that processors or memory used since the run began, of all processes.", "domain")
	energyTotal = counter("energy_joules_total",
		"Energy that a device used in the executions of a phase, or outside of them: its counter, divided by time.",
		"domain", "phase")
	captureSize = gauge("capture_bytes",
		"Bytes of captured tensors on the disk, with the index, which lists every token.")
	captureSum  = counter("capture_stored_bytes_total", "Bytes of captured tensors that a run has stored.")
	packetsSum  = counter("capture_packets_total", "Captured tensors that a run has stored.")
	packetsLost = counter("capture_packets_lost_total", "Captured tensors that a run has lost.", "cause")
	timeLost    = counter("model_seconds_lost_total",
		"Time that the model's threads lost to the recording, warm-up apart: in the tap's code, waiting, and in cuts "+
			"of the graph.", "cause")
	overhead = gauge("overhead_ratio",
		"Share of the run's time that the model lost to the recording, at least, 0 to 1.")
	overheadMost = gauge("overhead_upper_ratio",
		"overhead_ratio and the processor time that the collector may have taken.")
)

// answer writes the metrics of every run (GET /metrics).
func (m *metrics) answer(w http.ResponseWriter, r *http.Request) error {
	samples, err := m.collect()
	if err != nil {
		return err
	}
	form := expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...)
	w.Header().Set("Content-Type", string(form))
	return writeSamples(m.server.stream(w), form, samples)
}

// collect reads what has come since, and reports every run. Each is read on its own for a bounded time: one whose log
// cannot be read, or is still being read for an earlier look, is reported by run_info alone, and holds up no other.
func (m *metrics) collect() ([]sample, error) {
	runs, err := m.server.runs.runs()
	if err != nil {
		return nil, err
	}
	chosen := choose(slices.DeleteFunc(runs, func(r Run) bool { return r.dir == "" }))
	picked := m.pick(chosen)
	ctx, cancel := context.WithTimeout(context.Background(), m.server.o.Limits.FoldTime)
	defer cancel()
	found := make([]chan []sample, len(chosen))
	for i, run := range chosen {
		found[i] = make(chan []sample, 1)
		go func() { found[i] <- m.readNew(ctx, run, picked[i]) }()
	}
	late, done := context.WithTimeout(context.Background(), m.server.o.Limits.FoldTime+askTime+time.Second)
	defer done()
	samples := []sample{goroutines.at(float64(runtime.NumGoroutine()))}
	for i, run := range chosen {
		select {
		case of := <-found[i]:
			samples = append(samples, of...)
		case <-late.Done():
			select {
			case of := <-found[i]:
				samples = append(samples, of...)
			default:
				samples = append(samples, staleSamples(run)...)
			}
		}
	}
	return samples, nil
}

// staleSamples returns what is reported of a run whose log is not read in time.
func staleSamples(run Run) []sample {
	fold := metricFold{run: run.ID}
	fold.add(runInfo, 1, run.Model, string(run.State), "")
	return fold.all
}

// readNew reads what a run's log has more than at the last look, until ctx is done, and returns what there is to
// report of the run.
func (m *metrics) readNew(ctx context.Context, run Run, f *life) []sample {
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
	case <-ctx.Done():
		return staleSamples(run)
	}
	known, err := rundir.ReadMetadata(run.dir)
	if err != nil {
		known = rundir.Metadata{}
	}
	_, err = m.lives.catchUp(ctx, f)
	fold := metricFold{run: run.ID}
	level := ""
	if f.live != nil {
		level = f.live.Sum.Level
	}
	fold.add(runInfo, 1, run.Model, string(run.State), level)
	if known.Stopped != nil {
		fold.add(stoppedInfo, 1, known.Stopped.Cause)
	}
	if err == nil {
		fold.events(f.live)
		fold.graphs(f.live.Sum)
		fold.memory(f.live.Sum)
		fold.devices(f.live.Sum)
	}
	now := reports{logs{m.server}}.now(run)
	counted := now != nil && now.KV != nil
	if err == nil {
		fold.caches(f.live.Sum, &known, !counted)
	}
	if counted {
		fold.snapshot(now.KV)
		fold.utilization(now.KV)
	}
	if err == nil {
		joules := f.live.Sum.EnergyByPhase() // at the end
		if now != nil && len(now.Energy) > 0 {
			joules = now.Energy
		}
		for domain, phases := range joules {
			for phase, j := range phases {
				fold.add(energyTotal, j, domain, phase)
			}
		}
	}
	if now != nil && now.Requests != nil {
		fold.requests(now.Requests)
	}
	fold.capture(run, &known, now)
	return fold.all
}

// choose picks the runs that have metrics.
func choose(runs []Run) []Run {
	var going []Run
	for _, r := range runs {
		if r.State == resources.StateRunning && len(going) < maxFolds {
			going = append(going, r)
		}
	}
	if i := slices.IndexFunc(runs, func(r Run) bool { return r.Events }); len(going) == 0 && i >= 0 {
		going = runs[i : i+1]
	}
	return going
}

// pick returns the chosen runs, and lets go of those that are not reported any more.
func (m *metrics) pick(chosen []Run) []*life {
	m.mu.Lock()
	defer m.mu.Unlock()
	for dir, f := range m.held {
		if !slices.ContainsFunc(chosen, func(r Run) bool { return r.dir == dir }) {
			delete(m.held, dir)
			m.lives.put(f)
		}
	}
	picked := make([]*life, len(chosen))
	for i, run := range chosen {
		if m.held[run.dir] == nil {
			m.held[run.dir] = m.lives.get(run.dir)
		}
		picked[i] = m.held[run.dir]
	}
	return picked
}

// metricFold collects the metrics of one run.
type metricFold struct {
	run string
	all []sample
}

func (t *metricFold) add(m *metric, value float64, labels ...string) {
	t.all = append(t.all, m.at(value, append([]string{t.run}, labels...)...))
}

func (t *metricFold) events(live *resources.Live) {
	t.add(logBehind, float64(live.Tail.Unread()))
	t.add(logMissed, float64(live.Tail.Missed()))
	t.add(badTotal, float64(live.Sum.BadLines))
	for kind, n := range live.Sum.Events {
		t.add(eventsTotal, float64(n), kind)
	}
	for key, n := range live.Sum.Losses {
		t.add(lostTotal, float64(n), key.Kind, key.Cause)
	}
}

// latencyBounds are those of the histogram's buckets, in ns.
var latencyBounds = func() (bounds []int64) {
	for ns := int64(250e3); ns <= 16e9; ns *= 2 {
		bounds = append(bounds, ns)
	}
	return bounds
}()

func (t *metricFold) graphs(s *resources.Sum) {
	for phase, p := range s.Phases {
		t.add(graphsTotal, float64(p.Graphs), phase)
		t.add(tokensTotal, float64(p.Tokens+p.Rejected), phase) // a counter does not go back
		if p.Timed > 0 {
			t.add(graphTime, float64(p.NS)/1e9, phase)
		}
		if p.Inside > 0 {
			t.add(insideTime, float64(p.InsideNS)/1e9, phase)
		}
		if p.Looked {
			t.add(lookTime, float64(p.LookNS)/1e9, phase)
		}
		if p.Counted > 0 {
			t.add(paddedTotal, float64(p.FLOPs), phase)
			if p.NoMask == 0 {
				t.add(flopsTotal, float64(p.Useful), phase)
			}
		}
		if p.Sized > 0 {
			t.add(readTotal, float64(p.Read), phase)
			t.add(writtenTotal, float64(p.Written), phase)
		}
	}
	for key, ns := range s.ByPhaseAndComponent() {
		t.add(componentsNS, float64(ns)/1e9, key.Phase, key.Component)
	}
	if l := &s.Latency; l.Count > 0 {
		var buckets []bucket
		for _, bound := range latencyBounds {
			buckets = append(buckets, bucket{float64(bound) / 1e9, l.Below(bound)})
		}
		t.all = append(t.all, latency.distribution(l.Count, float64(l.Sum)/1e9, buckets, t.run))
	}
}

func (t *metricFold) memory(s *resources.Sum) {
	if s.Memory.Allocations > 0 {
		t.add(memoryLive, float64(s.Memory.Live))
		t.add(memoryPeak, float64(s.Memory.Peak))
	}
}

func (t *metricFold) devices(s *resources.Sum) {
	for _, g := range s.GPUs() {
		index := strconv.Itoa(g.Index)
		known := func(m *metric, v *float64, of float64) {
			if v != nil {
				t.add(m, *v/of, index, g.Name)
			}
		}
		known(gpuBusy, g.Last.Utilization, 100)
		known(gpuMemory, g.Last.MemoryUtilization, 100)
		if g.Last.MemoryUsed != nil {
			t.add(gpuUsed, float64(*g.Last.MemoryUsed), index, g.Name)
		}
		known(gpuPower, g.Last.PowerW, 1)
		known(gpuEnergy, g.EnergyJ, 1)
	}
	for _, z := range s.Zones() {
		t.add(raplEnergy, z.EnergyJ, z.Domain)
	}
}

// caches says what the events say; alone: nothing else says how full the caches are.
func (t *metricFold) caches(s *resources.Sum, known *rundir.Metadata, alone bool) {
	for _, c := range s.Caches() {
		ctx, cache := strconv.FormatUint(uint64(c.Ctx), 10), cmp.Or(c.Cache, c.Type)
		if alone && s.CachesWhole() {
			t.add(kvCells, float64(c.Used), ctx, cache, "used")
		}
		if cells := resources.Capacity(known, c); alone && cells > 0 {
			t.add(kvCells, float64(cells), ctx, cache, "capacity")
		}
		for operation, n := range map[string]int64{"allocate": c.Allocated, "update": c.Updated, "evict": c.Evicted} {
			t.add(kvCellOps, float64(n), ctx, cache, operation)
		}
		if c.KeyBytes != nil {
			t.add(kvWritten, float64(*c.KeyBytes), ctx, cache, "key")
		}
		if c.ValueBytes != nil {
			t.add(kvWritten, float64(*c.ValueBytes), ctx, cache, "value")
		}
		if c.HitRatio != nil {
			t.add(kvRatio, *c.HitRatio, ctx, cache)
		}
	}
}

// capture describes the tensors that the run recorded beside its events: as its collector says while it is live, as
// its metadata say when it is sealed.
func (t *metricFold) capture(run Run, known *rundir.Metadata, now *resources.Status) {
	if size, ok := captured(run.dir); ok {
		t.add(captureSize, float64(size))
	}
	if now != nil && (now.Packets > 0 || len(now.Losses) > 0) {
		t.add(packetsSum, float64(now.Packets))
		t.add(captureSum, float64(now.Stored))
		for cause, n := range now.Losses {
			t.add(packetsLost, float64(n), cause)
		}
	}
	if now != nil {
		t.cost(now.Account)
	}
	if run.State != resources.StateSealed {
		return
	}
	var packets, stored float64
	for _, s := range known.Streams {
		packets, stored = packets+float64(s.Packets), stored+float64(s.BytesStored)
	}
	if len(known.Streams) > 0 {
		t.add(packetsSum, packets)
		t.add(captureSum, stored)
	}
	for _, l := range known.Losses {
		t.add(packetsLost, float64(l.Packets), l.Cause)
	}
	t.cost(known.Account)
}

// cost reports what recording took from the model.
func (t *metricFold) cost(a *rundir.Account) {
	if a == nil {
		return
	}
	share, ok := a.Time.Overhead()
	if !ok {
		return
	}
	t.add(overhead, share)
	t.add(timeLost, float64(a.Time.TapNS)/1e9, "tap")
	t.add(timeLost, float64(a.Time.WaitNS)/1e9, "wait")
	t.add(timeLost, float64(a.Time.CutNS)/1e9, "cut")
	if most, ok := a.Time.OverheadMost(); ok {
		t.add(overheadMost, most)
	}
}

// captured is the size of a run's captured tensors on the disk, with their index, over all segments.
func captured(dir string) (size int64, ok bool) {
	folder := os.DirFS(dir)
	for _, pattern := range []string{"activations.stream*", "seg-*/activations.stream*"} {
		found, _ := fs.Glob(folder, pattern)
		for _, name := range found {
			if info, err := fs.Stat(folder, name); err == nil {
				size, ok = size+info.Size(), true
			}
		}
	}
	return size, ok
}
