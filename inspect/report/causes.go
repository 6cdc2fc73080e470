package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// The shares from which causes stand out.
const (
	starvedShare   = 0.10 // threads that have the machine almost for themselves wait less, for others or for a quota
	faultShare     = 0.05 // weights in memory take far fewer faults
	bandwidthShare = 0.60 // of what a measurement of copies reaches; matrix products hardly come closer
	smallShare     = 0.10 // a prompt's last executions are small in any run
	aloneShare     = 0.25 // batching two sequences saves at most half of it
	recordingShare = 0.03 // what --tap-resource-sample auto allows itself
	againShare     = 0.05 // the last token of a cached prompt is computed again in any run
	fullShare      = 0.05 // a context shift now and then takes less
	freeShare      = 0.10 // cells that were freed are taken first
	besideShare    = 0.25 // the token embedding and what a device lacks take less
	betweenShare   = 0.20 // plain sampling takes less than that of all but the smallest models' tokens
)

// graphPart is the least part of the time of compute threads that graphs have to take. In less time threads that
// load the model are busy for as long as those that compute, and have their role.
const graphPart = 0.5

// smallBatch is the number of tokens below which an execution reads each weight for little work.
const smallBatch = 32

// The phases of executions that causes are about.
const (
	prefill     = "prefill"
	decode      = "decode"
	maintenance = "maintenance"
)

// Finding is what the figures of a run say of one cause.
type Finding struct {
	Cause string `json:"cause"`
	Phase string `json:"phase,omitempty"` // absent: the whole run
	// Share is measured; absent where the cause cannot be judged. Of names what it is a share of, Threshold is the
	// least share that stands out, unless the cause is named with another one.
	Share     *float64 `json:"share,omitempty"`
	Of        string   `json:"of,omitempty"`
	Threshold float64  `json:"threshold,omitempty"`
	StandsOut bool     `json:"stands_out"`
	// Normal marks what explains the speed without being a defect.
	Normal   bool   `json:"normal,omitempty"`
	Evidence string `json:"evidence,omitempty"` // a clause with the figures
	Remedy   string `json:"remedy,omitempty"`   // a clause that "would remove it" follows
	Files    string `json:"files,omitempty"`    // that the figures are from
	// NotJudged says why there is no share, and how to record it.
	NotJudged string `json:"not_judged,omitempty"`
}

// causes lists what is considered.
var causes = []func(*Run) *Finding{
	starvation, throttling, pageFaults, bandwidth, smallBatches, oneByOne, recording, promptAgain, cacheFull,
	betweenGraphs,
	besideDevice, fragmented,
}

// The causes that a comparison of runs has whether they stand out or not: waiting for a CPU, and the overhead.
const (
	causeStarvation = "CPU starvation"
	causeThrottling = "throttling by a cgroup"
	causeRecording  = "the recording itself"
)

// setShare sets the share.
func (f *Finding) setShare(part, whole, threshold float64) *Finding {
	share := part / whole
	f.Share, f.Threshold, f.StandsOut = &share, threshold, share >= threshold
	return f
}

// What the shares are of.
const (
	ofGraphs = "the time in graphs"
	ofWall   = "the wall time"
)

const (
	noEvents = "not recorded: --tap-resource-level MINIMAL"
	noTimes  = "no graph has a measured time"
)

func ns(v float64) string { return present.Nanoseconds(int64(v)) }

// ofThreads makes a finding about the time of compute threads.
func ofThreads(r *Run, cause string) *Finding {
	f := &Finding{Cause: cause, Of: "the compute threads' time", Files: rundir.SystemName}
	c := r.Compute
	switch {
	case c == nil:
		f.NotJudged = "not recorded: --tap-host system"
	case c.LivedNS == 0:
		f.NotJudged = "no interval shows which threads compute: record a longer run, or a shorter --tap-host-interval"
	case c.Seconds*1e9*graphPart > float64(r.graphNS()):
		f.NotJudged = fmt.Sprintf("graphs took %s of the %s in which threads computed, too little to "+
			"distinguish them from others: record a busier time, or a shorter --tap-host-interval",
			ns(float64(r.graphNS())),
			present.Seconds(c.Seconds))
	}
	return f
}

