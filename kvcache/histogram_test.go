package kvcache

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// TestHistogram: buckets are those that Prometheus's own client counts, bounds included.
func TestHistogram(t *testing.T) {
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", NativeHistogramBucketFactor: 1.1})
	var h Histogram
	for _, ns := range []int64{-4, 0, 1, 2, 999, 1e3, 1e6, 1953125, 1953126, 125e6, 250e6, 5e8, 500000001, 1e9, 1e9 + 1,
		2e9,
		int64(30 * time.Minute), int64(30 * time.Minute), math.MaxInt64} {
		h.Add(ns)
		theirs.Observe(float64(max(ns, 0)) / 1e9)
	}
	var m dto.Metric
	if err := theirs.Write(&m); err != nil {
		t.Fatal(err)
	}
	want := m.GetHistogram()
	if want.GetSchema() != HistogramSchema || want.GetSampleCount() != uint64(h.Count) ||
		want.GetZeroCount() != uint64(h.Buckets[0]) || want.GetZeroCount() != 2 {
		t.Fatalf("%v; %+v", want, h)
	}
	all, index, deltas, count := int64(0), 0, want.GetPositiveDelta(), int64(0)
	for i, span := range want.GetPositiveSpan() {
		if index += int(span.GetOffset()); i == 0 {
			index -= HistogramFirst
		}
		for range span.GetLength() {
			count, deltas = count+deltas[0], deltas[1:]
			if h.Buckets[index] != count {
				t.Errorf("bucket %d has %d, want %d", index, h.Buckets[index], count)
			}
			all += h.Buckets[index]
			index++
		}
	}
	if all+h.Buckets[0] != h.Count {
		t.Errorf("%d of %d are in buckets of the client", all, h.Count)
	}
}
