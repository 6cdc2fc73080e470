//go:build linux

package session

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/store/rundir"
	"golang.org/x/sys/unix"
)

// report is what is said of a run: its account, its metadata, its summary.
type report struct {
	run      *run
	counter  *counter
	others   *recorders
	files    *files
	before   *before // nil: the run is new
	steering *steering
	ended    bool // the files are closed, as far as that could be done
	early    bool // recording ended before the program, by a command
}

// account is the outcome of the run up to now: while it is recorded, of what the recorder has read; once its files
// are closed, of what they hold.
func (r *report) account() *rundir.Account {
	use := r.counter.totals()
	a := r.counter.tally(use)
	if r.before != nil {
		a.Time.Tokens -= r.before.prompt + r.before.generated
	}
	if r.others.events != nil {
		use := r.others.events.use()
		a.Events = &rundir.EventAccount{Written: use.Events, Lost: use.Lost,
			Rotated: r.files.series.rotated.Parts[rundir.EventsName].Rows}
		if r.counter.halted != nil {
			a.Events.TokensAfter = r.counter.tokens() - r.counter.halted.tokens
		}
	}
	if !r.ended || r.files.current == nil {
		r.rotate(a)
		return a
	}
	kept := r.files.series.kept
	switch {
	case r.run.vanished():
		kept = ggmlhooks.Count{}
	case r.files.current.result == nil:
		kept = use.Run.Written // its files could not be closed: they hold what was written, for a repair to find
	case r.files.live != nil:
		kept = r.files.live.kept()
	default:
		kept.Add(r.files.current.kept)
	}
	if r.run.resumed != nil { // what the processes before this one have captured was selected by them
		a.Selected.Packets += kept.Packets - use.Run.Written.Packets
		a.Selected.Bytes += kept.Bytes - use.Run.Written.Bytes
	} else if r.counter.halted != nil {
		cut := use.Run.Written.Minus(kept)
		a.AddLost(r.counter.halted.cause, cut.Packets, cut.Bytes)
	}
	a.Captured = rundir.Amount(kept)
	r.rotate(a)
	r.counter.addUnreported(a, &use)
	a.Check()
	return a
}

// rotate takes what was given back out of what was captured.
func (r *report) rotate(a *rundir.Account) {
	removed := r.files.series.gone
	if r.files.series.rotated.Segments == 0 || a.Captured.Packets < removed.Packets { // the directory has vanished
		return
	}
	a.Rotated = (*rundir.Amount)(&removed)
	a.Captured = rundir.Amount(ggmlhooks.Count(a.Captured).Minus(removed))
}

// result is how the run ended, but for the program. sealing is why the run could not be sealed.
func (r *report) result(sealing error) Result {
	result := Result{Dir: r.run.path(), Summary: r.summary()}
	result.Lossy = r.lossy(&result.Summary.Account)
	result.Incomplete = r.incomplete(sealing, result.Summary.Stopped)
	return result
}

// incomplete reports whether the run lacks what was to be recorded, for a reason that is not the user's own. sealing
// is why it could not be sealed; stopped is what its metadata says.
func (r *report) incomplete(sealing error, stopped *rundir.Stopped) bool {
	whole := stopped != nil && stopped.Whole
	return sealing != nil || r.counter.halted != nil && !r.counter.halted.wanted() && !whole || r.others.samplesLost()
}

// lossy reports whether the account lacks something, beyond what the user asked to leave out.
func (r *report) lossy(a *rundir.Account) bool {
	wanted := func(l rundir.Loss) bool { return r.counter.halted.wanted() && l.Cause == r.counter.halted.cause }
	return len(a.Violations) > 0 || a.Events != nil &&
		(len(a.Events.Lost) > 0 || a.Events.TokensAfter > 0 && !r.counter.halted.wanted()) ||
		slices.ContainsFunc(a.Lost, func(l rundir.Loss) bool { return !wanted(l) })
}

// metadata is metadata.json of a run that ended.
func (r *report) metadata(process *collect.Process, exit collect.Exit) rundir.Metadata {
	m := r.run.describe(r.counter.totals())
	m.RunID, m.Created = r.run.dir.ID(), r.run.started.UTC()
	m.Tap = tapUse(r.run.region.Stats())
	m.Exit = &rundir.Exit{Status: exit.Status}
	if exit.Signal != 0 {
		m.Exit.Signal = unix.SignalName(exit.Signal)
	}
	if exit.Hung {
		m.Exit.Reason = hungReason
	}
	m.Account = r.account()
	m.Losses, m.Lossy = m.Account.Lost, len(m.Account.Lost) > 0
	m.Stopped = r.files.stopped(m.Account)
	m.Changes, m.Steering = r.steering.changes, r.run.steered
	m.Resumed = r.run.resumed
	if r.early {
		m.Exit = nil // the program still runs
	}
	if live := r.files.live; live != nil {
		extra(&m, "dataset", live.use())
	} else if r.run.o.Tap.Records(config.Activations) || r.files.written().Packets > 0 {
		m.Streams = []rundir.Stream{r.run.streamUse(r.files.written())}
	}
	m.Segments = slices.Concat(r.files.series.away, r.files.series.places)
	m.Rotated, m.Moved = r.files.series.rotatedOf(), r.run.upload.movedOf()
	extra(&m, "processes", processUse(process))
	r.others.extend(&m)
	return m
}

