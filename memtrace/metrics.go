package memtrace

// Metrics are those of a region, or of all regions of a type. Blocks are counted when their lives end, or the trace does.
type Metrics struct {
	Blocks      int64
	Written     int64 // blocks that were written
	WrittenOnce int64 // of these, those that were written once
	LiveNS      int64 // sum of the lives of blocks
	Reads       int64
	Writes      int64
	BytesRead   uint64
	// BytesWritten and BytesRead are of what was accessed.
	BytesWritten uint64
	// Retention is the time from a write of a block to the last read of it before the next write, or the end of its life; 0 where nobody read
	// it. Where the trace ended first it is censored. Nanoseconds.
	Retention Survival
	// IAI is the time between two accesses to a block. Nanoseconds.
	IAI Distribution
	// Reuse is how many bytes of other blocks were touched between two accesses to a block.
	Reuse      Distribution
	sequential int64
	strides    int64
	isBegun    bool
	next       uint64 // offset behind the access before
	windows    []workingSet
}

func newMetrics(windows int) *Metrics { return &Metrics{windows: make([]workingSet, windows)} }

// stride notes where an access lies behind the one before it in its region.
func (m *Metrics) stride(a *Touch) {
	if m.isBegun {
		m.strides++
		if a.Offset == m.next {
			m.sequential++
		}
	}
	m.isBegun, m.next = true, a.Offset+a.Size
}

// WriteOnce is the share of written blocks that were written once; false where none was written.
func (m *Metrics) WriteOnce() (ratio float64, ok bool) {
	if m.Written == 0 {
		return 0, false
	}
	return float64(m.WrittenOnce) / float64(m.Written), true
}

// ReadFrequency is how often a block was read, per second of its life; false where none lived for any time.
func (m *Metrics) ReadFrequency() (hz float64, ok bool) {
	if m.LiveNS <= 0 {
		return 0, false
	}
	return float64(m.Reads) / (float64(m.LiveNS) / 1e9), true
}

// Locality is the share of accesses that begin where the one before in the region ended; false with fewer than two. Of a type of region,
// accesses of different regions count as behind each other too.
func (m *Metrics) Locality() (score float64, ok bool) {
	if m.strides == 0 {
		return 0, false
	}
	return float64(m.sequential) / float64(m.strides), true
}

// workingSet is the bytes of different blocks that were touched in windows of one length.
type workingSet struct {
	window    int64 // number of the current one, from 1
	bytes     uint64
	sum, most uint64
	count     int64 // windows, those in which nothing was touched too
}

func (w *workingSet) add(window int64, bytes uint64) {
	if window != w.window {
		w.finish(window - 1)
		w.window, w.bytes = window, 0
	}
	w.bytes += bytes
}

// finish counts the current window, and says that there were so many.
func (w *workingSet) finish(windows int64) {
	if w.window > 0 {
		w.sum += w.bytes
		w.most = max(w.most, w.bytes)
	}
	w.window, w.bytes, w.count = 0, 0, windows
}

// WorkingSet is the bytes of the different blocks that were touched in a window of length k of the meter's, on average over all windows of
// the trace, and at most. A block that is freed and comes again within a window is another one. It is valid when the trace has ended.
func (m *Metrics) WorkingSet(k int) (mean float64, most uint64) {
	w := &m.windows[k]
	if w.count == 0 {
		return 0, 0
	}
	return float64(w.sum) / float64(w.count), w.most
}

// Suitability says how well memory that retains what is written for a limited time suits a region.
type Suitability string

// The labels of mrm-trace.
const (
	HighMRM   Suitability = "high_mrm"
	MediumMRM Suitability = "medium_mrm"
	LowMRM    Suitability = "low_mrm"
)

// Thresholds say from what on a label is given. The zero value has those of mrm-trace: high from a write-once ratio of 0.8 and a 99th percentile
// of the retention of 10 s on, medium from 0.5 and a median of 1 s on.
type Thresholds struct {
	HighWriteOnce, MediumWriteOnce float64
	HighP99NS, MediumP50NS         int64
}

// DefaultThresholds are those of mrm-trace.
func DefaultThresholds() Thresholds {
	return Thresholds{HighWriteOnce: 0.8, MediumWriteOnce: 0.5, HighP99NS: 10e9, MediumP50NS: 1e9}
}

// Label is the suitability by mrm-trace's rules. They take the 99th percentile for high and the median for medium, so that they are no order
// by one quantity. It is false where nothing was written: then nothing is known.
func (m *Metrics) Label(t Thresholds) (Suitability, bool) {
	if t == (Thresholds{}) {
		t = DefaultThresholds()
	}
	once, ok := m.WriteOnce()
	if !ok {
		return "", false
	}
	p50, _ := m.Retention.Quantile(0.5)
	p99, _ := m.Retention.Quantile(0.99)
	switch {
	case once >= t.HighWriteOnce && p99 >= t.HighP99NS:
		return HighMRM, true
	case once >= t.MediumWriteOnce && p50 >= t.MediumP50NS:
		return MediumMRM, true
	}
	return LowMRM, true
}
