package resources

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// Live follows a run while it is recorded, as 'llamatap top' and the page of 'llamatap serve' show it. Its memory is
// bounded. It is not for several goroutines.
type Live struct {
	// Skim leaves out what lies within graphs while more than skimBytes of the log are unread: for a view that must not
	// fall behind a log that grows faster than it can be read.
	Skim bool
	// Ask asks the run's collector for its status and may block; nil where it cannot be reached. It is called in a
	// goroutine of its own, one at a time. Set it before the first Update.
	Ask func() (json.RawMessage, error)

	Tail *Tail
	Sum  *Sum

	dir      string
	metadata *rundir.Metadata
	read     time.Time    // modification of the metadata that were read
	answers  chan *Status // nil while nobody asks
	status   *Status      // the newest answer
}

// Status is what views use of the answer of a live run's collector to the command status (docs/CONTROL.md).
type Status struct {
	PID      int                  `json:"pid"` // of the model's process
	Level    string               `json:"level"`
	KV       *kvcache.Snapshot    `json:"kv"`
	Requests *kvcache.RequestsNow `json:"requests"`
	// Energy is in J, by device and phase.
	Energy  map[string]map[string]float64 `json:"energy_j"`
	Packets uint64                        `json:"packets"` // captured tensors that were written
	Stored  uint64                        `json:"bytes_stored"`
	Losses  map[string]uint64             `json:"losses"` // tensors by cause
	Account *rundir.Account               `json:"account"`
}

// OpenLive follows the run in a directory, which need not have events yet. A directory that is not a run is
// fs.ErrNotExist. The caller closes it.
func OpenLive(dir string) (*Live, error) {
	described, err := ReadRun(dir)
	// A live run may have no file yet; one with damaged metadata is a run, too.
	if held, _ := rundir.InUse(dir); described == nil && !held && !HasLog(dir) {
		return nil, err
	}
	absDir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	l := &Live{dir: absDir, Tail: newTail(absDir), Sum: newSum()}
	l.Sum.Token = func(*TokenRow) {} // rows are not shown
	l.Sum.recent = newRecent()
	return l, nil
}

// Close closes the log. A question to the collector that is not answered yet ends by itself.
func (l *Live) Close() error { return l.Tail.Close() }

// skimBytes is what takes a second or two to read as a whole.
const skimBytes = 64 << 20

// answerTime is how long an update waits for the collector, which runs when nobody else wants to; the first answer is
// waited for until the update's context is done, or as long after a log that took all of its time.
var answerTime = 200 * time.Millisecond

// Update reads what the log has more than at the last call, until ctx is done: what is left is read by the next one.
// It reports whether the run has ended and all of its log was read.
func (l *Live) Update(ctx context.Context) (ended bool, err error) {
	l.ask()
	l.Tail.Done = ctx.Done()
	for lines := 0; lines%256 != 255 || ctx.Err() == nil; lines++ {
		line, err := l.Tail.Next()
		ended = errors.Is(err, io.EOF)
		if ended || errors.Is(err, ErrWaiting) || errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			return false, err
		}
		l.Sum.Add(line)
		if l.Skim && lines%4096 == 0 {
			l.Sum.skim.behind = l.Tail.Unread() > skimBytes
		}
	}
	l.Sum.uncached = l.Sum.uncached || l.Tail.Missed() > 0
	// Metadata are replaced when a context is made, and at the end. Those that cannot be read say nothing.
	if info, err := os.Stat(filepath.Join(l.dir, rundir.MetadataName)); err == nil && info.ModTime() != l.read {
		l.read = info.ModTime()
		l.metadata, _ = rundir.FindMetadata(l.dir)
	}
	if l.answers != nil {
		wait, stop := ctx, func() {}
		switch {
		case l.status != nil:
			wait, stop = context.WithTimeout(ctx, answerTime)
		case ctx.Err() != nil:
			wait, stop = context.WithTimeout(context.WithoutCancel(ctx), answerTime)
		}
		defer stop()
		select {
		case answer := <-l.answers:
			l.answers, l.status = nil, cmp.Or(answer, l.status)
		case <-wait.Done():
		}
	}
	return ended, nil
}

// ask asks the collector, unless it was asked and has not answered yet.
func (l *Live) ask() {
	if l.Ask == nil || l.answers != nil || StateOf(l.dir) != StateRunning {
		return
	}
	answers := make(chan *Status, 1)
	l.answers = answers
	go func() {
		var status Status
		if text, err := l.Ask(); err != nil || json.Unmarshal(text, &status) != nil {
			answers <- nil
			return
		}
		answers <- &status
	}()
}

