package memtrace

// Metrics are those of a region, or of all regions of a type. What is counted in bytes counts each byte as often as
// it lived: figures do not depend on how finely memory is cut.
type Metrics struct {
	Reads  int64 // accesses
	Writes int64
	// BytesRead and BytesWritten are what was accessed.
	BytesRead, BytesWritten uint64
	// Written is bytes whose life has ended, with the trace at the latest, and that had been written; WrittenOnce
	// those of them that were once. Of a region that shares its memory with others a life ends when another one
	// writes there.
	Written, WrittenOnce int64
	// LiveNS adds up how long each byte lived: byte · ns.
	LiveNS float64
	// IAI is the time between two accesses to a byte, in nanoseconds, counted in bytes.
	IAI Tally
	// Reuse is how many other bytes were touched between two accesses to a byte, counted in bytes.
	Reuse   Tally
	windows []workingSet
	// Hulls is how many strided accesses were taken for all that lies from their first byte to their last; Coarse
	// how many accesses were reported as sums over a time, or of rows that nobody named, so that only their bytes
	// count. Reads and writes are exact all the same.
	Hulls, Coarse int64
	// Grain is the number of bytes to which ranges were widened because there were too many different ones; 1: none
	// was.
	Grain uint64
	lines int64 // as in counter
	jumps int64
	// Retention is the time from a write of a byte to the last read of it before the next write, or the end of its
	// life; 0 where nobody read it. Where the trace ended first it is censored. Nanoseconds, counted in bytes.
	Retention Survival
}

// TypeMetrics are those of a type of region.
type TypeMetrics struct {
	Metrics
	Regions int          // that were accessed
	IAIs    Distribution // what IAI adds up
	Reuses  Distribution // what Reuse adds up
	// Strides is how far accesses begin from where the one before in their region ended, in bytes, either way.
	Strides Distribution
}

// merge takes in what is known of a region. Bytes that were written, and working sets, are counted by the type itself.
func (m *Metrics) merge(o *Metrics) {
	m.Reads += o.Reads
	m.Writes += o.Writes
	m.BytesRead += o.BytesRead
	m.BytesWritten += o.BytesWritten
	m.LiveNS += o.LiveNS
	m.Retention.Merge(&o.Retention)
	m.IAI.merge(&o.IAI)
	m.Reuse.merge(&o.Reuse)
	m.Hulls += o.Hulls
	m.Coarse += o.Coarse
	m.Grain = max(m.Grain, o.Grain)
	m.lines += o.lines
	m.jumps += o.jumps
}

// WriteOnce is the share of written bytes that were written once; false where none was written.
func (m *Metrics) WriteOnce() (ratio float64, ok bool) {
	if m.Written == 0 {
		return 0, false
	}
	return float64(m.WrittenOnce) / float64(m.Written), true
}

// ReadFrequency is how often a byte was read, per second of its life; false where none lived for any time.
func (m *Metrics) ReadFrequency() (hz float64, ok bool) {
	if m.LiveNS <= 0 {
		return 0, false
	}
	return float64(m.BytesRead) / (m.LiveNS / 1e9), true
}

// Locality is the share of the lines of 64 bytes that were touched, but for the first, that lie after the one that
// was touched before in their region; false with fewer than two.
func (m *Metrics) Locality() (score float64, ok bool) {
	if m.lines < 2 {
		return 0, false
	}
	return 1 - float64(m.jumps)/float64(m.lines-1), true
}

// workingSet is the different bytes that were touched in windows of one length.
type workingSet struct {
	window    int64 // number of the current one, from 1
	bytes     int64
	sum, most int64
	count     int64 // windows, those in which nothing was touched too
}

func (w *workingSet) add(window, bytes int64) {
	if window != w.window {
		w.finish(window - 1)
		w.window = window
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

// WorkingSet is how many different bytes were touched in a window of length k of the meter's, on average over all
// windows of the trace, and at most. A byte that is freed and comes again within a window is another one. It is
// valid when the trace has ended.
func (m *Metrics) WorkingSet(k int) (mean float64, most int64) {
	w := &m.windows[k]
	if w.count == 0 {
		return 0, 0
	}
	return float64(w.sum) / float64(w.count), w.most
}
