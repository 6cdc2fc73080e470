package host

import "slices"

// Report is what an analysis found. What is not known is absent.
type Report struct {
	Run      string   `json:"run,omitempty"` // the run directory
	Model    string   `json:"model,omitempty"`
	Block    *Source  `json:"block_io,omitempty"`
	System   *Source  `json:"system_metrics,omitempty"`
	WindowS  float64  `json:"window_s,omitempty"` // what snapshots were put together to
	Bounds   *Bounds  `json:"bucket_bounds,omitempty"`
	Notes    []string `json:"notes"`
	Warnings []string `json:"warnings,omitempty"` // what was passed over in files
	Alerts   []string `json:"alerts,omitempty"`   // devices beyond the limits that STRAP-LLM's documentation recommends

	DeviceCount int       `json:"device_count"`
	Devices     []*Device `json:"devices"`       // the busiest first, as many as were asked for
	All         *Device   `json:"all,omitempty"` // all devices together
	// What llamatap's own recorder adds: operations by device, and processes and control groups by what was done for
	// them.
	Operations []*OpRow `json:"operations,omitempty"`
	Processes  []*OpRow `json:"processes,omitempty"`
	Cgroups    []*OpRow `json:"cgroups,omitempty"`
	// Importance is latency against metrics; nil where only one of them was recorded.
	Importance *Importance `json:"importance,omitempty"`
	OffCPU     *TopIDs     `json:"off_cpu,omitempty"`
	Faults     *TopIDs     `json:"page_faults,omitempty"`
	Compute    ComputeUse  `json:"-"`
	Prof       *Prof       `json:"prof,omitempty"`
	// Phases are what happened in which phase of the run, where its times are known.
	Phases []PhaseRow `json:"phases,omitempty"`

	percents []float64 // the percentiles that were asked for
}

// Source is a file that was read.
type Source struct {
	Lines
	Snapshots int64 `json:"snapshots"`
	// Times in seconds since 1970; absent where no snapshot has one.
	First *float64 `json:"first,omitempty"` // when the first interval began
	Last  *float64 `json:"last,omitempty"`
	// SecondsRecorded is the sum of the intervals, SpacingS the usual distance of snapshots.
	SecondsRecorded float64 `json:"recorded_s"`
	SpacingS        float64 `json:"spacing_s,omitempty"`
	Untimed         int64   `json:"snapshots_without_time,omitempty"`

	// Origins counts snapshots by how they were got (bpf, bpf_plain, proc), where the file says it. Missing is what
	// could not be had then, and Lost what was lost, by cause.
	Origins map[string]int64   `json:"origins,omitempty"`
	Missing []string           `json:"missing,omitempty"`
	Lost    map[string]float64 `json:"lost,omitempty"`

	offset    float64    // between the clocks, from the last snapshot with both; 0 without one
	intervals []interval // of the first maxSamples snapshots, in the order of the file
}

// addSnapshot notes a snapshot.
func (s *Source) addSnapshot(time, seconds float64) {
	s.Snapshots++
	if seconds > 0 {
		s.SecondsRecorded += seconds
	}
	if len(s.intervals) < maxSamples {
		s.intervals = append(s.intervals, interval{from: time - orZero(seconds), to: time})
	}
	if time != time {
		s.Untimed++
		return
	}
	began := time - max(seconds, 0)
	if seconds != seconds {
		began = time
	}
	if s.First == nil || began < *s.First {
		s.First = &began
	}
	if s.Last == nil || time > *s.Last {
		s.Last = &time
	}
}

// maxWords bounds what is kept of the words of a file.
const maxWords = 20

// addRecording notes how a snapshot was recorded, and how far its clocks are apart.
func (s *Source) addRecording(how *recording, offset float64) {
	if offset == offset {
		s.offset = offset
	}
	if how.Origin != "" {
		addWord(&s.Origins, string(how.Origin), 1)
	}
	for _, what := range how.Missing {
		if len(s.Missing) < maxWords && what != "" && !slices.Contains(s.Missing, string(what)) {
			s.Missing = append(s.Missing, string(what))
		}
	}
	for cause, n := range how.Lost {
		if n.v > 0 {
			addWord(&s.Lost, cause, n.v)
		}
	}
}

// addWord adds to what is counted of a word, of at most maxWords of them.
func addWord[N int64 | float64](to *map[string]N, word string, n N) {
	if *to == nil {
		*to = map[string]N{}
	}
	if _, there := (*to)[word]; there || len(*to) < maxWords {
		(*to)[word] += n
	}
}

// spacing is the usual distance in time of snapshots, the median; 0 where there are not two.
func (s *Source) spacing() float64 {
	var times []float64
	for i := range s.intervals {
		if t := s.intervals[i].to; t == t {
			times = append(times, t)
		}
	}
	slices.Sort(times)
	return medianGap(times)
}

// medianGap is the usual distance of times, which ascend, from one to the next; 0 where there are not two.
func medianGap(times []float64) float64 {
	if len(times) < 2 {
		return 0
	}
	gaps := make([]float64, len(times)-1)
	for i := range gaps {
		gaps[i] = times[i+1] - times[i]
	}
	slices.Sort(gaps)
	return gaps[len(gaps)/2]
}