// Snapshot is a live run at a moment. A figure that nobody recorded is absent, and Missing names what records it.
type Snapshot struct {
	Run    string `json:"run"`
	Model  string `json:"model"`
	State  State  `json:"state"`
	PID    int    `json:"pid,omitempty"`   // of the model's process
	Level  string `json:"level,omitempty"` // of events
	UnixNS int64  `json:"unix_ns"`         // the moment
	// FirstNS and LastNS are the times of the first and the newest event.
	FirstNS int64 `json:"first_unix_ns,omitempty"`
	LastNS  int64 `json:"last_unix_ns,omitempty"`
	// Stopped is why recording has ended while the program continues.
	Stopped *rundir.Stopped `json:"stopped,omitempty"`
	Lines   int64           `json:"lines"`        // of the log that the figures include
	Unread  int64           `json:"unread_bytes"` // of the log that they do not include yet
	// Missed are files of the log that were given back, for room, before they were read.
	Missed int `json:"missed_log_files,omitempty"`
	// Skimmed are graphs that were timed inside, and whose times within were left out to keep up with the log.
	Skimmed int64 `json:"skimmed_graphs,omitempty"`

	Phases  []PhaseRow   `json:"phases"`
	Latency *LatencyRow  `json:"latency,omitempty"`
	Speed   *Speed       `json:"speed,omitempty"` // absent without graphs
	Texts   []*TokenText `json:"texts,omitempty"` // of sequences, that with the newest token first

	Components []TimeRow `json:"components,omitempty"`
	Layers     []TimeRow `json:"layers,omitempty"`
	Ops        []TimeRow `json:"ops,omitempty"`

	Caches  []CacheNow    `json:"kv,omitempty"`
	Experts []ExpertCount `json:"experts,omitempty"` // by how often they were chosen, in all layers
	Routed  int64         `json:"expert_routings,omitempty"`
	GPUs    []GPUNow      `json:"gpus,omitempty"`
	Zones   []ZoneNow     `json:"rapl,omitempty"`
	Memory  *MemoryRow    `json:"memory,omitempty"` // of ggml's backends
	Host    *HostNow      `json:"host,omitempty"`

	Losses   []Loss `json:"losses"`
	BadLines int64  `json:"bad_lines"`
	// Captured is what the collector counts of captured tensors; absent where it did not answer.
	Captured *CapturedNow `json:"captured,omitempty"`
	Missing  []Missing    `json:"missing,omitempty"`
}

// Missing is a figure that was not recorded, and how to record it.
type Missing struct {
	What string `json:"what"`
	How  string `json:"how"`
}

// TimeRow is the time of a component, a layer or an op.
type TimeRow struct {
	Name string `json:"name"` // of a layer its number; none: in no layer
	NS   *int64 `json:"ns,omitempty"`
	// Share is of the time in graphs of the run, Recent of graphs of the last RecentSeconds that were timed inside.
	Share  *float64 `json:"share,omitempty"`
	Recent *float64 `json:"recent_share,omitempty"`
}

// CacheNow is how full a KV cache is.
type CacheNow struct {
	Ctx       uint32         `json:"ctx"`
	Cache     string         `json:"cache"`
	Used      int64          `json:"cells_used"`
	Cells     int64          `json:"cells,omitempty"` // absent where the capacity is not known
	Sequences []*SequenceUse `json:"sequences,omitempty"`
}

// ExpertCount is how often an expert was chosen.
type ExpertCount struct {
	Expert int32 `json:"expert"`
	Count  int64 `json:"count"`
}

// GPUNow is the newest sample of a GPU.
type GPUNow struct {
	Index       int      `json:"gpu_index"`
	Name        string   `json:"gpu_name"`
	Utilization *float64 `json:"gpu_utilization_percent,omitempty"`
	MemoryUsed  *int64   `json:"gpu_memory_used_bytes,omitempty"`
	PowerW      *float64 `json:"gpu_power_w,omitempty"`
	EnergyJ     *float64 `json:"gpu_energy_j,omitempty"` // of the run
}

// ZoneNow is the energy of processors or memory: in the run, and the mean power of the newest window.
type ZoneNow struct {
	Domain  string  `json:"domain"`
	EnergyJ float64 `json:"energy_j"`
	PowerW  float64 `json:"power_w,omitempty"`
}

// CapturedNow is what the collector counts of captured tensors.
type CapturedNow struct {
	Packets uint64            `json:"packets"`
	Stored  uint64            `json:"bytes_stored"`
	Losses  map[string]uint64 `json:"losses,omitempty"`
}

