package perf

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/llamatap/llamatap/memtrace"
)

// ErrText occurs when a text is none of perf script, or has a line that cannot be read.
var ErrText = errors.New("no text of perf script")

// TextOptions say how a text was made.
type TextOptions struct {
	// Fields is the list that was given to perf script -F, in any order. Empty: it is found out from the lines, per
	// event.
	Fields string
}

// Stats is what a file held.
type FileStats struct {
	Samples   uint64 // returned as accesses
	NoAddress uint64 // samples without an address of data, passed over
	Lost      uint64 // records or samples that perf says were lost
	Throttles uint64
	Gaps      uint64 // pieces of traces that lack what found no room
	Collided  uint64 // pieces of traces in which samples were skipped, for one was being taken
	Other     uint64 // lines or records that are not samples
	Bad       uint64 // lines or records that could not be read
	FirstBad  error  // why the first of them could not
}

// maxLine is the longest line that is read; a longer one is bad.
const maxLine = 1 << 17

// Text reads the text of perf script.
type Text struct {
	in      *bufio.Reader
	line    int
	fixed   *layout
	layouts map[string]*layout // by event, where they are found out
	known   map[string]event
	pending memtrace.Access // a sample whose call chain follows
	waits   bool
	single  bool // it is a page fault of one number, of which nobody said which
	stats   FileStats
}

// event is what is known of an event by its name.
type event struct {
	collector memtrace.Collector
	op        memtrace.AccessOp
	twoSyms   bool // its address has a symbol of its own
}

// NewText reads the text of perf script.
func NewText(r io.Reader, o TextOptions) (*Text, error) {
	t := &Text{in: bufio.NewReaderSize(r, maxLine), layouts: map[string]*layout{}, known: map[string]event{}}
	if o.Fields != "" {
		var err error
		if t.fixed, err = parseFields(o.Fields); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Stats returns the counts of the records read so far.
func (t *Text) Stats() FileStats { return t.stats }

// Next reads the next access. After the last it returns io.EOF; if the text had lines, but no sample, an error that
// wraps ErrText. Lines that cannot be read are counted and passed over.
func (t *Text) Next(a *memtrace.Access) error {
	for {
		line, err := t.next()
		if err == io.EOF {
			return t.end(a)
		}
		if err != nil {
			return err
		}
		switch {
		case len(line) == 0:
			if t.flush(a) {
				return nil
			}
		case line[0] == '#':
			t.comment(line)
		case line[0] == '\t':
			t.chain(line)
		default:
			flushed := t.flush(a)
			t.sample(line)
			if flushed || t.waits && !t.chained() && t.flush(a) {
				return nil
			}
		}
	}
}

// madeBy stands before the list of fields in a comment of a text that 'llamatap mrm run' wrote.
var madeBy = []byte("perf script --ns -F ")

// comment takes the fields of the text from a comment that names them, where nobody else did.
func (t *Text) comment(line []byte) {
	_, list, ok := bytes.Cut(line, madeBy)
	if list, _, _ = bytes.Cut(list, []byte(" ")); !ok || t.fixed != nil {
		return
	}
	if fixed, err := parseFields(string(list)); err == nil {
		t.fixed = fixed
	}
}

// chained reports whether the lines of a call chain may follow the sample that was read last. That of a page fault may
// have one number, which is the address of the instruction, or, if a call chain follows, that of the fault.
func (t *Text) chained() bool { return t.pending.IP == 0 || t.single }

// flush hands on the sample that waits for its call chain.
func (t *Text) flush(a *memtrace.Access) bool {
	if !t.waits {
		return false
	}
	t.waits, t.single = false, false
	if t.pending.Addr == 0 {
		t.stats.NoAddress++
		return false
	}
	t.stats.Samples++
	*a = t.pending
	return true
}

func (t *Text) end(a *memtrace.Access) error {
	if t.flush(a) {
		return nil
	}
	switch s := t.stats; {
	case s.Samples > 0:
	case s.NoAddress > 0:
		return fmt.Errorf("%w: none of its %d samples has an address of data: record with perf mem record or perf "+
			"record -d, and print it: perf script -F +addr", ErrText, s.NoAddress)
	case s.Bad > 0:
		why := strings.Replace(s.FirstBad.Error(), ErrText.Error()+": ", "", 1)
		return fmt.Errorf("%w: none of its lines is a sample: %s; give what perf script prints, or perf.data", ErrText,
			why)
	}
	return io.EOF
}

// next returns the next line, without its end. A line that is too long is bad.
func (t *Text) next() ([]byte, error) {
	for {
		line, err := t.in.ReadSlice('\n')
		if len(line) > 0 || err == nil {
			t.line++
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = t.in.ReadSlice('\n')
			}
			t.bad(fmt.Errorf("%w: it has more than %d bytes", ErrText, maxLine))
			continue
		}
		if err == io.EOF && len(line) == 0 {
			return nil, io.EOF
		}
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read the text of perf script: %w", err)
		}
		return bytes.TrimRight(line, "\r\n"), nil
	}
}

