package otlp

import (
	"math"
	"slices"
	"time"

	"github.com/llamatap/llamatap/kvcache"
	"google.golang.org/protobuf/encoding/protowire"
)

// The boundaries of histograms that the conventions recommend, in seconds and tokens.
var (
	durationBounds = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	firstBounds    = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	perTokenBounds = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5}
	tokenBounds    = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216,
		67108864}
)

// instruments are the histograms by the conventions, in the order of series.
var instruments = [...]struct {
	name, unit, text string
	bounds           []float64
}{
	{"gen_ai.server.request.duration", "s", "From a request's arrival to its end.", durationBounds},
	{"gen_ai.server.time_to_first_token", "s", "From a request's arrival to the choice of its first token.",
		firstBounds},
	{"gen_ai.server.time_per_output_token", "s", "Mean time from token to token after the first one.", perTokenBounds},
	{"gen_ai.client.token.usage", "{token}", "Tokens of prompts and of answers.", tokenBounds},
}

// The instruments.
const (
	ofDuration = iota
	ofFirst
	ofPerToken
	ofTokens
)

// series says which data point a value belongs to.
type series struct {
	instrument                                 int
	operation, model, answered, failure, token string
	overflow                                   bool
}

// maxSeries bounds the data points of histograms: models are named by clients. Those beyond are one, as OpenTelemetry
// names it.
const maxSeries = 500

// distribution is the values of a data point.
type distribution struct {
	counts         []uint64
	count          uint64
	sum, low, high float64
}

// meter adds requests up. The zero value is of none.
type meter struct {
	all    map[series]*distribution
	totals kvcache.RequestTotals
}

// add adds a request that has ended.
func (m *meter) add(q *kvcache.Request) {
	m.totals.Add(q)
	s := series{operation: operation(q), model: q.Said.Model, answered: q.Said.AnswerModel}
	if q.ArrivalNS != 0 && q.EndNS != 0 {
		failed := s
		failed.instrument, failed.failure = ofDuration, failure(q)
		m.put(failed, float64(q.EndNS-q.ArrivalNS)/1e9)
	}
	if q.ArrivalNS != 0 && q.FirstNS != 0 {
		s.instrument = ofFirst
		m.put(s, float64(q.FirstNS-q.ArrivalNS)/1e9)
	}
	if q.Output > 1 && failure(q) == "" {
		s.instrument = ofPerToken
		m.put(s, float64(q.LastNS-q.FirstNS)/1e9/float64(q.Output-1))
	}
	s.instrument = ofTokens
	if q.Prompt >= 0 {
		s.token = "input"
		m.put(s, float64(q.Prompt))
	}
	if q.Output > 0 {
		s.token = "output"
		m.put(s, float64(q.Output))
	}
}

func (m *meter) put(s series, v float64) {
	if m.all == nil {
		m.all = map[series]*distribution{}
	}
	d := m.all[s]
	if d == nil && len(m.all) >= maxSeries {
		s = series{instrument: s.instrument, overflow: true}
		d = m.all[s]
	}
	bounds := instruments[s.instrument].bounds
	if d == nil {
		d = &distribution{counts: make([]uint64, len(bounds)+1), low: v, high: v}
		m.all[s] = d
	}
	at, _ := slices.BinarySearch(bounds, v) // a bound belongs to the bucket below it
	d.counts[at]++
	d.count++
	d.sum, d.low, d.high = d.sum+v, min(d.low, v), max(d.high, v)
}

// Observation is how a live run is.
type Observation struct {
	Running, Waiting int
	KV               *kvcache.Snapshot // nil: cells are not followed
}

// point is when data points are of.
type point struct{ start, now uint64 }

// metrics are all of them.
func (m *meter) metrics(start, now time.Time, seen *Observation, sent kvcache.Exported) []message {
	p := point{uint64(start.UnixNano()), uint64(now.UnixNano())}
	messages := m.histograms(p)
	if m.totals.Requests > 0 {
		t := &m.totals
		messages = append(messages, p.sum("llamatap.prompt.tokens", "{token}",
			"Tokens of prompts, by where they came from.",
			labelled{float64(t.Cached), labels{"llamatap.source", "cached"}},
			labelled{float64(t.Computed), labels{"llamatap.source", "computed"}}))
		var tokens, times, bytes []labelled
		for _, a := range t.Again {
			by := labels{"llamatap.cause", a.Cause}
			tokens = append(tokens, labelled{float64(a.Tokens), by})
			times = append(times, labelled{float64(a.CostNS) / 1e9, by})
			bytes = append(bytes, labelled{float64(a.Bytes), by})
		}
		if len(tokens) > 0 {
			messages = append(messages,
				p.sum("llamatap.recomputed.tokens", "{token}", "Tokens of prompts that were computed again.",
					tokens...),
				p.sum("llamatap.recomputed.time", "s", "Their share of the time of their prompts: computed.", times...),
				p.sum("llamatap.recomputed.size", "By", "Keys and values that were written for them.", bytes...))
		}
	}
	if seen != nil {
		messages = append(messages,
			p.gauge("llamatap.requests.running", "{request}", "Requests that have a slot.",
				labelled{float64(seen.Running), nil}),
			p.gauge("llamatap.requests.waiting", "{request}", "Prompts that were tokenized and have no slot.",
				labelled{float64(seen.Waiting), nil}))
		messages = append(messages, p.cells(seen.KV)...)
	}
	messages = append(messages, p.sum("llamatap.otlp.spans", "{span}", "Spans that were sent, or dropped and why.",
		labelled{float64(sent.Spans), labels{"llamatap.outcome", "sent"}},
		labelled{float64(sent.Full), labels{"llamatap.outcome", "buffer_full"}},
		labelled{float64(sent.Refused), labels{"llamatap.outcome", "refused"}}))
	return messages
}

