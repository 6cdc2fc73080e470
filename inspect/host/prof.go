package host

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
)

// maxCalls bounds the kinds of system calls with rows of their own, and maxBuckets the latency buckets of each.
const (
	maxCalls   = 256
	maxBuckets = 256
)

// Prof is what events of llamatap host prof add up to.
type Prof struct {
	Source
	Events map[string]int64 `json:"events"` // by type
	// Calls are system calls, those first in which most time was spent.
	Calls []*CallRow `json:"calls"`
	// Net are processes that used sockets, those first that moved most bytes.
	Net []*NetRow `json:"net"`
	// NetForgotten is how often a process was dropped to bound memory.
	NetForgotten int64 `json:"net_forgotten,omitempty"`
}

// CallRow is a system call.
type CallRow struct {
	Type    string `json:"type"` // syscall or sync
	Syscall string `json:"syscall"`
	Op      string `json:"op,omitempty"`
	Count   uint64 `json:"count"`
	Errors  uint64 `json:"errors"`
	Bytes   uint64 `json:"bytes"`
	// TotalMS is the time in it, of all threads: the mean of each interval times its count.
	TotalMS *float64 `json:"total_ms,omitempty"`
	// Percentiles are of buckets, where the file has them.
	Percentiles []Percentile `json:"latency_percentiles,omitempty"`
	MaxUS       *float64     `json:"latency_max_us,omitempty"`
	Open        uint64       `json:"open,omitempty"` // most that had not returned at the end of an interval
	// SampledOneOf is N where only one of N was timed at some time.
	SampledOneOf uint32 `json:"sampled_one_of,omitempty"`

	buckets map[resource.ProfBucket]uint64 // by bounds
}

// NetRow is what a process did on sockets.
type NetRow struct {
	PID         int     `json:"pid"`
	Comm        string  `json:"comm"`
	TXBytes     float64 `json:"tx_bytes"`
	RXBytes     float64 `json:"rx_bytes"`
	TXCalls     uint64  `json:"tx_calls"`
	RXCalls     uint64  `json:"rx_calls"`
	Retransmits *uint64 `json:"retransmits,omitempty"`
}

// profSums are a Prof in the making.
type profSums struct {
	*Prof
	calls map[[3]string]*CallRow
	net   map[int]*NetRow
	last  int64 // ts_ns of the interval before
}

func newProfSums() *profSums {
	return &profSums{Prof: &Prof{Events: map[string]int64{}, Calls: []*CallRow{}, Net: []*NetRow{}},
		calls: map[[3]string]*CallRow{}, net: map[int]*NetRow{}}
}

// readProf reads a file of events. read is called with the bytes that are read, unless it is nil.
func readProf(path string, percentiles []float64, read func(n int)) (*Prof, error) {
	p := newProfSums()
	p.Lines.read = read
	if err := open(path, profRemedy, &p.Lines, p.add); err != nil {
		return nil, err
	}
	if len(p.Events) == 0 {
		return nil, noSnapshots(&p.Lines, errNoObject, "events of host prof", "--prof")
	}
	p.finish(percentiles)
	return p.Prof, nil
}

// add takes a line.
func (p *profSums) add(line []byte) error {
	e, err := resource.ParseProfEvent(line)
	if err != nil {
		return err
	}
	h := e.Head()
	p.Events[string(h.Type)]++
	if h.TSNS != p.last { // one interval has several events
		p.last = h.TSNS
		seconds := h.IntervalS
		if !(seconds > 0) {
			seconds = math.NaN()
		}
		p.addSnapshot(float64(h.TSNS)/1e9, seconds)
		p.addRecording(&recording{Origin: word(h.Origin)}, math.NaN())
	}
	switch e := e.(type) {
	case *resource.ProfSyscall:
		p.addCall(e)
	case *resource.ProfNet:
		p.addNet(e)
	}
	return nil
}

func (p *profSums) addCall(e *resource.ProfSyscall) {
	key := [3]string{string(e.Type), e.Syscall, e.Op}
	row := p.calls[key]
	if row == nil {
		if len(p.calls) >= maxCalls {
			key = [3]string{string(e.Type), "others", ""}
		}
		if row = p.calls[key]; row == nil {
			row = &CallRow{Type: key[0], Syscall: key[1], Op: key[2], buckets: map[resource.ProfBucket]uint64{}}
			p.calls[key] = row
		}
	}
	row.Count += e.Count
	row.Errors += e.Errors
	row.Bytes += e.Bytes
	row.Open = max(row.Open, e.Open)
	row.SampledOneOf = max(row.SampledOneOf, e.SampledOneOf)
	if v := e.LatAvgUS; v != nil && *v >= 0 && *v < maxNumber {
		if row.TotalMS == nil {
			row.TotalMS = new(float64)
		}
		*row.TotalMS += *v / 1e3 * float64(e.Count)
	}
	if v := e.LatMaxUS; v != nil && (row.MaxUS == nil || *v > *row.MaxUS) && *v < maxNumber {
		row.MaxUS = v
	}
	for _, b := range e.Latency {
		bounds := resource.ProfBucket{LowNS: b.LowNS, HighNS: b.HighNS}
		if _, there := row.buckets[bounds]; there || len(row.buckets) < maxBuckets {
			row.buckets[bounds] += b.Count
		}
	}
}

