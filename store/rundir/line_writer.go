package rundir

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"
)

// Hot path: Append copies a line into the buffer; no allocation in steady state.

// retryAfter is how long a failed write is not tried again.
const retryAfter = time.Second

// LineWriter writes lines. Its methods may be called from several goroutines; what Append gets in one call stays
// together. It starts a timer that Close stops.
type LineWriter struct {
	o     LineOptions
	mu    sync.Mutex
	timer *time.Timer
	armed bool

	file    io.WriteCloser
	part    int
	written int64  // bytes in this part
	lines   uint64 // whole lines in it
	buf     []byte // not written yet; begins amid a line after a short write
	waiting int    // line feeds in buf

	window time.Time // the second that counts are of
	counts []int     // lines of a kind in it
	lost   []uint64  // by kind and cause; not reported yet
	untold bool
	tellAt time.Time

	retry  time.Time // a write failed; none before this
	cause  int       // of that failure
	closed bool
	stats  LineStats
	totals [len(causes)]uint64
}

// NewLineWriter makes the first part.
func NewLineWriter(o LineOptions) (*LineWriter, error) {
	if o.BufferBytes == 0 {
		o.BufferBytes = 256 << 10
	}
	if o.FlushEvery == 0 {
		o.FlushEvery = time.Second
	}
	file, err := o.Create(o.Name)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", o.Name, err)
	}
	kinds := max(len(o.Kinds), 1)
	w := &LineWriter{
		o: o, file: file, buf: make([]byte, 0, o.BufferBytes), counts: make([]int, kinds),
		lost:  make([]uint64, kinds*len(causes)),
		stats: LineStats{Parts: 1},
	}
	if o.FlushEvery > 0 {
		w.timer = time.AfterFunc(o.FlushEvery, w.due)
		w.timer.Stop()
	}
	return w, nil
}

// Append takes a line without line feed, of a kind that is an index into LineOptions.Kinds. It reports whether the line
// was taken; one that was not is counted. It never waits for anything but the file.
func (w *LineWriter) Append(kind int, line []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Lines++
	if w.closed {
		w.lose(kind, len(causes)-1, 1)
		return false
	}
	if w.exceedsRate(kind) {
		w.lose(kind, 0, 1)
		return false
	}
	if w.untold && !time.Now().Before(w.tellAt) {
		w.report()
	}
	return w.put(kind, line)
}

// exceedsRate counts a line of a kind and reports whether it is beyond the limit of this second.
func (w *LineWriter) exceedsRate(kind int) bool {
	if kind >= len(w.o.Limits) || w.o.Limits[kind] <= 0 {
		return false
	}
	if now := time.Now(); now.Sub(w.window) >= time.Second {
		w.window = now
		clear(w.counts)
	}
	w.counts[kind]++
	return w.counts[kind] > w.o.Limits[kind]
}

// put buffers a line, or counts it as lost where the buffer is full and cannot be written.
func (w *LineWriter) put(kind int, line []byte) bool {
	size := len(line) + 1
	if w.o.PartBytes > 0 && w.written+int64(len(w.buf)) > 0 && w.written+int64(len(w.buf)+size) > w.o.PartBytes {
		w.next()
	}
	if len(w.buf)+size > w.o.BufferBytes {
		w.flush(false)
	}
	if len(w.buf) > 0 && len(w.buf)+size > w.o.BufferBytes {
		w.lose(kind, w.cause, 1)
		return false
	}
	w.buffer(line)
	w.waiting++
	w.arm()
	return true
}

func (w *LineWriter) buffer(line []byte) {
	w.buf = append(append(w.buf, line...), '\n')
	if w.o.Buffered != nil {
		w.o.Buffered.Add(int64(len(line) + 1))
	}
}

// arm sees to it that what waits is written, and what was lost reported, also when nothing more comes.
func (w *LineWriter) arm() {
	if w.timer != nil && !w.armed && !w.closed {
		w.armed = true
		w.timer.Reset(w.o.FlushEvery)
	}
}

func (w *LineWriter) due() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	if w.closed {
		return
	}
	if w.untold && !time.Now().Before(w.tellAt) {
		w.report()
	}
	w.flush(false)
	if w.untold || len(w.buf) > 0 {
		w.arm()
	}
}