// cells are the metrics of caches.
func (p point) cells(s *kvcache.Snapshot) []message {
	if s == nil || len(s.Caches) == 0 {
		return nil
	}
	var cells, shares []labelled
	for i := range s.Caches {
		c := &s.Caches[i]
		of := labels{"llamatap.ctx", int64(c.Ctx), "llamatap.cache", c.Cache.String()}
		cells = append(cells, labelled{float64(c.Used), append(of[:4:4], "llamatap.state", "used")},
			labelled{float64(c.Free), append(of[:4:4], "llamatap.state", "free")})
		shares = append(shares, labelled{c.Occupancy, of})
	}
	return []message{
		p.gauge("llamatap.kv.cells", "{cell}", "Cells of KV caches.", cells...),
		p.gauge("llamatap.kv.utilization", "1", "Share of a cache's cells that are used.", shares...),
	}
}

// histograms are those of the conventions.
func (m *meter) histograms(p point) (messages []message) {
	var points [len(instruments)][]message
	for s, d := range m.all {
		var one, counts, bounds message
		p.times(&one)
		one.fixed(4, d.count)
		one.double(5, d.sum)
		for _, n := range d.counts {
			counts = protowire.AppendFixed64(counts, n)
		}
		for _, v := range instruments[s.instrument].bounds {
			bounds = protowire.AppendFixed64(bounds, math.Float64bits(v))
		}
		one.bytes(6, counts)
		one.bytes(7, bounds)
		one.repeated(9, s.attributes())
		one.double(11, d.low)
		one.double(12, d.high)
		points[s.instrument] = append(points[s.instrument], one)
	}
	for i, of := range instruments {
		if len(points[i]) > 0 {
			messages = append(messages, describe(of.name, of.unit, of.text, 9, cumulative(points[i])))
		}
	}
	return messages
}

func (s series) attributes() attributes {
	a := attributes{}
	if s.overflow {
		a.truth("otel.metric.overflow", true)
		return a
	}
	a.text(operationName, s.operation)
	a.text(providerName, provider)
	a.text(requestModel, s.model)
	a.text(responseModel, s.answered)
	a.text(errorType, s.failure)
	a.text("gen_ai.token.type", s.token)
	return a
}

// labelled is a value with its attributes: names, each followed by a text or an int64.
type (
	labelled struct {
		value float64
		labels
	}
	labels []any
)

// times writes when a data point began to count, and when it is of.
func (p point) times(m *message) {
	m.fixed(2, p.start)
	m.fixed(3, p.now)
}

func (p point) numbers(values []labelled) (messages []message) {
	for _, v := range values {
		var n message
		p.times(&n)
		n.double(4, v.value)
		a := attributes{}
		for i := 0; i < len(v.labels); i += 2 {
			switch of := v.labels[i+1].(type) {
			case string:
				a.text(v.labels[i].(string), of)
			case int64:
				a.number(v.labels[i].(string), of)
			}
		}
		n.repeated(7, a)
		messages = append(messages, n)
	}
	return messages
}

// cumulative are data points that count since their start.
func cumulative(points []message) (m message) {
	m.repeated(1, points)
	m.varint(2, 2)
	return m
}

// describe is a metric with its data, a field of that number.
func describe(name, unit, text string, field protowire.Number, data message) (m message) {
	m.text(1, name)
	m.text(2, text)
	m.text(3, unit)
	m.bytes(field, data)
	return m
}

func (p point) sum(name, unit, text string, values ...labelled) message {
	data := cumulative(p.numbers(values))
	data.varint(3, 1) // it only grows
	return describe(name, unit, text, 7, data)
}

func (p point) gauge(name, unit, text string, values ...labelled) message {
	var data message
	data.repeated(1, p.numbers(values))
	return describe(name, unit, text, 5, data)
}