// starvation is waiting of compute threads for a processor, without what a quota explains. Where that is most of it,
// the rest is named with it: more threads may have been in a stopped queue than the kernel reports.
func starvation(r *Run) *Finding {
	f := ofThreads(r, causeStarvation)
	if f.NotJudged != "" {
		return f
	}
	c, besides, waited := r.Compute, "", r.Compute.RunnableNS
	f.Remedy = "fewer threads (-t), less other load or a larger CPU quota"
	if c.Quota != nil && c.Quota.ThrottledNS > 0 {
		besides, waited = ", besides throttling,", waited-c.Quota.ThrottledNS
		f.Remedy = "fewer threads (-t) or less other load"
	}
	f.Evidence = fmt.Sprintf("%s waited%s %s of %s for a free CPU in %s", present.Plural(c.Threads, "compute thread"),
		besides, ns(waited), ns(c.LivedNS), present.Plural(c.Intervals, "interval"))
	f.setShare(waited, c.LivedNS, starvedShare)
	if waited < c.RunnableNS-waited {
		f.StandsOut = false
	}
	return f
}

// graphNS is the time in all graphs, set-up included, as the metadata or else the events have it.
func (r *Run) graphNS() (ns int64) {
	if r.Metadata != nil && len(r.Metadata.Phases) > 0 {
		for _, p := range r.Metadata.Phases {
			ns += p.NS
		}
		return ns
	}
	if r.Resources == nil {
		return 0
	}
	if r.Resources.SetupNS != nil {
		ns = *r.Resources.SetupNS
	}
	return ns + r.Resources.GraphNS
}

// throttling is a CPU quota that stops threads. Its waits are in none of starvation's.
func throttling(r *Run) *Finding {
	f := ofThreads(r, causeThrottling)
	if f.NotJudged != "" {
		return f
	}
	c, q := r.Compute, r.Compute.Quota
	switch {
	case q == nil:
		f.NotJudged = "the recorder saw no CPU control group of the run: mount /sys/fs/cgroup, or record it again " +
			"if an older llamatap recorded it; 'llamatap doctor' prints the quota"
		return f
	case q.Group == "":
		f.Evidence = "no control group around the run has a CPU quota"
	default:
		f.Evidence = fmt.Sprintf("a quota of %.4g CPUs stopped %s for %s of %s, in %d of its %d periods (%s)", q.CPUs,
			present.Plural(c.Threads, "compute thread"), ns(q.ThrottledNS), ns(c.LivedNS), q.Throttled, q.Periods,
			q.Group)
	}
	f.Remedy = "a larger CPU quota or fewer threads (-t)"
	return f.setShare(q.ThrottledNS, c.LivedNS, starvedShare)
}

// pageFaults is waiting for pages of files within graphs.
func pageFaults(r *Run) *Finding {
	f := &Finding{Cause: "page faults and reads of files", Of: ofGraphs, Files: rundir.WaitsName}
	if r.Waits == nil {
		f.NotJudged = "not recorded: --tap-host waits"
		return f
	}
	var wall, stalled int64
	var sum resource.WaitFigures
	for i := range r.Waits.Phases {
		if p := &r.Waits.Phases[i]; p.Phase == prefill || p.Phase == decode {
			wall += p.DurationNS
			// At least one thread waited, and for something else than a processor.
			stalled += max(0, min(p.StalledNS, p.WaitNS-p.PreemptedNS))
			sum.Add(&p.WaitFigures)
		}
	}
	if wall == 0 {
		f.NotJudged = "the waits are of no graph: record with llamatap run or a --tap-… flag"
		return f
	}
	places := map[string]int64{}
	for i := range r.Waits.Rows {
		row := &r.Waits.Rows[i]
		if row.Most != nil && (row.Phase == prefill || row.Phase == decode) {
			places[cmp.Or(row.Most.Tensor, row.Most.File)] += row.Most.WaitNS
		}
	}
	f.Evidence = fmt.Sprintf("graphs stood still for %s of %s at %d page faults, %d of them major, with %s read",
		ns(float64(stalled)), ns(float64(wall)), sum.Faults, sum.Major, present.Bytes(int64(sum.ReadBytes)))
	if len(places) > 0 {
		most := slices.MaxFunc(slices.Sorted(maps.Keys(places)), func(a, b string) int {
			return cmp.Compare(places[a], places[b])
		})
		f.Evidence += ", most on " + most
	}
	f.Remedy = "more memory or --mlock"
	if r.settings()["cold"].String() == "on" {
		f.Remedy = "recording without --tap-cold"
	}
	return f.setShare(float64(stalled), float64(wall), faultShare)
}

