package host

import (
	"cmp"
	"math"
	"slices"
)

// maxDevices bounds the devices with rows of their own. Further ones are counted in All only.
const maxDevices = 256

// Device is what a block device did, or all of them together.
type Device struct {
	// major<<20 | minor; -1 for all together, below -1 where the file has a name alone
	ID       int64  `json:"device_id"`
	Name     string `json:"device_name"`
	Requests uint64 `json:"requests"`
	// PerSecond is over all of the recorded time, PeakPerSecond that of the busiest snapshot.
	PerSecond     *float64     `json:"requests_per_s,omitempty"`
	PeakPerSecond *float64     `json:"peak_requests_per_s,omitempty"`
	MeanUS        *float64     `json:"latency_mean_us,omitempty"` // each request at the middle of its bucket
	Percentiles   []Percentile `json:"latency_percentiles,omitempty"`
	Queue         *Queue       `json:"queue,omitempty"`
	Buckets       []Bucket     `json:"buckets,omitempty"`

	// Series is the device over time, in at most maxPoints points.
	Series []Point `json:"-"`

	latency Latency
	series  series
	peak    float64
	queue   Queue
	samples []sample
}

// Percentile is a bound that so many percent of the requests did not pass.
type Percentile struct {
	Percent  float64 `json:"percent"`
	AtMostUS uint64  `json:"at_most_us"`
}

// Queue is how many requests were in flight at the ends of intervals.
type Queue struct {
	Snapshots int64   `json:"snapshots"` // in which the device appears
	Mean      float64 `json:"mean"`
	Max       uint64  `json:"max"`
	// WithinMean and WithinMax are the same within intervals, weighed by time, where the recorder reports them.
	WithinMean *float64 `json:"within_mean,omitempty"`
	WithinMax  *float64 `json:"within_max,omitempty"`

	within, weighed float64 // sum of depth times seconds, and of seconds
}

// Bucket counts requests whose latency was from Low to High whole µs.
type Bucket struct {
	Slot  int    `json:"slot"`
	Low   uint64 `json:"low_us"`
	High  uint64 `json:"high_us"`
	Count uint64 `json:"count"`
}

// devices adds up snapshots of block I/O.
type devices struct {
	percent float64 // the percentile that is compared with metrics
	byID    map[int64]*Device
	all     Device
	beyond  map[int64]struct{} // ids of devices over the limit of rows; bounded itself
	seconds float64            // recorded time
	samples int                // of all devices
	left    int64              // snapshots over the limit of samples, which are not compared
}

func newDevices(percent float64) *devices {
	return &devices{percent: percent, byID: map[int64]*Device{}, beyond: map[int64]struct{}{},
		all: Device{ID: -1, Name: "all devices"}}
}

// findOrAdd finds a device, or makes it; nil where there are too many.
func (d *devices) findOrAdd(from *blockDevice) *Device {
	to := d.byID[from.id]
	if to == nil {
		if len(d.byID) >= maxDevices {
			if len(d.beyond) < maxIDs {
				d.beyond[from.id] = struct{}{}
			}
			return nil
		}
		to = &Device{ID: from.id}
		d.byID[from.id] = to
	}
	if to.Name == "" || to.Name == "?" {
		to.Name = from.name
	}
	return to
}

// add counts a snapshot.
func (d *devices) add(s *blockSnapshot) {
	if s.seconds > 0 {
		d.seconds += s.seconds
	}
	whole := s.allDevices()
	for i := range s.devices {
		if to := d.findOrAdd(&s.devices[i]); to != nil {
			to.count(s, &s.devices[i])
		}
	}
	d.all.count(s, &whole)
}

