package server

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// exposition is the media type of Prometheus's text format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/).
const exposition = "text/plain; version=0.0.4; charset=utf-8"

// kind is what a metric counts as.
type kind string

const (
	isCounter   kind = "counter"
	isGauge     kind = "gauge"
	isHistogram kind = "histogram"
)

// metric is a metric of runs; its first label is the run.
type metric struct {
	name, help string
	kind       kind
	labels     []string
}

func describe(kind kind, name, help string, labels []string) *metric {
	return &metric{"llamatap_" + name, help, kind, append([]string{"run"}, labels...)}
}

func counter(name, help string, labels ...string) *metric {
	return describe(isCounter, name, help, labels)
}

func gauge(name, help string, labels ...string) *metric {
	return describe(isGauge, name, help, labels)
}

func histogram(name, help string) *metric { return describe(isHistogram, name, help, nil) }

// sample is a series of a metric, as it is written: one line, and several of a histogram.
type sample struct {
	of     *metric
	labels string // a="1",b="2", by name
	lines  string
}

// labelled returns the labels of a series with its values, of which all must be given.
func (m *metric) labelled(values []string) string {
	pairs := make([]string, len(values))
	for i, value := range values {
		pairs[i] = m.labels[i] + `="` + escapeValue.Replace(strings.ToValidUTF8(value, "?")) + `"`
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

var (
	escapeValue = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

// at is a sample of a counter or gauge.
func (m *metric) at(value float64, labels ...string) sample {
	s := sample{of: m, labels: m.labelled(labels)}
	s.lines = fmt.Sprintf("%s{%s} %s\n", m.name, s.labels, number(value))
	return s
}

// bucket is how many observations are at most a bound.
type bucket struct {
	bound float64
	count int64
}

// distribution is a sample of a histogram; its buckets have ascending bounds.
func (m *metric) distribution(count int64, sum float64, buckets []bucket, labels ...string) sample {
	s := sample{of: m, labels: m.labelled(labels)}
	var lines strings.Builder
	for _, b := range buckets {
		fmt.Fprintf(&lines, "%s_bucket{%s,le=\"%s\"} %d\n", m.name, s.labels, number(b.bound), b.count)
	}
	fmt.Fprintf(&lines, "%s_bucket{%s,le=\"+Inf\"} %d\n", m.name, s.labels, count)
	fmt.Fprintf(&lines, "%s_sum{%s} %s\n%s_count{%s} %d\n", m.name, s.labels, number(sum), m.name, s.labels, count)
	s.lines = lines.String()
	return s
}

func number(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }

// writeSamples writes samples by metric and labels. Two of one series are an error.
func writeSamples(w io.Writer, all []sample) error {
	slices.SortFunc(all, func(a, b sample) int {
		return cmp.Or(strings.Compare(a.of.name, b.of.name), strings.Compare(a.labels, b.labels))
	})
	var text strings.Builder
	for i, s := range all {
		switch {
		case i == 0 || all[i-1].of != s.of:
			fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s %s\n", s.of.name,
				escapeHelp.Replace(s.of.help), s.of.name, s.of.kind)
		case all[i-1].labels == s.labels:
			return fmt.Errorf("metric %s has two values for {%s}", s.of.name, s.labels)
		}
		text.WriteString(s.lines)
	}
	_, err := io.WriteString(w, text.String())
	return err
}