// maxRows bounds the rows of a table of a snapshot, maxExperts the experts.
const (
	maxRows    = 256
	maxExperts = 1 << 10
)

// Snapshot describes the run at a time, as far as Update has read.
func (l *Live) Snapshot(now time.Time) *Snapshot {
	r := l.Sum.Report()
	s := &Snapshot{Run: filepath.Base(l.dir), Model: filepath.Base(filepath.Dir(l.dir)), State: StateOf(l.dir),
		Level: l.Sum.Level, UnixNS: now.UnixNano(), FirstNS: l.Sum.first, LastNS: max(l.Sum.last, l.Sum.recent.last),
		Lines: l.Sum.Lines, Unread: l.Tail.Unread(), Missed: l.Tail.Missed(), Skimmed: l.Sum.skim.graphs,
		Phases: r.Phases, Latency: r.Latency, Routed: r.Routed, Losses: r.Losses, BadLines: r.BadLines}
	if l.metadata != nil {
		s.Model, s.Stopped = cmp.Or(l.metadata.Model.Name, s.Model), l.metadata.Stopped
	}
	end := s.UnixNS
	if s.State != StateRunning || end-s.LastNS < int64(writeTime) || s.Unread > maxLine {
		end = s.LastNS // events are written some time after they were made, and read some time after that
	}
	recent := l.Sum.recent
	if r.Graphs > 0 {
		s.Speed = recent.speed(end, s.FirstNS)
		for _, p := range r.Phases {
			if p.Phase == phaseDecode {
				s.Speed.Run = p.TokensPerS
			}
		}
	}
	s.Texts = recent.newestTexts()
	shares := recent.shares(end)
	row := func(kind rowKind, name string, f *Figures) TimeRow {
		return TimeRow{name, f.NS, f.Share, shares[rowKey{kind, name}]}
	}
	for _, c := range r.Components {
		s.Components = append(s.Components, row(byComponent, c.Component, &c.Figures))
	}
	for _, c := range r.Layers {
		s.Layers = append(s.Layers, row(byLayer, layerName(c.Layer), &c.Figures))
	}
	for _, c := range r.Ops {
		s.Ops = append(s.Ops, row(byOp, c.Op, &c.Figures))
	}
	for _, rows := range []*[]TimeRow{&s.Components, &s.Layers, &s.Ops} {
		*rows = slices.DeleteFunc(*rows, func(t TimeRow) bool { return t.NS == nil })
		*rows = (*rows)[:min(len(*rows), maxRows)]
	}
	for expert, n := range recent.experts {
		s.Experts = append(s.Experts, ExpertCount{expert, n})
	}
	slices.SortFunc(s.Experts, func(a, b ExpertCount) int { return cmp.Compare(a.Expert, b.Expert) })
	for _, g := range r.GPUs {
		s.GPUs = append(s.GPUs,
			GPUNow{g.Index, g.Name, g.Last.Utilization, g.Last.MemoryUsed, g.Last.PowerW, g.EnergyJ})
	}
	for _, z := range r.Zones {
		s.Zones = append(s.Zones, ZoneNow{z.Domain, z.EnergyJ, z.lastW})
	}
	if r.Memory.Allocations > 0 {
		s.Memory = &r.Memory
	}
	s.Host = hostNow(l.dir)
	s.Caches = l.caches(r)
	if a := l.status; a != nil && s.State == StateRunning {
		s.PID, s.Level = a.PID, cmp.Or(a.Level, s.Level)
		s.Captured = &CapturedNow{a.Packets, a.Stored, a.Losses}
	}
	followed := l.metadata != nil && slices.Contains(l.metadata.Recorders(), "kv")
	s.Missing = s.missing(followed || len(r.Caches) > 0)
	return s
}

// caches are the run's KV caches: by their cells where the collector follows them, else by the events.
func (l *Live) caches(r *Report) (cacheNows []CacheNow) {
	if l.status != nil && l.status.KV != nil && StateOf(l.dir) == StateRunning {
		for _, g := range l.status.KV.Caches {
			c := CacheNow{Ctx: g.Ctx, Cache: g.Cache.String(), Used: int64(g.Used), Cells: int64(g.Cells)}
			for _, seq := range g.Sequences {
				c.Sequences = append(c.Sequences, &SequenceUse{seq.Seq, int64(seq.Cells), seq.PosMax + 1})
			}
			cacheNows = append(cacheNows, c)
		}
		return cacheNows
	}
	for _, c := range r.Caches {
		if !c.isWhole() {
			continue // how full it is is not known
		}
		row := CacheNow{Ctx: c.Ctx, Cache: cmp.Or(c.Cache, c.Type), Used: c.Used}
		if l.metadata != nil {
			row.Cells = Capacity(l.metadata, c.CacheUse)
		}
		for _, seq := range c.Sequences {
			if seq.Cells > 0 {
				row.Sequences = append(row.Sequences, seq)
			}
		}
		cacheNows = append(cacheNows, row)
	}
	return cacheNows
}