// flush writes the buffer; what a failing file does not take stays in it. Unless now, a file that failed is left
// alone for a while.
func (w *LineWriter) flush(now bool) error {
	if len(w.buf) == 0 || !now && !w.retry.IsZero() && time.Now().Before(w.retry) {
		return nil
	}
	n, err := w.file.Write(w.buf)
	n = max(0, min(n, len(w.buf)))
	whole := bytes.Count(w.buf[:n], []byte{'\n'})
	w.waiting -= whole
	w.lines += uint64(whole)
	w.written += int64(n)
	w.stats.Bytes += int64(n)
	w.buf = w.buf[:copy(w.buf, w.buf[n:])]
	if w.o.Buffered != nil {
		w.o.Buffered.Add(-int64(n))
	}
	if err == nil && len(w.buf) > 0 {
		err = io.ErrShortWrite
	}
	if err != nil {
		err = fmt.Errorf("write %s: %w", PartName(w.o.Name, w.part), err)
		w.fail(err)
		return err
	}
	w.retry = time.Time{}
	return nil
}

// fail notes an error of the file.
func (w *LineWriter) fail(err error) {
	w.cause = len(causes) - 1
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		w.cause = len(causes) - 2
	}
	w.retry = time.Now().Add(retryAfter)
	if w.stats.Err == nil {
		w.stats.Err = err
	}
}

// next goes over to the next part. Where that cannot be made, this one stays in use.
func (w *LineWriter) next() {
	if !w.retry.IsZero() && time.Now().Before(w.retry) {
		return
	}
	if w.flush(true) != nil {
		return
	}
	name := PartName(w.o.Name, w.part+1)
	file, err := w.o.Create(name)
	if err != nil {
		w.fail(fmt.Errorf("make %s: %w", name, err))
		return
	}
	w.end()
	w.file, w.written, w.lines = file, 0, 0
	w.part++
	w.stats.Parts++
}

// end closes the part. A file that fails to close has lost its lines.
func (w *LineWriter) end() error {
	err := w.file.Close()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("close %s: %w", PartName(w.o.Name, w.part), err)
	w.fail(err)
	w.totals[w.cause] += w.lines
	return err
}

// lose counts lost lines, to be reported within a second.
func (w *LineWriter) lose(kind, cause int, n uint64) {
	w.totals[cause] += n
	if kind < len(w.counts) {
		w.lost[kind*len(causes)+cause] += n
	}
	if !w.untold {
		w.untold = true
		w.tellAt = time.Now().Add(time.Second)
	}
	w.arm()
}

// report writes a line for each kind and cause of losses. What finds no room is reported later.
func (w *LineWriter) report() {
	if w.o.Loss == nil {
		w.untold = false
		return
	}
	var line []byte
	for i, n := range w.lost {
		if n == 0 {
			continue
		}
		line = w.o.Loss(line[:0], LineLoss{Kind: i / len(causes), Cause: causes[i%len(causes)], Count: n})
		if len(w.buf)+len(line)+1 > w.o.BufferBytes {
			w.flush(false)
		}
		if len(w.buf) > 0 && len(w.buf)+len(line)+1 > w.o.BufferBytes {
			w.tellAt = time.Now().Add(time.Second)
			return
		}
		w.buffer(line)
		w.stats.Lines++
		w.waiting++
		w.lost[i] = 0
	}
	w.untold = false
}

// Flush writes what is buffered, and what was lost.
func (w *LineWriter) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.report()
	return w.flush(true)
}

// Stats returns what was done so far.
func (w *LineWriter) Stats() LineStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Lost = map[string]uint64{}
	for i, n := range w.totals {
		if n > 0 {
			s.Lost[causes[i]] = n
		}
	}
	return s
}

// Close writes what is buffered and closes the part. It returns its own error, and may be called twice; what was
// lost is in Stats.
func (w *LineWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.report()
	err := w.flush(true)
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.totals[w.cause] += uint64(w.waiting)
	w.waiting = 0
	return errors.Join(err, w.end())
}
