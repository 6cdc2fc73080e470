package host

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
)

// note says in words what a reader of the figures has to know, and collects the warnings of files. further is the
// number of devices without rows of their own.
func (r *Report) note(further int) {
	r.Notes = []string{}
	say := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
	sources := []*Source{r.Block, r.System}
	if r.Prof != nil {
		sources = append(sources, &r.Prof.Source)
	}
	for _, source := range sources {
		if source == nil {
			continue
		}
		if w := source.warning(); w != "" {
			r.Warnings = append(r.Warnings, w)
		}
		source.noteRecording(say)
		if source.Untimed > 0 {
			say("%s of %s without a time: in the sums, and not in what happened over time",
				present.Plural(source.Untimed, "snapshot"), source.Path)
		}
	}
	if b := r.Bounds; b != nil {
		b.noteBounds(say)
	}
	r.alert()
	if further > 0 {
		say("'all devices' alone counts %s; %d have rows of their own", present.Plural(further, "further device"),
			maxDevices)
	}
	if im := r.Importance; im != nil && im.LeftOut > 0 {
		say("only the first %d snapshots are held against each other: that leaves out %d", maxSamples, im.LeftOut)
	}
	if im := r.Importance; im != nil && !slices.ContainsFunc(im.Rows,
		func(row ImportanceRow) bool { return row.R != nil }) &&
		slices.ContainsFunc(im.Rows, func(row ImportanceRow) bool { return row.N > 0 }) {
		say("no correlation could be computed, and none is drawn: that takes %d snapshots of each file in which "+
			"values change", fewest)
	}
	if t := r.OffCPU; t != nil && t.Beyond > 0 {
		say("%d of %d off-CPU times took longer than the interval they stand in, the longest %s: such are whole gaps, "+
			"recorded when they ended, "+
			"idle sleep among them (STRAP-LLM's recorder does so)", t.Beyond, t.Entries, msText(t.Longest))
	}
	if t := r.OffCPU; t != nil && t.By != nil && t.By.Unknown > 0 {
		say("of %s in futexes it is not known whether that was for a lock or for work: no off-CPU time has it; "+
			"docs/HOST_SYSTEM.md has the rule", msText(t.By.Unknown))
	}
	if t := r.OffCPU; t != nil && t.Forgotten > 0 {
		say("off-CPU times: more than %d ids; those with the least were dropped on the way, %s, none above %s",
			maxIDs, present.Plural(t.Forgotten, "time"), msText(t.MostForgotten))
	}
	if t := r.Faults; t != nil && t.Forgotten > 0 {
		say("page faults: more than %d ids; those with the fewest were dropped on the way, %s, none above %s",
			maxIDs, present.Plural(t.Forgotten, "time"), threeDigits(t.MostForgotten))
	}
	switch {
	case r.Block == nil && r.System == nil:
	case r.Block == nil:
		say("no block I/O was given: there are no latencies, and metrics cannot be held against them")
	case r.System == nil:
		say("no system metrics were given: latencies cannot be held against them; 'llamatap host system' records some")
	}
}

// The limits of STRAP-LLM's documentation.
const (
	alertLatencyUS = 10_000 // p99
	alertDepth     = 100    // requests in flight
)

// alert lists what an operator should look at.
func (r *Report) alert() {
	if r.Block == nil {
		return
	}
	alert := func(format string, args ...any) { r.Alerts = append(r.Alerts, fmt.Sprintf(format, args...)) }
	for _, d := range r.Devices {
		slot, ok := d.latency.Percentile(99)
		if ok && slotHigh(slot) > alertLatencyUS {
			alert("%s: p99 latency is between %s and %s, above the limit of 10 ms", d.Name,
				usText(float64(slotLow(slot))), usText(float64(slotHigh(slot))))
		}
		if d.Queue == nil {
			continue
		}
		if deepest := max(d.Queue.Max, uint64(valueOr(d.Queue.WithinMax, 0))); deepest > alertDepth {
			alert("%s: %d requests in flight, above the limit of %d", d.Name, deepest, alertDepth)
		}
	}
	if r.Block.Snapshots > 0 && (r.All == nil || r.All.Requests == 0) {
		alert("no block device completed a request in %s: data came from the page cache, or the recorder saw nothing",
			present.Plural(r.Block.Snapshots, "snapshot"))
	}
}

func valueOr(v *float64, otherwise float64) float64 {
	if v == nil {
		return otherwise
	}
	return *v
}

// noteRecording notes how the file was recorded, if not in the best way.
func (s *Source) noteRecording(say func(string, ...any)) {
	if n := s.Origins[resource.OriginPlain]; n > 0 {
		say("plain tracepoints recorded %d of %s of %s, for the kernel had no types of its own (BTF)", n,
			present.Plural(s.Snapshots, "snapshot"), s.Path)
	}
	if n := s.Origins[resource.OriginProc]; n > 0 {
		say("/proc gave %d of %s of %s: without latencies and without reasons of waiting", n,
			present.Plural(s.Snapshots, "snapshot"), s.Path)
	}
	var lost []string
	for _, cause := range slices.Sorted(maps.Keys(s.Lost)) {
		lost = append(lost, cause+" "+threeDigits(s.Lost[cause]))
	}
	if lost != nil {
		say("%s: the recorder's own count of what is missing or was odd: %s", s.Path, strings.Join(lost, ", "))
	}
	for _, what := range s.Missing {
		say("%s: not recorded: %s", s.Path, what)
	}
}

// noteBounds notes how the file gave the bounds of buckets.
func (b *Bounds) noteBounds(say func(string, ...any)) {
	if b.Corrected > 0 {
		say("%s with STRAP-LLM's bounds, twice as high as they are: corrected by the slot; figures are half of what "+
			"its analyser says", present.Plural(b.Corrected, "bucket"))
	}
	if b.TakenAsStrap {
		say("%s without a slot: bounds were taken as STRAP-LLM's, and halved, as --strap-buckets asks",
			present.Plural(b.WithoutSlot, "bucket"))
	} else if b.WithoutSlot > 0 {
		say("%s without a slot: bounds were taken as they stand; --strap-buckets takes them as STRAP-LLM's, twice as "+
			"high", present.Plural(b.WithoutSlot, "bucket"))
	}
	if b.Odd > 0 {
		say("%s with other bounds than those of the slot: the slot was believed", present.Plural(b.Odd, "bucket"))
	}
	if b.Unusable > 0 {
		say("%s with neither slot nor usable bounds: requests in there are not counted",
			present.Plural(b.Unusable, "bucket"))
	}
	if b.TotalsDiffer > 0 {
		say("the total of a device is not the sum of its buckets, %s: the buckets were counted",
			present.Plural(b.TotalsDiffer, "time"))
	}
}