// bandwidth is memory that is read as fast as the machine can, which bounds decode on any machine.
func bandwidth(r *Run) *Finding {
	f := &Finding{Cause: "memory bandwidth", Phase: decode, Of: "the measured bandwidth", Normal: true,
		Files: rundir.EventsName}
	if r.Resources == nil {
		f.NotJudged = noEvents
		return f
	}
	roof := r.Resources.Roofline
	if roof == nil || roof.GBPerS <= 0 {
		f.NotJudged = "the limits of the machine were not measured before the run: 'llamatap doctor --roofline'"
		return f
	}
	if r.Resources.Memory.Elsewhere() {
		f.NotJudged = "a device computed, too, whose memory has other limits than were measured"
		return f
	}
	for _, p := range r.Resources.Phases {
		if p.Phase == decode && p.GBPerS != nil && p.NS != nil {
			f.Evidence = fmt.Sprintf("decode moved %s of %s that the machine reached when it was measured, by bytes "+
				"computed from shapes, in %s of graphs", present.Rate(*p.GBPerS*1e9), present.Rate(roof.GBPerS*1e9),
				ns(float64(*p.NS-p.FailedNS)))
			f.Remedy = "a smaller quantization, batches of several sequences or faster memory"
			return f.setShare(*p.GBPerS, roof.GBPerS, bandwidthShare)
		}
	}
	f.NotJudged = "decode has no graph of which time and bytes are known"
	return f
}

// onlyRAM reports whether all memory of backends that the events have is that of the CPU.
func (r *Run) onlyRAM() bool {
	return len(r.Resources.Memory.Types) > 0 && !r.Resources.Memory.Elsewhere()
}

// besideDevice is nodes that the CPU computes while a device computes others: tensors are copied at each change.
func besideDevice(r *Run) *Finding {
	f := &Finding{Cause: "layers on the CPU beside a device", Of: "the time of timed nodes", Files: rundir.EventsName}
	switch {
	case r.Resources == nil:
		f.NotJudged = noEvents
		return f
	case len(r.Resources.Placement) > 0 && r.Resources.DeviceChanges != nil:
	case r.onlyRAM():
		f.Evidence = "no memory of a device was allocated"
		return f.setShare(0, 1, besideShare)
	default:
		f.NotJudged = "no execution was timed inside: " + r.Resources.TimingFlag()
		return f
	}
	var onCPU, all int64
	var parts []string
	for _, d := range r.Resources.Placement {
		if all += d.NS; strings.HasPrefix(d.Device, "cpu") {
			onCPU += d.NS
		}
		parts = append(parts, fmt.Sprintf("%s on %s", ns(float64(d.NS)), d.Device))
	}
	if onCPU == all {
		onCPU = 0 // there is no device
	}
	f.Evidence = fmt.Sprintf("nodes took %s, with %s changes between devices per graph", strings.Join(parts, ", "),
		present.Digits(*r.Resources.DeviceChanges))
	f.Remedy = "more layers on the device (-ngl), or a smaller quantization that fits there"
	return f.setShare(float64(onCPU), float64(max(all, 1)), besideShare)
}

// ofSteps makes a finding about a part of the executions; nil for the share: it cannot be judged.
func ofSteps(r *Run, f *Finding, part func(*steps) float64, threshold float64) *Finding {
	f.Of, f.Files = ofGraphs, rundir.EventsName
	switch {
	case r.steps == nil:
		f.NotJudged = noEvents
	case r.Resources.GraphNS == 0:
		f.NotJudged = noTimes
	default:
		return f.setShare(part(r.steps), float64(r.Resources.GraphNS), threshold)
	}
	return f
}

