package host

import (
	"errors"
	"hash/fnv"
	"math"
	"time"
)

// blockLine is a line of block I/O as A-62 has it, with the keys that llamatap adds and that are analysed.
type blockLine struct {
	stamp
	Devices  []deviceLine `json:"latency_histogram"`
	InFlight []deviceLine `json:"inflight"`
	// What llamatap adds.
	Figures   []opLine      `json:"devices"`
	Processes []figuresLine `json:"processes"`
	Cgroups   []figuresLine `json:"cgroups"`
	// What a line of system metrics has instead, so that a file given in the wrong place is recognised.
	OffCPU   any `json:"off_cpu_ns"`
	Pressure any `json:"pressure"`
}

// deviceLine is a device in either list.
type deviceLine struct {
	ID      number       `json:"device_id"`
	Name    word         `json:"device_name"`
	Buckets []bucketLine `json:"buckets"`
	Total   number       `json:"total"`
	Count   number       `json:"count"`
}

type bucketLine struct {
	Slot  number `json:"slot"`
	Count number `json:"count"`
	Low   number `json:"bucket_low"`
	High  number `json:"bucket_high"`
}

// stamp is when a snapshot was taken, and how long the interval was that it ended.
type stamp struct {
	Timestamp number `json:"timestamp"`
	ISO       word   `json:"iso_timestamp"`
	Nominal   number `json:"interval_s"`
	Actual    number `json:"interval_actual_s"`
	Mono      number `json:"mono_ns"`
	recording
}

// recording is what a snapshot says of how it was recorded, in keys that llamatap adds.
type recording struct {
	Origin  word              `json:"origin"`
	Missing []word            `json:"missing"`
	Lost    map[string]number `json:"lost"`
}

// when is the time in seconds since 1970; NaN where it is not known.
func (s *stamp) when() float64 {
	if s.Timestamp.known {
		return s.Timestamp.v
	}
	if t, err := time.Parse(time.RFC3339Nano, string(s.ISO)); err == nil {
		return float64(t.UnixNano()) / 1e9
	}
	return math.NaN()
}

// offset is how far the clock of the world is ahead of CLOCK_MONOTONIC, in seconds; NaN where that is not known.
func (s *stamp) offset() float64 {
	if s.Mono.known && s.Mono.v > 0 {
		return s.when() - s.Mono.v/1e9
	}
	return math.NaN()
}

// interval is its length in seconds, as it was measured where that is known; NaN where nothing is.
func (s *stamp) interval() float64 {
	if n := first(s.Actual, s.Nominal); n.known && n.v > 0 {
		return n.v
	}
	return math.NaN()
}

// blockSnapshot is what happened on all devices in an interval.
type blockSnapshot struct {
	time, seconds float64
	how           recording
	offset        float64
	devices       []blockDevice
	line          *blockLine
}

// blockDevice is what happened on one of them.
type blockDevice struct {
	id       int64
	name     string
	latency  Latency
	requests uint64
	depth    uint64 // in flight at the end of the interval
	// within is what was in flight within the interval, weighed by time and at most; nil where that is not known.
	within *[2]float64
}

// bounds counts the kinds of bucket bounds in a file.
type bounds struct {
	right, strap, odd int64 // buckets whose bounds are right, STRAP-LLM's, neither
	slotless          int64 // buckets without a slot, of which only the bounds are known
	// buckets without slot and usable bounds, or beyond all slots; their requests are not counted
	unusable int64
	totals   int64 // devices of a snapshot whose total is not the sum of its buckets
}

// errNoBlock is what is wrong with an object that is not a snapshot of block I/O.
var errNoBlock = errors.New("neither latency_histogram nor inflight in it")

// errSystemLine is what is wrong with a line of system metrics among those of block I/O.
var errSystemLine = errors.New("a line of system metrics, not of block I/O")