func (r *report) summary() Summary {
	if r.counter.recorder == nil || r.run.dir == nil {
		return Summary{}
	}
	use, written := r.counter.recorder.Use(), r.files.written()
	summary := Summary{
		Account: *r.account(), Prompt: use.Prompt(), Generated: use.Generated(),
		Drafts: use.Drafts[ggmlhooks.PhasePrefill] + use.Drafts[ggmlhooks.PhaseDecode], Rejected: use.Rejected,
		Prefill: r.pace(&use, ggmlhooks.PhasePrefill), Decode: r.pace(&use, ggmlhooks.PhaseDecode),
		Tensors:  r.run.o.Tap.Records(config.Activations) || written.Packets > 0,
		RawBytes: written.RawBytes, StoredBytes: written.Stored,
		Rotated: r.files.series.rotatedOf(), Moved: r.run.upload.movedOf(), Beside: r.others.summaryText(),
		Paths: use.Paths,
		Want:  r.run.o.Tap.Throughput * 1e9, limited: r.run.o.Tap.DeviceMemory != nil && *r.run.o.Tap.DeviceMemory > 0,
		pack: time.Duration(written.PackNS), disk: time.Duration(written.WriteNS), hash: time.Duration(written.HashNS),
	}
	summary.Stopped = r.files.stopped(&summary.Account)
	if live := r.files.live; live != nil {
		summary.RawBytes, summary.StoredBytes = uint64(live.raw), uint64(live.result.Bytes)
		summary.Beside = append([]string{live.summaryText()}, summary.Beside...)
	}
	if r.run.vanished() {
		summary.RawBytes, summary.StoredBytes = 0, 0
	}
	return summary
}

// pace is what this process computed of a phase in graphs of that phase alone.
func (r *report) pace(use *capture.Use, phase ggmlhooks.Phase) Pace {
	p := Pace{use.AloneRows[phase], use.AloneNS[phase]}
	if r.before != nil { // what the recorder caught up with was computed by another
		p.Tokens -= r.before.use.AloneRows[phase]
		p.NS -= r.before.use.AloneNS[phase]
	}
	return p
}

// remarks says what of the evidence is missing because of the program that ran, and why.
func (r *report) remarks(out io.Writer, exit collect.Exit) {
	found := r.run.region.Found()
	llama, ggml := r.run.region.Versions()
	if r.run.path() == "" {
		fmt.Fprintf(out, "llamatap: nothing was recorded: %s\n", whyNothing(found, ggml, exit))
	}
	if layouts := r.run.region.Layouts(); len(layouts) > 0 {
		fmt.Fprintf(out, "llamatap: the program's llama.cpp %slays out %s otherwise than version %s, which "+
			"llamatap was built for: %s not recorded; make LLAMA_PREFIX=… builds for another one\n",
			version(llama), strings.Join(layouts, " and "), r.run.o.Llama.Version, unknown(layouts))
	}
	if found.Others > 0 {
		fmt.Fprintf(out, "llamatap: %d further process(es) ran llama.cpp and were not recorded: one recording is "+
			"of one process, the first\n", found.Others)
	}
}

func tapUse(s collect.Stats) *rundir.Tap {
	own, hook, ask := int64(s.Own()), int64(s.HookNS+s.DescribeNS+s.APINS), int64(s.AskNS)
	copied, wait := int64(s.CopyNS), int64(s.WaitNS)
	described, rebuilt, calls := int64(s.DescribeNS), int64(s.RebuiltNS), int64(s.APINS)
	return &rundir.Tap{
		OwnNS: &own, HookNS: &hook, DescribeNS: &described, CallNS: &calls, Graphs: &s.Graphs,
		Executions: &s.Executions, AskNS: &ask, CopyNS: &copied, WaitNS: &wait,
		Rebuilt: &s.Rebuilt, RebuiltNS: &rebuilt, NodesAsked: &s.Asks, Copies: &s.Copies, CopyBytes: &s.CopiedBytes,
		PinnedBytes: s.PinnedBytes, PinError: s.PinError,
		Source: "measured",
	}
}

// usage is what the two processes used, as the kernel counts it. The touched pages of the shared memory are part of
// the model's peak, and, as far as the collector has read them, of the collector's.
type usage struct {
	CollectorCPUNS     int64 `json:"collector_cpu_ns"`
	CollectorPeakKiB   int64 `json:"collector_peak_rss_kib"`
	CollectorSharedKiB int64 `json:"collector_shared_kib"` // of its memory at the end
	ModelCPUNS         int64 `json:"model_cpu_ns,omitempty"`
	ModelPeakKiB       int64 `json:"model_peak_rss_kib,omitempty"`
	SharedMemoryBytes  int64 `json:"shared_memory_bytes"`
}

func processUse(p *collect.Process) usage {
	var own unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &own)
	u := usage{
		CollectorCPUNS: own.Utime.Nano() + own.Stime.Nano(), CollectorPeakKiB: own.Maxrss,
		SharedMemoryBytes: p.Region.Size(),
	}
	u.CollectorSharedKiB = process.StatusBytes(os.Getpid(), "RssShmem") >> 10
	// What getrusage calls the peak is at least that of the program that started this one.
	if peak := process.StatusBytes(os.Getpid(), "VmHWM"); peak > 0 {
		u.CollectorPeakKiB = peak >> 10
	}
	if model := p.Usage(); model != nil {
		u.ModelCPUNS = model.Utime.Nano() + model.Stime.Nano()
		u.ModelPeakKiB = model.Maxrss
	}
	return u
}