func (t *Text) bad(err error) { t.stats.bad(fmt.Errorf("line %d: %w", t.line, err)) }

// chain takes the first address of a call chain as the sample's own.
func (t *Text) chain(line []byte) {
	if !t.waits || !t.chained() {
		return
	}
	if t.single {
		t.single = false
		t.pending.Addr = t.pending.IP
	}
	c := cursor{b: line}
	if ip, ok := c.hex(); ok {
		t.pending.IP = ip
		t.pending.Symbol, _ = c.symbol()
	}
}

// sample reads the line of a sample into pending.
func (t *Text) sample(line []byte) {
	h, rest, ok := parseHead(line)
	if !ok {
		t.bad(fmt.Errorf("%w: no event is found in %.80q", ErrText, line))
		return
	}
	if bytes.HasPrefix(h.event, []byte("PERF_RECORD_")) {
		t.record(h.event, rest)
		return
	}
	e, ok := t.known[string(h.event)]
	if !ok {
		name := string(h.event)
		e = event{collector: collector(name), op: op(name), twoSyms: software[plain(name)]}
		t.known[name] = e
	}
	a := memtrace.Access{TimeNS: h.ns, PID: h.pid, TID: h.tid, CPU: h.cpu, Weight: h.period, Collector: e.collector,
		Op: e.op}
	if t.fixed != nil && t.fixed.pidOnly {
		a.PID, a.TID = h.tid, 0
	}
	if isTracepoint(string(h.event)) {
		t.pending, t.waits = fault(rest, a), true
		return
	}
	if err := t.tail(h.event, rest, e, &a); err != nil {
		t.bad(err)
		return
	}
	t.pending, t.waits, t.single = a, true, t.fixed == nil && e.twoSyms && a.Addr == 0 && a.IP != 0
}

// tail reads what follows the event.
func (t *Text) tail(name, rest []byte, e event, a *memtrace.Access) error {
	l := t.fixed
	if l == nil {
		l = t.layouts[string(name)]
	}
	if l != nil && l.parse(rest, e, a) {
		return nil
	}
	if t.fixed != nil && l.has[fieldIP] { // with a call chain, the address of the instruction follows on the next line
		chained := *l
		chained.has[fieldIP] = false
		if chained.parse(rest, e, a) {
			return nil
		}
	}
	if t.fixed == nil {
		if l = guess(rest, e); l != nil && l.parse(rest, e, a) {
			t.layouts[string(name)] = l
			return nil
		}
		return fmt.Errorf("%w: it is not clear which fields these are: %.200q; "+
			"say so with the list that perf script -F had", ErrText, rest)
	}
	return fmt.Errorf("%w: these are not the fields of -F: %.200q", ErrText, rest)
}

// record counts a line that perf script --show-lost-events and the like prints.
func (t *Text) record(name, rest []byte) {
	t.stats.Other++
	switch string(name) {
	case "PERF_RECORD_LOST", "PERF_RECORD_LOST_SAMPLES":
		for word := range bytes.FieldsSeq(rest) {
			if n, ok := decimal(word); ok {
				t.stats.Lost += n
				break
			}
		}
	case "PERF_RECORD_THROTTLE":
		t.stats.Throttles++
	}
}