// smallBatches is prompts in many small executions.
func smallBatches(r *Run) *Finding {
	f := ofSteps(r, &Finding{Cause: "prompts in small batches", Phase: prefill},
		func(s *steps) float64 { return s.Small.NS }, smallShare)
	if f.Share == nil {
		return f
	}
	p := r.steps.Small
	f.Evidence = fmt.Sprintf("%s of prompts with fewer than %d tokens, each before another one, took %s for %s",
		present.Plural(p.Graphs, "execution"), smallBatch, ns(p.NS), present.Plural(p.Tokens, "token"))
	f.Remedy = "larger batches"
	if r.Metadata == nil {
		return f
	}
	for _, c := range r.Metadata.Contexts {
		if 0 < c.NUBatch && c.NUBatch < smallBatch || 0 < c.NBatch && c.NBatch < smallBatch {
			f.Evidence += fmt.Sprintf(" (n_batch %d, n_ubatch %d)", c.NBatch, c.NUBatch)
			f.Remedy = "a larger -b and -ub"
			break
		}
	}
	return f
}

// oneByOne is sequences that are decoded one after the other, though they run at once.
func oneByOne(r *Run) *Finding {
	f := ofSteps(r, &Finding{Cause: "sequences decoded one by one", Phase: decode},
		func(s *steps) float64 { return s.Alone.NS }, aloneShare)
	if f.Share != nil {
		f.Evidence = fmt.Sprintf("%s of one token, each of another sequence than the one before, took %s",
			present.Plural(r.steps.Alone.Graphs, "execution"), ns(r.steps.Alone.NS))
		f.Remedy = "decoding the sequences in one batch"
	}
	return f
}

// recording is what llamatap itself cost the model.
func recording(r *Run) *Finding {
	f := &Finding{Cause: causeRecording, Of: ofWall, Files: rundir.MetadataName}
	if r.Metadata == nil || r.Metadata.Account == nil {
		f.NotJudged = "the run has no account: it is not sealed"
		return f
	}
	a := &r.Metadata.Account.Time
	if _, ok := a.Overhead(); !ok {
		f.NotJudged = "the account has no wall time of tokens"
		return f
	}
	if w := a.RunnableNS; w != nil && float64(*w) >= starvedShare*float64(a.WallNS) &&
		float64(a.WaitNS+a.CutNS) < recordingShare*float64(a.WallNS) {
		f.NotJudged = fmt.Sprintf("in %[2]s the model's threads waited %[1]s for a processor, all together, and "+
			"time in the tap contains such waits: record on an idle machine", ns(float64(*w)), ns(float64(a.WallNS)))
		return f
	}
	f.Evidence = fmt.Sprintf("recording took at least %s of %s: %s in the tap, %s waiting, %s in %s of graphs",
		ns(float64(a.LostNS())), ns(float64(a.WallNS)), ns(float64(a.TapNS)), ns(float64(a.WaitNS)),
		ns(float64(a.CutNS)), present.Plural(a.Cuts, "cut"))
	level, most := r.settings()["resource_level"].String(), max(a.TapNS, a.WaitNS, a.CutNS)
	switch {
	case most == a.WaitNS:
		f.Remedy = "fewer tensors, a larger --tap-memory or a faster disk"
	case most == a.CutNS && strings.EqualFold(r.settings()["resource_sample"].String(), "1"):
		f.Remedy = "--tap-resource-sample auto"
	case most == a.CutNS && level != "" && !strings.EqualFold(level, "off"):
		f.Remedy = "a lower --tap-resource-level"
	case most == a.CutNS:
		f.Remedy = "fewer tensors or a larger --tap-device-memory"
	default:
		f.Remedy = "fewer tensors or fewer recorders"
	}
	return f.setShare(float64(a.LostNS()), float64(a.WallNS), recordingShare)
}

// cacheFull is graphs that compute no token: context shifts of a full cache.
func cacheFull(r *Run) *Finding {
	var graphs, took int64
	f := ofSteps(r, &Finding{Cause: "a full KV cache", Phase: maintenance}, func(*steps) float64 {
		for _, p := range r.Resources.Phases {
			if p.Phase == maintenance && p.NS != nil {
				graphs, took = p.Graphs, *p.NS
			}
		}
		return float64(took)
	}, fullShare)
	if f.Share == nil {
		return f
	}
	f.Evidence = fmt.Sprintf("%s that move cells and compute no token took %s", present.Plural(graphs, "graph"),
		ns(float64(took)))
	if r.KV != nil {
		var ended int64
		for _, s := range r.KV.Sequences {
			for _, n := range s.Ended {
				ended += n
			}
		}
		f.Evidence += fmt.Sprintf("; %s of cells ended during the run", present.Plural(ended, "block"))
		f.Files += ", " + rundir.LivesName
	}
	f.Remedy = "a larger context (-c)"
	return f
}

