package host

import (
	"math"
)

// maxSamples bounds the snapshots that latency and metrics are compared over: what comes behind is counted and left
// out.
const maxSamples = 1 << 18

// maxDeviceSamples bounds those of all devices together.
const maxDeviceSamples = 1 << 20

// sample is a latency in time: the slot of the percentile that is compared.
type sample struct {
	time, seconds float64
	slot          uint8
}

// metricSample is the metrics in time.
type metricSample struct {
	time, seconds float64
	metric        [metrics]float64
}

// pair is a latency and the metrics that belong to it.
type pair struct {
	latency *sample
	metric  *metricSample
}

// align walks both, sorted by time, and pairs those that are no further apart than 0.75 of the longer interval,
// which counts as at least one second. Metrics count as taken shift seconds later than they were. The pairs
// are appended to dst.
func align(dst []pair, latencies []sample, metrics []metricSample, shift float64) []pair {
	for i, j := 0, 0; i < len(latencies) && j < len(metrics); {
		l, m := &latencies[i], &metrics[j]
		tolerance := 0.75 * max(safeInterval(l.seconds), safeInterval(m.seconds), 1)
		switch apart := m.time + shift - l.time; {
		case math.Abs(apart) <= tolerance:
			dst = append(dst, pair{l, m})
			i, j = i+1, j+1
		case apart < 0:
			j++
		default:
			i++
		}
	}
	return dst
}
