package resource

import (
	"encoding/json"
	"fmt"
	"math"
)

// ClockSample bounds how far another host's clock is ahead of the run's, at a time.
type ClockSample struct {
	MonoNS        int64 // on the run's CLOCK_MONOTONIC
	LowNS, HighNS int64 // the other clock's CLOCK_MONOTONIC less the run's, at least and at most
}

// NewClockSample is what a question shows that was sent at sent and answered at back on the run's clock, and came and
// left at got and left on the other one. The answer came after it was sent, and the question likewise: nothing else is
// assumed, not that both took equally long.
func NewClockSample(sent, got, left, back int64) ClockSample {
	return ClockSample{MonoNS: sent + (back-sent)/2, LowNS: left - back, HighNS: got - sent}
}

// Width is twice the uncertainty, in ns: the time that the question and the answer were under way.
func (s ClockSample) Width() int64 { return s.HighNS - s.LowNS }

// ClockFit is how another clock went, by the run's. Uncertainties are bounds and no deviations: the true value is
// within them where both clocks went at rates that did not change. They are halves of the widths.
type ClockFit struct {
	AtNS                int64   `json:"at_mono_ns"` // time of OffsetNS: the middle of the samples
	OffsetNS            float64 `json:"offset_ns"`  // the other clock less the run's
	OffsetUncertaintyNS float64 `json:"offset_uncertainty_ns"`
	// DriftPPB is how much faster the other clock goes, in ns per second; absent: there is one sample.
	DriftPPB            *float64 `json:"drift_ppb,omitempty"`
	DriftUncertaintyPPB *float64 `json:"drift_uncertainty_ppb,omitempty"`
	// Steady reports whether one offset and one rate agree with all samples. If not, a clock was set or its rate
	// changed: OffsetNS is that of the sample with the least uncertainty, and there is no drift.
	Steady  bool `json:"steady"`
	Samples int  `json:"samples"`
}

// FitClock returns the middle of all offsets and rates that agree with samples in the order of time, and how far they
// reach. ok is false without samples. It takes time in the square of their number.
func FitClock(samples []ClockSample) (fit ClockFit, ok bool) {
	if len(samples) == 0 {
		return fit, false
	}
	best := samples[0]
	slowest, fastest := math.Inf(-1), math.Inf(1)
	for i, a := range samples {
		if a.Width() < best.Width() {
			best = a
		}
		for _, b := range samples[i+1:] {
			if over := float64(b.MonoNS - a.MonoNS); over > 0 {
				slowest = max(slowest, float64(b.LowNS-a.HighNS)/over)
				fastest = min(fastest, float64(b.HighNS-a.LowNS)/over)
			}
		}
	}
	fit = ClockFit{AtNS: best.MonoNS, OffsetNS: float64(best.LowNS) + float64(best.Width())/2,
		OffsetUncertaintyNS: float64(best.Width()) / 2, Steady: slowest <= fastest, Samples: len(samples)}
	if !fit.Steady || math.IsInf(fastest, 1) {
		return fit, true
	}
	first := samples[0].MonoNS
	fit.AtNS = first + (samples[len(samples)-1].MonoNS-first)/2
	// The highest offset at AtNS for a rate is concave in the rate, and so is the lowest one's negative.
	reach := func(sign float64) func(rate float64) float64 {
		return func(rate float64) float64 {
			most := math.Inf(1)
			for _, s := range samples {
				bound := s.HighNS
				if sign < 0 {
					bound = -s.LowNS
				}
				most = min(most, float64(bound)-sign*rate*float64(s.MonoNS-fit.AtNS))
			}
			return most
		}
	}
	high, low := peak(reach(1), slowest, fastest), -peak(reach(-1), slowest, fastest)
	fit.OffsetNS, fit.OffsetUncertaintyNS = (low+high)/2, (high-low)/2
	drift, width := (slowest+fastest)/2*1e9, (fastest-slowest)/2*1e9
	fit.DriftPPB, fit.DriftUncertaintyPPB = &drift, &width
	return fit, true
}

// peak is the largest value of a concave function between low and high.
func peak(f func(float64) float64, low, high float64) float64 {
	for range 100 {
		a, b := low+(high-low)/3, high-(high-low)/3
		if f(a) < f(b) {
			low = a
		} else {
			high = b
		}
	}
	return f((low + high) / 2)
}

// OtherHost is what metadata.json says of another host of a run (key hosts).
type OtherHost struct {
	Name    string        `json:"name"` // as the user calls it
	Address string        `json:"address"`
	Host    string        `json:"host,omitempty"` // as it calls itself
	Kernel  string        `json:"kernel,omitempty"`
	BootID  string        `json:"boot_id,omitempty"`
	Error   string        `json:"error,omitempty"` // why it was not recorded, or no longer
	Clock   *ClockFit     `json:"clock,omitempty"`
	Devices []DeviceMoves `json:"devices,omitempty"`
}

// OtherHosts reads them; what it cannot read is none.
func OtherHosts(text []byte) (otherHosts []OtherHost) {
	if json.Unmarshal(text, &otherHosts) != nil {
		return nil
	}
	return otherHosts
}

// DeviceMoves is what was moved to a device and back. Times are from call to return, with what a device had to compute
// first.
type DeviceMoves struct {
	Device        string `json:"device"` // as ggml calls it
	Sent          int64  `json:"sent"`
	SentBytes     int64  `json:"sent_bytes"`
	SentNS        int64  `json:"sent_ns"`
	Received      int64  `json:"received"`
	ReceivedBytes int64  `json:"received_bytes"`
	ReceivedNS    int64  `json:"received_ns"`
	OwnBytes      int64  `json:"recording_bytes"` // of both, for the recording
}

// String describes a host in a line: its devices, how its clock went, and what was moved.
func (o *OtherHost) String() string {
	text := o.Name + ": "
	if o.Clock == nil {
		text += "not recorded"
	} else if c := o.Clock; !c.Steady {
		text += "its clock was set, or its rate changed"
	} else {
		side := "ahead"
		if c.OffsetNS < 0 {
			side = "behind"
		}
		text += fmt.Sprintf("clock %s by %.6f s ± %.1f µs", side, math.Abs(c.OffsetNS)/1e9, c.OffsetUncertaintyNS/1e3)
		if c.DriftPPB != nil {
			text += fmt.Sprintf(", drift %.3f ± %.3f ppm", *c.DriftPPB/1e3, *c.DriftUncertaintyPPB/1e3)
		}
	}
	if o.Error != "" {
		text += "; LOST: " + o.Error
	}
	for _, d := range o.Devices {
		text += fmt.Sprintf("; %s: sent %d B in %d tensors, received %d B in %d", d.Device, d.SentBytes, d.Sent,
			d.ReceivedBytes, d.Received)
	}
	return text
}