// hasAllGraphs reports whether the events are of all graphs of the run.
func (r *Run) hasAllGraphs() bool {
	return r.Resources.GivenBack == "" && r.Resources.BadLines == 0 &&
		!slices.Contains(r.Resources.Levels, resource.Off.String()) &&
		!slices.ContainsFunc(r.Resources.Losses, func(l resources.Loss) bool {
			return l.Kind == resource.KindGraph.String()
		})
}

// fragmented is free cells of the KV cache below the last one in use, which attention reads as well.
func fragmented(r *Run) *Finding {
	f := &Finding{Cause: "a fragmented KV cache", Of: "the bytes that graphs read", Files: rundir.LivesName}
	switch {
	case r.KV == nil:
		f.NotJudged = r.noKV()
		return f
	case r.Resources == nil:
		f.NotJudged = noEvents
		return f
	case !r.hasAllGraphs():
		f.NotJudged = "cells are known of all graphs, bytes of some: the events lack the others"
		return f
	}
	var read, free, cells, freeCells int64
	for _, p := range r.Resources.Phases {
		switch {
		case p.Phase == resources.PhaseSetup || p.Phase == maintenance: // no attention of tokens
		case p.Read == nil || p.NoBytes > 0:
			f.NotJudged = "it is not known how many bytes graphs of " + p.Phase + " read"
			return f
		default:
			read += *p.Read
		}
	}
	for _, g := range r.KV.Gauges() {
		if a := g.Attended; a != nil {
			if a.Graphs < a.OfGraphs {
				f.NotJudged = fmt.Sprintf("cells that attention read are known of %d of %s, bytes of all", a.Graphs,
					present.Plural(a.OfGraphs, "graph"))
				return f
			}
			cells, freeCells = cells+a.Cells, freeCells+a.Free
			free += a.Free * g.CellBytes
		}
	}
	if cells == 0 || read == 0 {
		f.NotJudged = "it is not known which cells attention read"
		return f
	}
	f.Evidence = fmt.Sprintf("%s of the %s cells that attention read in each layer were free, below the last cell in "+
		"use: %s of the %s that graphs read", present.Percent(float64(freeCells)/float64(cells)), present.Count(cells),
		present.Bytes(free), present.Bytes(read))
	f.Remedy = "a cache for each sequence (without --kv-unified)"
	return f.setShare(float64(free), float64(read), freeShare)
}

// betweenGraphs returns the time between the graphs of generated tokens. What the tap did and the model waited for the
// recording is known of the whole run, not between graphs, so that a time which that could explain is not judged.
func betweenGraphs(r *Run) *Finding {
	f := &Finding{Cause: "sampling, grammar and the program's own work", Phase: decode,
		Of: "the wall time of decode", Files: rundir.EventsName}
	switch {
	case r.steps == nil:
		f.NotJudged = noEvents
		return f
	case r.steps.WallNS == 0:
		f.NotJudged = "no two decode graphs with measured times follow each other"
		return f
	}
	f.Evidence = fmt.Sprintf("%s of %s passed between one decode graph and the next, %s each on average",
		ns(float64(r.steps.GapNS)), ns(float64(r.steps.WallNS)), ns(float64(r.steps.GapNS)/float64(r.steps.Gaps)))
	f.Remedy = "a simpler sampler or grammar, or less work of the program for each token"
	gap, wall, own := float64(r.steps.GapNS), float64(r.steps.WallNS), 0.0
	if r.Metadata != nil && r.Metadata.Account != nil {
		own = min(float64(r.Metadata.Account.Time.TapNS+r.Metadata.Account.Time.WaitNS), gap)
	}
	switch {
	case gap >= betweenShare*wall && gap-own < betweenShare*wall:
		return &Finding{Cause: f.Cause, Phase: f.Phase, Of: f.Of, Files: f.Files, NotJudged: f.Evidence +
			", and the recording took up to " + ns(own) + " of that: record fewer tensors, or with fewer recorders"}
	case own >= recordingShare*wall:
		f.Evidence += "; the recording took up to " + ns(own) + " of that"
	}
	return f.setShare(gap, wall, betweenShare)
}