func (p *profSums) addNet(e *resource.ProfNet) {
	row := p.net[e.PID]
	if row == nil {
		if len(p.net) >= maxIDs {
			for _, row := range p.sortedNet()[maxIDs/2:] { // drop those that moved least
				p.NetForgotten++
				delete(p.net, row.PID)
			}
		}
		row = &NetRow{PID: e.PID}
		p.net[e.PID] = row
	}
	row.Comm = e.Comm
	row.TXBytes += moved(e.TXBytes, e.TXBytesS, e.IntervalS)
	row.RXBytes += moved(e.RXBytes, e.RXBytesS, e.IntervalS)
	row.TXCalls += e.TXCalls
	row.RXCalls += e.RXCalls
	if e.Retransmits != nil {
		if row.Retransmits == nil {
			row.Retransmits = new(uint64)
		}
		*row.Retransmits += *e.Retransmits
	}
}

// moved is how many bytes an interval moved: as they were counted, or, in a file of A's, the rate times the interval.
func moved(bytes uint64, rate, seconds float64) float64 {
	if bytes > 0 || !(rate > 0 && rate < maxNumber) {
		return float64(bytes)
	}
	return min(rate*safeInterval(seconds), maxNumber)
}

func (p *profSums) sortedNet() []*NetRow {
	return slices.SortedFunc(maps.Values(p.net), func(a, b *NetRow) int {
		return cmp.Or(cmp.Compare(b.TXBytes+b.RXBytes, a.TXBytes+a.RXBytes),
			cmp.Compare(b.TXCalls+b.RXCalls, a.TXCalls+a.RXCalls), cmp.Compare(a.PID, b.PID))
	})
}

// finish computes the figures of the report.
func (p *profSums) finish(percentiles []float64) {
	p.SpacingS = p.spacing()
	total := func(c *CallRow) float64 {
		if c.TotalMS == nil {
			return -1
		}
		return *c.TotalMS
	}
	p.Calls = append(p.Calls, slices.SortedFunc(maps.Values(p.calls), func(a, b *CallRow) int {
		return cmp.Or(cmp.Compare(total(b), total(a)), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Syscall, b.Syscall),
			cmp.Compare(a.Op, b.Op), cmp.Compare(a.Type, b.Type))
	})...)
	for _, row := range p.Calls {
		row.percentiles(percentiles)
	}
	p.Net = append(p.Net, p.sortedNet()...)
	p.Net = p.Net[:min(len(p.Net), topIDs)]
}

// percentiles finds them in the buckets: the upper bound of the first up to which there are so many calls, in whole
// µs above it.
func (c *CallRow) percentiles(percents []float64) {
	order := slices.SortedFunc(maps.Keys(c.buckets), func(a, b resource.ProfBucket) int {
		return cmp.Or(cmp.Compare(a.HighNS, b.HighNS), cmp.Compare(a.LowNS, b.LowNS))
	})
	total := uint64(0)
	for _, n := range c.buckets {
		total += n
	}
	for _, percent := range percents {
		seen := uint64(0)
		for _, b := range order {
			if seen += c.buckets[b]; c.buckets[b] > 0 && float64(seen) >= float64(total)*percent/100 {
				c.Percentiles = append(c.Percentiles, Percentile{percent, b.HighNS/1000 + 1})
				break
			}
		}
	}
}

// textCalls bounds the system calls in the text.
const textCalls = 20

// tables are the tables of the text.
func (p *Prof) tables(percentiles []float64) []grid {
	calls := grid{slices.Concat([]string{"type", "system call", " count", " errors", " bytes", " time in it"},
		percentileHead(percentiles), []string{" max", " open"})}
	for _, c := range p.Calls[:min(len(p.Calls), textCalls)] {
		name := c.Syscall
		if c.Op != "" {
			name += " " + c.Op
		}
		row := []string{c.Type, name, strconv.FormatUint(c.Count, 10), strconv.FormatUint(c.Errors, 10),
			present.Bytes(float64(c.Bytes)), present.Maybe(c.TotalMS, msText)}
		calls = append(calls, slices.Concat(row, percentileCells(percentiles, c.Percentiles),
			[]string{present.Maybe(c.MaxUS, usText), strconv.FormatUint(c.Open, 10)}))
	}
	net := grid{{" pid", "name", " sent", " received", " calls to send", " to receive", " retransmits"}}
	for _, n := range p.Net {
		again := "-"
		if n.Retransmits != nil {
			again = strconv.FormatUint(*n.Retransmits, 10)
		}
		net = append(net, []string{strconv.Itoa(n.PID), n.Comm, present.Bytes(n.TXBytes), present.Bytes(n.RXBytes),
			strconv.FormatUint(n.TXCalls, 10), strconv.FormatUint(n.RXCalls, 10), again})
	}
	return []grid{calls, net}
}