// parseBlock reads a line. strap: bounds without a slot are STRAP-LLM's.
func parseBlock(text []byte, strap bool, b *bounds) (*blockSnapshot, error) {
	var line blockLine
	if err := decode(text, &line); err != nil {
		return nil, err
	}
	if line.Devices == nil && line.InFlight == nil {
		if line.OffCPU != nil || line.Pressure != nil {
			return nil, errSystemLine
		}
		return nil, errNoBlock
	}
	s := &blockSnapshot{time: line.when(), seconds: line.interval(), how: line.recording, offset: line.offset(),
		line: &line}
	for i := range line.Devices {
		if d := s.device(&line.Devices[i]); d != nil {
			d.count(&line.Devices[i], strap, b)
		}
	}
	for i := range line.InFlight {
		if d := s.device(&line.InFlight[i]); d != nil {
			d.depth += line.InFlight[i].Count.count()
		}
	}
	for i := range line.Figures {
		s.addOpLine(&line.Figures[i])
	}
	return s, nil
}

// addOpLine adds a disk's figures other than its histogram: its queue depth, and, where there is no
// histogram, its requests. Partitions are part of their disk.
func (s *blockSnapshot) addOpLine(f *opLine) {
	if f.PartOf.known {
		return
	}
	d := s.device(&deviceLine{ID: f.ID, Name: f.Name})
	if d == nil {
		return
	}
	if f.Depth.known && f.DepthMax.known {
		d.within = &[2]float64{f.Depth.v, f.DepthMax.v}
	}
	if d.latency == nil {
		d.requests = f.Requests.count()
	}
}

// device finds the device that an entry is of, or makes it; nil where the entry has neither number nor name of one.
func (s *blockSnapshot) device(entry *deviceLine) *blockDevice {
	numbered := entry.ID.known && math.Abs(entry.ID.v) <= 1<<53
	if !numbered && entry.Name == "" {
		return nil
	}
	id := int64(entry.ID.v)
	if !numbered {
		id = idOfName(string(entry.Name))
	}
	for i := range s.devices {
		if s.devices[i].id == id || !numbered && s.devices[i].name == string(entry.Name) {
			return &s.devices[i]
		}
	}
	s.devices = append(s.devices, blockDevice{id: id, name: string(entry.Name)})
	return &s.devices[len(s.devices)-1]
}

// idOfName stands for the number of a device that a file names and does not number, as the lines in STRAP-LLM's
// documentation do: negative, below that of all devices, and the same in every snapshot.
func idOfName(name string) int64 {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	return -2 - int64(hash.Sum64()>>12)
}

// count adds the buckets of an entry.
func (d *blockDevice) count(entry *deviceLine, strap bool, b *bounds) {
	var sum uint64
	for i := range entry.Buckets {
		n := entry.Buckets[i].Count.count()
		if n == 0 {
			continue
		}
		sum += n
		if slot, ok := entry.Buckets[i].slot(strap, b); ok {
			d.latency.add(slot, n)
			d.requests += n
		} else {
			b.unusable++
		}
	}
	if entry.Total.known && entry.Total.count() != sum {
		b.totals++
	}
}

// slot is the slot of a bucket: the one that it names, or else the one that its bounds are of.
func (u *bucketLine) slot(strap bool, b *bounds) (int, bool) {
	bounded := u.Low.known && u.High.known
	if !u.Slot.known {
		b.slotless++
		slot, ok := slotFrom(u.Low.v, u.High.v, strap)
		return slot, bounded && ok
	}
	slot := int(u.Slot.v)
	if u.Slot.v < 0 || u.Slot.v >= slots || float64(slot) != u.Slot.v {
		return 0, false
	}
	right, isRight := slotFrom(u.Low.v, u.High.v, false)
	inflated, isStrap := slotFrom(u.Low.v, u.High.v, true)
	switch {
	case !bounded:
	case isRight && right == slot:
		b.right++
	case isStrap && inflated == slot:
		b.strap++
	default:
		b.odd++
	}
	return slot, true
}

// merge puts a later snapshot together with this one. Depths are the larger ones.
func (s *blockSnapshot) merge(next *blockSnapshot) {
	s.time, s.seconds = next.time, s.seconds+next.seconds
	for i := range next.devices {
		from := &next.devices[i]
		d := s.device(&deviceLine{ID: number{float64(from.id), true}, Name: word(from.name)})
		d.latency.merge(from.latency)
		d.requests += from.requests
		d.depth = max(d.depth, from.depth)
		if from.within != nil {
			if d.within == nil {
				d.within = &[2]float64{}
			}
			*d.within = [2]float64{max(d.within[0], from.within[0]), max(d.within[1], from.within[1])}
		}
	}
}