// Bounds counts how the file gave the bounds of buckets. Latencies are computed from slots, whose bounds are known.
type Bounds struct {
	Right        int64 `json:"right,omitempty"`          // buckets
	Corrected    int64 `json:"corrected,omitempty"`      // buckets with STRAP-LLM's bounds, which are twice as high
	Odd          int64 `json:"odd,omitempty"`            // buckets with bounds that are neither
	WithoutSlot  int64 `json:"without_slot,omitempty"`   // of which the bounds were taken
	TakenAsStrap bool  `json:"taken_as_strap,omitempty"` // and taken as STRAP-LLM's
	Unusable     int64 `json:"unusable,omitempty"`       // whose requests are not counted
	// devices in snapshots of which total is not the sum of the buckets
	TotalsDiffer int64 `json:"totals_differ,omitempty"`
}

// Importance is how far metrics go with the latency.
type Importance struct {
	Percent float64         `json:"target_percentile"` // of the latency that is compared
	StepS   float64         `json:"step_s"`            // of a lag
	Lags    int             `json:"lags"`              // to either side
	Rows    []ImportanceRow `json:"rows"`              // of all devices, then device by device; each by |r|
	// LeftOut is how many snapshots were not compared, because there are more than are kept.
	LeftOut int64 `json:"left_out,omitempty"`

	// Trend is the latency of all devices and the metrics over time, for pictures.
	Trend []Trend `json:"-"`
}

// ImportanceRow is a correlation of a device's latency.
type ImportanceRow struct {
	DeviceID int64  `json:"device_id"` // -1: all together
	Device   string `json:"device_name"`
	Correlation
}

// Trend is a moment: the latency, and the metrics that belong to it; NaN where one is not known.
type Trend struct {
	Time      float64
	LatencyUS float64
	Metric    [metrics]float64
}

// ComputeUse is how the threads that computed graphs spent the intervals in which they did.
type ComputeUse struct {
	Threads    int     // different ones
	Intervals  int64   // in which there was one
	Seconds    float64 // that the one that lived longest lived in each of these
	LivedNS    float64 // of all threads: threads × time
	RunnableNS float64 // of LivedNS, waiting for a processor
	Quota      *QuotaUse
}

// QuotaUse is what a CPU quota did to these threads; nil where the recorder did not see their control group.
type QuotaUse struct {
	Group              string  // "": no group around the process had a quota
	CPUs               float64 // quota ÷ period
	Periods, Throttled int64   // and of them, those in which the quota was used up
	ThrottledNS        float64 // the part of RunnableNS that the quota explains, at least

	stoppedNS float64
}

// TopIDs are the ids that something was counted of most.
type TopIDs struct {
	Total float64 `json:"total"`
	IDs   int     `json:"ids"`
	Top   []IDRow `json:"top"`
	// Forgotten is how often the sum of an id was dropped to bound memory, and MostForgotten the largest such sum.
	Forgotten     int64   `json:"forgotten,omitempty"`
	MostForgotten float64 `json:"most_forgotten,omitempty"`
	// By is Total by reason, of off-CPU times where the recorder reports them.
	By *ByReason `json:"by_reason,omitempty"`
	// Entries are single figures, Beyond those that are longer than the interval they stand in, Longest the longest
	// of all.
	Entries int64   `json:"entries,omitempty"`
	Beyond  int64   `json:"entries_longer_than_interval,omitempty"`
	Longest float64 `json:"longest,omitempty"`
}

// IDRow is what was counted of an id.
type IDRow struct {
	ID    string    `json:"id"`
	Name  string    `json:"comm,omitempty"`
	TGID  int64     `json:"tgid,omitempty"`
	Role  string    `json:"role,omitempty"` // of a thread (resource.ThreadRole)
	Value float64   `json:"value"`
	Share float64   `json:"share"`
	By    *ByReason `json:"by_reason,omitempty"`
}

// PhaseRow is what happened while a run was in a phase: in the intervals in which it computed graphs of that phase
// and no other, of several ("mixed"), or none ("no graph"). Tokens are the run's where
// events say which those are, but for drafts that were rejected behind the last graph.
type PhaseRow struct {
	Phase string `json:"phase"`
	// Of block I/O:
	BlockIntervals int64   `json:"block_intervals"`
	BlockSeconds   float64 `json:"block_s"`
	// that were computed in them; a token at an edge counts by its share
	BlockTokens      float64      `json:"block_tokens"`
	Requests         uint64       `json:"requests"`
	RequestsPerToken *float64     `json:"requests_per_token,omitempty"`
	MeanUS           *float64     `json:"latency_mean_us,omitempty"`
	Percentiles      []Percentile `json:"latency_percentiles,omitempty"`
	// Of system metrics:
	SystemIntervals int64    `json:"system_intervals"`
	SystemSeconds   float64  `json:"system_s"`
	SystemTokens    float64  `json:"system_tokens"`
	OffCPUMS        *float64 `json:"off_cpu_ms,omitempty"`
	OffCPUPerToken  *float64 `json:"off_cpu_ms_per_token,omitempty"`
	FutexUnknownMS  *float64 `json:"futex_unknown_ms,omitempty"` // not in OffCPUMS
	Faults          *float64 `json:"page_faults,omitempty"`
	FaultsPerToken  *float64 `json:"page_faults_per_token,omitempty"`
}
