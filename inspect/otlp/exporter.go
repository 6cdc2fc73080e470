package otlp

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/llamatap/llamatap/kvcache"
)

const (
	// maxQueued bounds the requests that wait to be sent. Those that come while so many wait are dropped, and counted.
	maxQueued = 2048
	// maxBatch is the most requests of one message: some 2000 spans.
	maxBatch = 512
	// FlushLimit bounds how long Close waits for the collector.
	FlushLimit = 5 * time.Second
)

// Options say what is exported.
type Options struct {
	Settings
	Run     string // the run's id
	Offset  int64  // from the times of requests to Unix time, in nanoseconds
	Version string // llamatap's
	// Attributes are of the run's resource, where Settings.Resource has none of the name.
	Attributes [][2]string
	// Remark takes a line when a signal cannot be sent, and when it can again. It is called from other goroutines.
	Remark func(string)
	// Transport carries the messages; nil: HTTP.
	Transport http.RoundTripper
}

// Exporter sends requests to a collector, from goroutines of its own. Its methods never wait for it, but for Close,
// and may be called from several goroutines.
type Exporter struct {
	o       Options
	source  source
	begun   time.Time
	closing chan struct{} // closed: send what is there
	closed  sync.Once
	ctx     context.Context // ends when the last may no longer be sent
	end     context.CancelFunc
	done    sync.WaitGroup
	wake    chan struct{} // a batch is full

	lock   sync.Mutex
	queue  []*kvcache.Request
	meter  meter
	seen   *Observation
	counts kvcache.Exported
}

// Start begins to export. The caller closes it.
func Start(o Options) *Exporter {
	e := &Exporter{o: o, source: source{o.Run, o.Offset}, begun: time.Now(), closing: make(chan struct{}),
		wake: make(chan struct{}, 1)}
	e.counts.LastMetrics = o.Metrics == nil
	e.ctx, e.end = context.WithCancel(context.Background())
	if o.Transport == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 2
		e.o.Transport = transport
	}
	if o.Traces != nil {
		e.done.Go(e.sendSpans)
	}
	if o.Metrics != nil {
		e.done.Go(e.sendMetrics)
	}
	return e
}

// Add exports a request that has ended.
func (e *Exporter) Add(q kvcache.Request) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.meter.add(&q)
	q.Gaps, q.Blocks = nil, nil // spans have none of them
	if e.o.Traces == nil {
		return
	}
	if len(e.queue) == maxQueued {
		e.counts.Full += int64(len(e.source.spans(&q)))
		return
	}
	e.queue = append(e.queue, &q)
	if len(e.queue) >= maxBatch {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// Observe notes how the run is.
func (e *Exporter) Observe(o Observation) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.seen = &o
}

// Counts is the outcome of spans so far.
func (e *Exporter) Counts() kvcache.Exported {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.counts
}

// count changes the counts.
func (e *Exporter) count(by func(*kvcache.Exported)) {
	e.lock.Lock()
	defer e.lock.Unlock()
	by(&e.counts)
}

// Close sends what is left, for at most [FlushLimit], and returns the outcome of everything. It may be called twice.
func (e *Exporter) Close() kvcache.Exported {
	e.closed.Do(func() {
		close(e.closing)
		limit := time.AfterFunc(FlushLimit, e.end)
		e.done.Wait()
		limit.Stop()
		e.end()
		if t, ok := e.o.Transport.(*http.Transport); ok {
			t.CloseIdleConnections()
		}
	})
	return e.Counts()
}

// isClosing reports whether Close was called.
func (e *Exporter) isClosing() bool {
	select {
	case <-e.closing:
		return true
	default:
		return false
	}
}

// sendSpans sends requests until Close, and what is left then.
func (e *Exporter) sendSpans() {
	to := &lane{exporter: e, Endpoint: e.o.Traces}
	delay := time.NewTicker(e.o.Delay)
	defer delay.Stop()
	for last := false; !last; {
		select {
		case <-e.wake:
		case <-delay.C:
		case <-e.closing:
			last = true
		}
		for {
			e.lock.Lock()
			n := min(len(e.queue), maxBatch)
			batch := slices.Clone(e.queue[:n])
			e.queue = slices.Delete(e.queue, 0, n)
			e.lock.Unlock()
			if n == 0 {
				break
			}
			e.sendBatch(to, batch)
		}
	}
}

// sendBatch sends the spans of some requests, and counts the outcome of them.
func (e *Exporter) sendBatch(to *lane, batch []*kvcache.Request) {
	var spans []message
	for _, q := range batch {
		spans = append(spans, e.source.spans(q)...)
	}
	if len(spans) == 0 {
		return
	}
	whole := e.envelope(spans)
	outcome, rejected := to.send(func() message { return whole })
	n := int64(len(spans))
	e.count(func(c *kvcache.Exported) {
		switch outcome {
		case sent:
			rejected = min(rejected, n)
			c.Spans, c.Refused = c.Spans+n-rejected, c.Refused+rejected
		case refused:
			c.Refused += n
		case unsent:
			c.Unsent += n
		}
	})
}

// sendMetrics sends all metrics once an interval, and at Close.
func (e *Exporter) sendMetrics() {
	to := &lane{exporter: e, Endpoint: e.o.Metrics}
	interval := time.NewTicker(e.o.Interval)
	defer interval.Stop()
	for last := false; !last; {
		select {
		case <-interval.C:
		case <-e.closing:
			last = true
		}
		outcome, rejected := to.send(e.metrics)
		e.count(func(c *kvcache.Exported) {
			c.Points += rejected
			c.LastMetrics = outcome == sent
		})
	}
}

// metrics is a message of all metrics as they are now.
func (e *Exporter) metrics() message {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.envelope(e.meter.metrics(e.begun, time.Now(), e.seen, e.counts))
}

// envelope returns a message to a collector: the spans or metrics of a resource and a scope. Both signals number them
// alike.
func (e *Exporter) envelope(messages []message) message {
	var scope, of, from message
	scope.text(1, "llamatap")
	scope.text(2, e.o.Version)
	of.bytes(1, scope)
	of.repeated(2, messages)
	from.bytes(1, e.resource())
	from.bytes(2, of)
	return within(1, from)
}

// resource is what all spans and metrics are of: what the user set, and the others of the run.
func (e *Exporter) resource() (m message) {
	all := map[string]string{}
	for _, pair := range slices.Concat(e.o.Attributes, e.o.Resource) {
		all[pair[0]] = pair[1]
	}
	a := attributes{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		a.text(key, all[key])
	}
	m.repeated(1, a)
	return m
}