// missing lists what the snapshot lacks, other than how full caches are that were recorded: by events, of a part of
// them, or as lives of blocks.
func (s *Snapshot) missing(caches bool) (notRecorded []Missing) {
	add := func(absent bool, what, how string) {
		if absent {
			notRecorded = append(notRecorded, Missing{what, how})
		}
	}
	add(s.Lines == 0, "tokens, time and memory", "--tap-resource-level MINIMAL")
	minimal := s.Level == "" || s.Level == resource.Minimal.String()
	add(len(s.Components) == 0 && (s.Lines == 0 || minimal), "time by component, layer and op",
		"--tap-resource-level DETAILED")
	add(len(s.Texts) == 0 && s.Latency != nil, "text of tokens", "a run without --tap-redact text")
	add(len(s.Caches) == 0 && !caches, "KV cells", "--tap-kv")
	add(len(s.Experts) == 0 && minimal, "experts, of models that have some", "--tap-resource-level DETAILED")
	add(len(s.GPUs)+len(s.Zones) == 0, "power", "a machine where 'llamatap doctor' finds NVML or RAPL")
	add(s.Host == nil, "pressure, waiting and page faults", "--tap-host system")
	return notRecorded
}

// HostNow is the newest line of system_metrics.jsonl.
type HostNow struct {
	Timestamp float64 `json:"timestamp"` // Unix seconds
	// OffCPUNS, Faults and Major are of the interval: waiting that delayed threads, page faults from user mode, and
	// those of them that a disk had to serve.
	IntervalS float64                       `json:"interval_actual_s"`
	OffCPUNS  int64                         `json:"off_cpu_ns"`
	Faults    uint64                        `json:"page_faults"`
	Major     *uint64                       `json:"major_faults,omitempty"`
	RSSBytes  *uint64                       `json:"rss_bytes,omitempty"`
	Pressure  map[string]resource.HostStall `json:"pressure"`
	Cgroup    map[string]resource.HostStall `json:"cgroup_pressure,omitempty"`
	Missing   []string                      `json:"missing,omitempty"`
}

// hostNow reads the newest line of a run's system metrics; nil where there is none.
func hostNow(dir string) *HostNow {
	text := newestLine(filepath.Join(dir, "."+rundir.SystemName+".part"))
	if text == nil {
		text = newestLine(filepath.Join(dir, rundir.SystemName))
	}
	var line resource.SystemLine
	if text == nil || json.Unmarshal(text, &line) != nil {
		return nil
	}
	h := &HostNow{Timestamp: line.Timestamp, IntervalS: line.ActualS, Pressure: line.Pressure,
		Cgroup: line.CgroupPressure, Missing: line.Missing}
	for _, ns := range line.OffCPU {
		h.OffCPUNS += ns
	}
	for _, n := range line.Faults {
		h.Faults += n
	}
	add := func(sum **uint64, n *uint64) {
		if n != nil {
			*sum = new(*cmp.Or(*sum, new(uint64)) + *n)
		}
	}
	for _, p := range line.Processes {
		add(&h.Major, p.Major)
		add(&h.RSSBytes, p.RSSBytes)
	}
	return h
}

// newestLine is the last whole line of a file, of at most maxLine bytes; nil where there is none.
func newestLine(path string) []byte {
	file, err := rundir.OpenFile(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	for most := int64(64 << 10); most <= 2*maxLine; most *= 2 { // the last line may be followed by a part of the next
		begin := max(0, info.Size()-most)
		text, err := io.ReadAll(io.NewSectionReader(file, begin, info.Size()-begin))
		if err != nil {
			return nil
		}
		end := bytes.LastIndexByte(text, '\n')
		if before := bytes.LastIndexByte(text[:max(end, 0)], '\n'); end >= 0 && (before >= 0 || begin == 0) {
			return text[before+1 : end]
		}
	}
	return nil
}

func layerName(layer int) string {
	if layer < 0 {
		return "none"
	}
	return strconv.Itoa(layer)
}
