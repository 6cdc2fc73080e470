package server

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"

	"github.com/llamatap/llamatap/kvcache"
)

// metric is a metric of runs; its first label is the run.
type metric struct {
	name, help string
	kind       dto.MetricType
	labels     []string
}

func describe(kind dto.MetricType, name, help string, labels []string) *metric {
	return &metric{"llamatap_" + name, help, kind, append([]string{"run"}, labels...)}
}

// goroutines has the name that every Go program's metric has.
var goroutines = &metric{name: "go_goroutines", help: "Number of goroutines that currently exist.",
	kind: dto.MetricType_GAUGE}

func counter(name, help string, labels ...string) *metric {
	return describe(dto.MetricType_COUNTER, name, help, labels)
}

func gauge(name, help string, labels ...string) *metric {
	return describe(dto.MetricType_GAUGE, name, help, labels)
}

func histogram(name, help string) *metric { return describe(dto.MetricType_HISTOGRAM, name, help, nil) }

// sample is a series of a metric.
type sample struct {
	of     *metric
	labels string // by name, to compare
	*dto.Metric
}

// sampled is a series with the values of its labels, of which all must be given.
func (m *metric) sampled(values []string) sample {
	s := sample{of: m, Metric: &dto.Metric{}}
	for i, value := range values {
		s.Label = append(s.Label, &dto.LabelPair{Name: &m.labels[i], Value: proto.String(strings.ToValidUTF8(value,
			"?"))})
	}
	slices.SortFunc(s.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	for _, l := range s.Label {
		s.labels += fmt.Sprintf("%s=%q,", l.GetName(), l.GetValue())
	}
	return s
}

// at is a sample of a counter or gauge.
func (m *metric) at(value float64, labels ...string) sample {
	s := m.sampled(labels)
	if m.kind == dto.MetricType_COUNTER {
		s.Counter = &dto.Counter{Value: &value}
	} else {
		s.Gauge = &dto.Gauge{Value: &value}
	}
	return s
}

// bucket is how many observations are at most a bound.
type bucket struct {
	bound float64
	count int64
}

// distribution is a sample of a histogram; its buckets have ascending bounds.
func (m *metric) distribution(count int64, sum float64, buckets []bucket, labels ...string) sample {
	s := m.sampled(labels)
	s.Histogram = &dto.Histogram{SampleCount: proto.Uint64(uint64(count)), SampleSum: &sum}
	for _, b := range buckets {
		s.Histogram.Bucket = append(s.Histogram.Bucket, &dto.Bucket{UpperBound: &b.bound,
			CumulativeCount: proto.Uint64(uint64(b.count))})
	}
	return s
}

// The classic buckets of durations are the powers of two from 2^firstPower s to 2^lastPower s: a microsecond to half an
// hour.
const (
	firstPower = -20
	lastPower  = 11
)

// durations is a sample of a histogram with classic and native buckets; text has the former.
func (m *metric) durations(h *kvcache.Histogram, labels ...string) sample {
	var buckets []bucket
	below, n := int64(0), 0
	for power := firstPower; power <= lastPower; power++ {
		for ; n < len(h.Buckets) && n+kvcache.HistogramFirst <= power<<kvcache.HistogramSchema; n++ {
			below += h.Buckets[n]
		}
		buckets = append(buckets, bucket{math.Ldexp(1, power), below})
	}
	s := m.distribution(h.Count, float64(h.SumNS)/1e9, buckets, labels...)
	s.Histogram.Schema = proto.Int32(kvcache.HistogramSchema)
	s.Histogram.ZeroThreshold, s.Histogram.ZeroCount = proto.Float64(math.Ldexp(1, -128)), proto.Uint64(0)
	last, before := int32(0), int64(0) // index behind the last bucket that has some, and its count
	var span *dto.BucketSpan
	for i, count := range h.Buckets {
		switch index := int32(i + kvcache.HistogramFirst); {
		case i == 0:
			s.Histogram.ZeroCount = proto.Uint64(uint64(count))
		case count > 0:
			if span == nil || index != last {
				span = &dto.BucketSpan{Offset: proto.Int32(index - last), Length: proto.Uint32(0)}
				s.Histogram.PositiveSpan = append(s.Histogram.PositiveSpan, span)
			}
			*span.Length++
			s.Histogram.PositiveDelta = append(s.Histogram.PositiveDelta, count-before)
			last, before = index+1, count
		}
	}
	return s
}

// writeSamples writes samples by metric and labels. Two of one series are an error.
func writeSamples(w io.Writer, form expfmt.Format, samples []sample) error {
	slices.SortFunc(samples, func(a, b sample) int {
		return cmp.Or(strings.Compare(a.of.name, b.of.name), strings.Compare(a.labels, b.labels))
	})
	to := expfmt.NewEncoder(w, form)
	for len(samples) > 0 {
		of := samples[0].of
		before := ""
		family := &dto.MetricFamily{Name: &of.name, Help: &of.help, Type: &of.kind}
		for len(samples) > 0 && samples[0].of == of {
			if len(family.Metric) > 0 && samples[0].labels == before {
				return fmt.Errorf("metric %s has two values for {%s}", of.name, before)
			}
			before = samples[0].labels
			family.Metric, samples = append(family.Metric, samples[0].Metric), samples[1:]
		}
		if err := to.Encode(family); err != nil {
			return err
		}
	}
	return nil
}