// addSnapshot adds the counts of a snapshot, or of a window, to the time series. A device that does not appear in
// it was idle.
func (d *devices) addSnapshot(s *blockSnapshot) {
	whole := s.allDevices()
	seen := make(map[int64]bool, len(s.devices))
	for i := range s.devices {
		from := &s.devices[i]
		seen[from.id] = true
		to := d.byID[from.id]
		if to == nil { // one too many
			continue
		}
		if to.series.points == nil {
			for _, p := range d.all.series.sorted() { // it was idle until now
				p.Requests, p.Latency, p.Depth, p.DepthMost = 0, nil, 0, 0
				to.series.add(&p)
			}
		}
		to.addPoint(s, from)
		if sample, ok := d.sample(s, from.latency); ok {
			if d.samples++; d.samples <= maxDeviceSamples {
				to.samples = append(to.samples, sample)
			}
		}
	}
	for id, to := range d.byID {
		if !seen[id] && to.series.points != nil {
			to.addPoint(s, &blockDevice{})
		}
	}
	d.all.addPoint(s, &whole)
	if sample, ok := d.sample(s, whole.latency); ok {
		if len(d.all.samples) < maxSamples {
			d.all.samples = append(d.all.samples, sample)
		} else {
			d.left++
		}
	}
}

// allDevices returns all devices of a snapshot together.
func (s *blockSnapshot) allDevices() (whole blockDevice) {
	for i := range s.devices {
		whole.latency.merge(s.devices[i].latency)
		whole.requests += s.devices[i].requests
		whole.depth += s.devices[i].depth
		if w := s.devices[i].within; w != nil {
			if whole.within == nil {
				whole.within = &[2]float64{0, math.NaN()} // the most at once of all together is not known
			}
			whole.within[0] += w[0]
		}
	}
	return whole
}

// sample returns what is compared with metrics; there is none without requests or time.
func (d *devices) sample(s *blockSnapshot, l Latency) (sample, bool) {
	slot, ok := l.Percentile(d.percent)
	return sample{s.time, s.seconds, uint8(slot)}, ok && !math.IsNaN(s.time)
}

// count adds a snapshot of the device.
func (d *Device) count(s *blockSnapshot, from *blockDevice) {
	d.latency.merge(from.latency)
	d.Requests += from.requests
	d.queue.Snapshots++
	d.queue.Mean += float64(from.depth) // a sum until finish
	d.queue.Max = max(d.queue.Max, from.depth)
	if w := from.within; w != nil && s.seconds > 0 {
		d.queue.within, d.queue.weighed = d.queue.within+w[0]*s.seconds, d.queue.weighed+s.seconds
		if w[1] >= 0 && (d.queue.WithinMax == nil || *d.queue.WithinMax < w[1]) {
			d.queue.WithinMax = &w[1]
		}
	}
	if s.seconds > 0 {
		d.peak = max(d.peak, float64(from.requests)/s.seconds)
	}
}

// addPoint adds a point to the series of the device.
func (d *Device) addPoint(s *blockSnapshot, from *blockDevice) {
	p := Point{Time: s.time, From: s.time, Snapshots: 1, Requests: from.requests, Latency: from.latency,
		Depth: float64(from.depth), DepthMost: from.depth}
	if s.seconds > 0 {
		p.Seconds, p.From = s.seconds, s.time-s.seconds
	}
	if w := from.within; w != nil {
		p.Depth = w[0]
		if w[1] > 0 {
			p.DepthMost = max(p.DepthMost, uint64(w[1]))
		}
	}
	d.series.add(&p)
}

// finish computes the figures of the report.
func (d *Device) finish(percentiles []float64, seconds float64) {
	if seconds > 0 {
		d.PerSecond, d.PeakPerSecond = new(float64(d.Requests)/seconds), &d.peak
	}
	if mean, ok := d.latency.Mean(); ok {
		d.MeanUS = &mean
	}
	d.Percentiles = d.latency.percentiles(percentiles)
	if d.queue.Snapshots > 0 {
		d.queue.Mean /= float64(d.queue.Snapshots)
		d.Queue = &d.queue
		if d.queue.weighed > 0 {
			d.queue.WithinMean = new(d.queue.within / d.queue.weighed)
		}
	}
	for slot, n := range d.latency {
		if n > 0 {
			d.Buckets = append(d.Buckets, Bucket{slot, slotLow(slot), slotHigh(slot), n})
		}
	}
	d.Series = d.series.sorted()
	d.series = series{}
	slices.SortStableFunc(d.samples, func(a, b sample) int { return cmp.Compare(a.time, b.time) })
}

// sorted lists the devices, the busiest first.
func (d *devices) sorted() []*Device {
	all := make([]*Device, 0, len(d.byID))
	for _, device := range d.byID {
		all = append(all, device)
	}
	slices.SortFunc(all, func(a, b *Device) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return all
}
