package otlp

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llamatap/llamatap/kvcache"
	collectmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collecttrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	metric "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector is one without a network: it decodes with the reference messages, and answers as a test wants.
type collector struct {
	lock    sync.Mutex
	answer  func(path string) (status int, header http.Header, body proto.Message, err error)
	spans   []*trace.Span
	metrics []*metric.Metric // of the newest message
	times   []time.Duration  // of attempts to send spans, since begun
	begun   time.Time
	bad     error
}

func (c *collector) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		packed, failed := gzip.NewReader(bytes.NewReader(body))
		if err = errors.Join(err, failed); err == nil {
			body, err = io.ReadAll(packed)
		}
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.bad = errors.Join(c.bad, err)
	if strings.HasSuffix(r.URL.Path, traces) {
		c.times = append(c.times, time.Since(c.begun))
	}
	status, header, answer := http.StatusOK, http.Header{}, proto.Message(nil)
	if c.answer != nil {
		if status, header, answer, err = c.answer(r.URL.Path); err != nil {
			return nil, err
		}
	}
	if status == http.StatusOK {
		c.take(r.URL.Path, body)
	}
	text := []byte{}
	if answer != nil {
		text, _ = proto.Marshal(answer)
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: header,
		Body: io.NopCloser(bytes.NewReader(text))}, nil
}

func (c *collector) take(path string, body []byte) {
	var spans collecttrace.ExportTraceServiceRequest
	var figures collectmetrics.ExportMetricsServiceRequest
	of := map[string]proto.Message{"/v1/traces": &spans, "/v1/metrics": &figures}[path]
	if of == nil {
		c.bad = errors.Join(c.bad, fmt.Errorf("a message to %s", path))
		return
	}
	c.bad = errors.Join(c.bad, proto.Unmarshal(body, of))
	if len(of.ProtoReflect().GetUnknown()) > 0 {
		c.bad = errors.Join(c.bad, errors.New("unknown fields"))
	}
	for _, r := range spans.ResourceSpans {
		for _, s := range r.ScopeSpans {
			c.spans = append(c.spans, s.Spans...)
		}
	}
	for _, r := range figures.ResourceMetrics {
		c.metrics = r.ScopeMetrics[0].Metrics
	}
}

// figure is a counter's or a gauge's value, by its name and its last attribute.
func (c *collector) figure(name, label string) (v float64) {
	for _, m := range c.metrics {
		if m.Name == name {
			for _, p := range append(m.GetSum().GetDataPoints(), m.GetGauge().GetDataPoints()...) {
				if label == "" || p.Attributes[len(p.Attributes)-1].Value.GetStringValue() == label {
					v += p.GetAsDouble()
				}
			}
		}
	}
	return v
}

func asked(id int64) kvcache.Request {
	q := kvcache.NewRequest()
	q.ID, q.End, q.Prompt, q.Cached, q.Computed, q.Output = id, kvcache.EndLength, 10, 4, 6, 3
	q.ArrivalNS, q.LaunchNS, q.PromptNS, q.FirstNS, q.LastNS, q.EndNS = 1e9, 2e9, 3e9, 4e9, 6e9, 7e9
	q.Said = kvcache.RequestSaid{Path: "/v1/chat/completions", Model: "gopher"}
	return q
}

const perRequest = 4 // spans

// exported runs an exporter in a bubble with time of its own, and returns what it counted.
func exported(t *testing.T, c *collector, during func(*Exporter)) (counts kvcache.Exported, remarks []string) {
	t.Helper()
	s, err := Lookup("--tap-otlp", "http://c", func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	var lock sync.Mutex
	c.begun = time.Now()
	e := Start(Options{Settings: *s, Run: "run", Transport: c, Remark: func(text string) {
		lock.Lock()
		defer lock.Unlock()
		remarks = append(remarks, text)
	}})
	during(e)
	counts = e.Close()
	if c.bad != nil {
		t.Error(c.bad)
	}
	ids := map[string]int{}
	for _, s := range c.spans {
		ids[hex.EncodeToString(s.SpanId)]++
	}
	if len(ids) != len(c.spans) {
		t.Errorf("%d spans have %d ids", len(c.spans), len(ids))
	}
	if again := e.Close(); again != counts {
		t.Errorf("closed twice: %+v, then %+v", counts, again)
	}
	return counts, remarks
}

func unavailable(after string) (int, http.Header, proto.Message, error) {
	return http.StatusServiceUnavailable, http.Header{"Retry-After": {after}}, nil, nil
}

// TestCollectors: what becomes of spans with collectors that are away, restarted, busy, slow, or refuse them.
func TestCollectors(t *testing.T) {
	away := errors.New("connection refused")
	for name, test := range map[string]struct {
		answer  func(c *collector) func(string) (int, http.Header, proto.Message, error)
		want    kvcache.Exported
		remarks int // of two signals
		longest time.Duration
	}{
		"well": {nil, kvcache.Exported{Spans: 8, LastMetrics: true}, 0, 0},
		"absent": {func(*collector) func(string) (int, http.Header, proto.Message, error) {
			return func(string) (int, http.Header, proto.Message, error) { return 0, nil, nil, away }
		}, kvcache.Exported{Unsent: 8}, 2, FlushLimit},
		"restarted": {func(c *collector) func(string) (int, http.Header, proto.Message, error) {
			return func(string) (int, http.Header, proto.Message, error) {
				if time.Since(c.begun) < 2*time.Minute {
					return 0, nil, nil, away
				}
				return http.StatusOK, nil, nil, nil
			}
		}, kvcache.Exported{Spans: 8, LastMetrics: true}, 4, 0},
		"busy at the end": {func(*collector) func(string) (int, http.Header, proto.Message, error) {
			return func(string) (int, http.Header, proto.Message, error) { return unavailable("3600") }
		}, kvcache.Exported{Unsent: 8}, 2, FlushLimit},
		"refuses": {func(*collector) func(string) (int, http.Header, proto.Message, error) {
			return func(string) (int, http.Header, proto.Message, error) {
				return http.StatusUnauthorized, nil, nil, nil
			}
		}, kvcache.Exported{Refused: 8}, 2, 0},
		"refuses a part": {func(*collector) func(string) (int, http.Header, proto.Message, error) {
			return func(path string) (int, http.Header, proto.Message, error) {
				if path == "/v1/traces" {
					return http.StatusOK, nil, &collecttrace.ExportTraceServiceResponse{
							PartialSuccess: &collecttrace.ExportTracePartialSuccess{RejectedSpans: 3,
								ErrorMessage: "no"}},
						nil
				}
				return http.StatusOK, nil, nil, nil
			}
		}, kvcache.Exported{Spans: 5, Refused: 3, LastMetrics: true}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &collector{}
				if test.answer != nil {
					c.answer = test.answer(c)
				}
				var closing time.Time
				counts, remarks := exported(t, c, func(e *Exporter) {
					e.Add(asked(0))
					e.Add(asked(1))
					time.Sleep(4 * time.Minute)
					closing = time.Now()
				})
				if took := time.Since(closing); took != test.longest {
					t.Errorf("the end took %v, want %v", took, test.longest)
				}
				if counts != test.want || len(remarks) != test.remarks {
					t.Errorf("%+v, remarks %q; want %+v", counts, remarks, test.want)
				}
				if name == "busy at the end" && len(c.times) != 1 {
					t.Errorf("attempts at %v, although it wants none for an hour", c.times)
				}
				if sent := int(counts.Spans) + map[string]int{"refuses a part": 3}[name]; sent != len(c.spans) {
					t.Errorf("%d spans counted, %d came", sent, len(c.spans))
				}
			})
		})
	}
}

// TestRetryAfter: a collector that says when to come again is left alone until then, however it says so.
func TestRetryAfter(t *testing.T) {
	for _, form := range []string{"seconds", "time"} {
		synctest.Test(t, func(t *testing.T) {
			c := &collector{}
			first := true
			c.answer = func(path string) (int, http.Header, proto.Message, error) {
				if path == "/v1/traces" && first {
					first = false
					after := "77"
					if form == "time" {
						after = time.Now().Add(77 * time.Second).UTC().Format(http.TimeFormat)
					}
					return unavailable(after)
				}
				return http.StatusOK, nil, nil, nil
			}
			counts, _ := exported(t, c, func(e *Exporter) {
				e.Add(asked(0))
				time.Sleep(2 * time.Minute)
			})
			if len(c.times) != 2 || c.times[1]-c.times[0] != 77*time.Second || counts.Spans != perRequest {
				t.Errorf("%s: attempts at %v, %+v", form, c.times, counts)
			}
		})
	}
}

// TestBufferIsBounded: a collector that answers nothing holds nobody up; what does not fit is dropped and counted, and
// all else is sent when it answers.
func TestBufferIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		c.answer = func(path string) (int, http.Header, proto.Message, error) {
			if path == "/v1/traces" && time.Since(c.begun) < 10*time.Minute {
				return http.StatusTooManyRequests, nil, nil, nil
			}
			return http.StatusOK, nil, nil, nil
		}
		const n = maxBatch + maxQueued + 100
		counts, _ := exported(t, c, func(e *Exporter) {
			for id := range int64(n) {
				if id == maxBatch {
					synctest.Wait() // the first batch is on its way
				}
				before := time.Now()
				e.Add(asked(id))
				if time.Since(before) != 0 {
					t.Fatal("the model waited")
				}
			}
			time.Sleep(11 * time.Minute)
		})
		want := kvcache.Exported{Spans: (maxBatch + maxQueued) * perRequest, Full: 100 * perRequest, LastMetrics: true}
		if counts != want || len(c.spans) != int(want.Spans) {
			t.Errorf("%+v, %d spans came, want %+v", counts, len(c.spans), want)
		}
		if got := c.figure("llamatap.otlp.spans", "buffer_full"); got != float64(want.Full) {
			t.Errorf("the metric counts %v dropped spans", got)
		}
		if gaps := c.times[1] - c.times[0]; gaps < firstPause/2 || len(c.times) > 60 {
			t.Errorf("attempts at %v", c.times)
		}
	})
}

// TestSlowCollector: a message whose answer takes longer than the timeout is sent again.
func TestSlowCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowly{collector: &collector{}, left: 1}
		s, err := Lookup("--tap-otlp", "http://c", func(name string) (string, bool) {
			v, ok := map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "2000", "OTEL_METRICS_EXPORTER": "none"}[name]
			return v, ok
		})
		if err != nil || s.Metrics != nil {
			t.Fatal(s, err)
		}
		slow.begun = time.Now()
		e := Start(Options{Settings: *s, Run: "run", Transport: slow})
		e.Add(asked(0))
		time.Sleep(time.Minute)
		if counts := e.Close(); counts.Spans != perRequest || slow.left != 0 || len(slow.spans) != perRequest {
			t.Errorf("%+v, %d spans", counts, len(slow.spans))
		}
		if slow.gaveUp != 2*time.Second {
			t.Errorf("it was waited for %v", slow.gaveUp)
		}
	})
}

// slowly is a collector that does not answer in time at first.
type slowly struct {
	*collector
	left   int
	gaveUp time.Duration
}

func (s *slowly) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.left > 0 {
		s.left--
		began := time.Now()
		<-r.Context().Done()
		s.gaveUp = time.Since(began)
		return nil, r.Context().Err()
	}
	return s.collector.RoundTrip(r)
}

// TestSpan: the spans of one request, as the reference messages have them.
func TestSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &collector{}
		q := asked(5)
		q.End, q.Cause, q.Again, q.Pos = kvcache.EndCancelled, kvcache.CauseDiffers, 2, 4
		q.Said.TraceParent, q.Said.TraceState = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "a=1"
		q.Said.Settings = `{"n_predict":-1,"temperature":0.5,"top_k":"x","seed":null,"stream":true}`
		open := asked(7) // the server ended before it
		open.EndNS, open.Said = 0, kvcache.RequestSaid{}
		unsampled := q
		unsampled.ID, unsampled.Said.TraceParent = 6, strings.TrimSuffix(q.Said.TraceParent, "1")+"0"
		counts, _ := exported(t, c, func(e *Exporter) {
			e.Add(q)
			e.Add(unsampled)
			e.Add(open)
		})
		if len(c.spans) != 2*perRequest || counts.Spans != 2*perRequest {
			t.Fatalf("%d spans, %+v", len(c.spans), counts)
		}
		if s := c.spans[perRequest]; s.EndTimeUnixNano != uint64(open.LastNS) || s.Name != "request" ||
			len(s.TraceId) != 16 || s.ParentSpanId != nil || bytes.Equal(s.TraceId, c.spans[0].TraceId) {
			t.Errorf("%v", s)
		}
		root := c.spans[0]
		if root.Name != "chat gopher" || root.Kind != trace.Span_SPAN_KIND_SERVER || root.TraceState != "a=1" ||
			hex.EncodeToString(root.TraceId) != "4bf92f3577b34da6a3ce929d0e0e4736" ||
			hex.EncodeToString(root.ParentSpanId) != "00f067aa0ba902b7" || root.Flags != 0x301 ||
			root.Status.Code != trace.Status_STATUS_CODE_ERROR || root.Status.Message != "cancelled" {
			t.Errorf("%v", root)
		}
		had := map[string]string{}
		for _, a := range root.Attributes {
			had[a.Key] = strings.TrimSpace(a.Value.String())
		}
		for key, want := range map[string]string{"gen_ai.request.temperature": "double_value:0.5",
			"gen_ai.request.stream": "bool_value:true", "error.type": `string_value:"cancelled"`,
			"llamatap.recomputed.cause":                `string_value:"differs"`,
			"gen_ai.usage.cache_read.input_tokens":     "int_value:4",
			"gen_ai.usage.output_tokens":               "int_value:3",
			"gen_ai.provider.name":                     `string_value:"llama.cpp"`,
			"llamatap.recomputed.tokens":               "int_value:2",
			"gen_ai.usage.input_tokens":                "int_value:10",
			"gen_ai.usage.cache_creation.input_tokens": "int_value:6"} {
			if got := strings.ReplaceAll(had[key], " ", ""); got != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
		for _, absent := range []string{"gen_ai.request.max_tokens", "gen_ai.request.top_k", "gen_ai.request.seed",
			"gen_ai.response.finish_reasons"} {
			if got, is := had[absent]; is {
				t.Errorf("%s is %s", absent, got)
			}
		}
		for i, want := range []struct {
			name       string
			begin, end uint64
		}{{"queue", 1e9, 2e9}, {"prefill", 3e9, 4e9}, {"decode", 4e9, 6e9}} {
			s := c.spans[i+1]
			if s.Name != want.name || s.StartTimeUnixNano != want.begin || s.EndTimeUnixNano != want.end ||
				!bytes.Equal(s.ParentSpanId, root.SpanId) || !bytes.Equal(s.TraceId, root.TraceId) {
				t.Errorf("%v, want %+v", s, want)
			}
		}
		wantHistograms(t, c.metrics, map[string]float64{"gen_ai.server.request.duration": 12,
			"gen_ai.server.time_to_first_token": 9, "gen_ai.server.time_per_output_token": 1,
			"gen_ai.client.token.usage": 39})
	})
}

// wantHistograms compares the sums of histograms, and their counts with their buckets.
func wantHistograms(t *testing.T, all []*metric.Metric, want map[string]float64) {
	t.Helper()
	got := map[string]float64{}
	for _, m := range all {
		for _, p := range m.GetHistogram().GetDataPoints() {
			n := uint64(0)
			for i, count := range p.BucketCounts {
				if n += count; count > 0 && (i > 0 && p.GetMax() <= p.ExplicitBounds[i-1] ||
					i < len(p.ExplicitBounds) && p.GetMin() > p.ExplicitBounds[i]) {
					t.Errorf("%s: bucket %d of values from %v to %v", m.Name, i, p.GetMin(), p.GetMax())
				}
			}
			if n != p.Count || len(p.BucketCounts) != len(p.ExplicitBounds)+1 || n == 0 {
				t.Errorf("%s: %v", m.Name, p)
			}
			got[m.Name] += p.GetSum()
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("sums %v, want %v", got, want)
	}
}

// TestTraceParents: what is no traceparent begins a trace.
func TestTraceParents(t *testing.T) {
	const id, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for text, known := range map[string]bool{
		"": false, "00-" + id + "-" + span + "-01": true, "00-" + id + "-" + span + "-01-x": false,
		"cc-" + id + "-" + span + "-01-what": true, "ff-" + id + "-" + span + "-01": false,
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01": false,
		"00-" + id + "-" + strings.Repeat("0", 16) + "-01":   false,
		"00-" + strings.ToUpper(id) + "-" + span + "-01":     false, "00-" + id + "-" + span + "-1": false,
		"00-" + id: false,
	} {
		if traceID, _, sampled := parseParent(text); (traceID != nil) != known || !sampled {
			t.Errorf("%q: %x, sampled %v", text, traceID, sampled)
		}
	}
}

// TestManyModels: clients cannot make data points without end.
func TestManyModels(t *testing.T) {
	var m meter
	for i := range 10 * maxSeries {
		q := asked(0)
		q.Said.Model = fmt.Sprint("m", i)
		m.add(&q)
	}
	if len(m.all) > maxSeries+len(instruments) {
		t.Errorf("%d data points", len(m.all))
	}
	over := uint64(0)
	for s, d := range m.all {
		if s.overflow {
			over += d.count
		}
	}
	if want := uint64(10*maxSeries*5) - maxSeries; over != want {
		t.Errorf("%d values beyond them, want %d", over, want)
	}
}

// TestLookup: the flag and the standard variables.
func TestLookup(t *testing.T) {
	for _, test := range []struct {
		base, env, want, wrong string
	}{
		{"", "", "", ""},
		{"http://h:4318", "", "http://h:4318/v1/traces http://h:4318/v1/metrics 10s", ""},
		{"http://h:4318/x/", "OTEL_EXPORTER_OTLP_ENDPOINT=http://other",
			"http://h:4318/x/v1/traces http://h:4318/x/v1/metrics 10s",
			""},
		{"off", "OTEL_EXPORTER_OTLP_ENDPOINT=http://h", "", ""},
		{"http://h", "OTEL_SDK_DISABLED=TRUE", "", ""},
		{"", "OTEL_EXPORTER_OTLP_ENDPOINT=https://h OTEL_EXPORTER_OTLP_TIMEOUT=500",
			"https://h/v1/traces https://h/v1/metrics 500ms", ""},
		{"", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://h/own OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=b%20c,d=e",
			"http://h/own - 10s [[a b c] [d e]]", ""},
		{"http://h", "OTEL_TRACES_EXPORTER=none", "- http://h/v1/metrics", ""},
		{"localhost:4318", "", "", "http://localhost:4318"},
		{"http://user:secret@h", "", "", "OTEL_EXPORTER_OTLP_HEADERS"},
		{"http://h", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc is unsupported"},
		{"http://h", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf " +
			"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/protobuf", "http://h/v1/traces http://h/v1/metrics 10s", ""},
		{"http://h", "OTEL_EXPORTER_OTLP_HEADERS=secret", "", "entry 1 is not key=value"},
		{"http://h", "OTEL_EXPORTER_OTLP_TIMEOUT=10s", "", "milliseconds"},
	} {
		env := map[string]string{}
		for _, pair := range strings.Fields(test.env) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		s, err := Lookup("--tap-otlp", test.base, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		got := ""
		if s != nil {
			for _, p := range []*Endpoint{s.Traces, s.Metrics} {
				if p == nil {
					p = &Endpoint{URL: "-"}
				}
				got += p.URL + " "
			}
			if s.Traces != nil {
				got += s.Traces.Timeout.String()
				if s.Traces.Headers != nil {
					got += fmt.Sprint(" ", s.Traces.Headers)
				}
			}
		}
		text := fmt.Sprint(err)
		if strings.TrimSpace(got) != test.want || (err != nil) != (test.wrong != "") || !strings.Contains(text,
			test.wrong) ||
			strings.Contains(text, "secret") {
			t.Errorf("%q with %q: %q, %v", test.base, test.env, got, err)
		}
	}
	s, err := Lookup("--tap-otlp", "http://h", func(name string) (string, bool) {
		v, ok := map[string]string{"OTEL_SERVICE_NAME": "chat",
			"OTEL_RESOURCE_ATTRIBUTES": "service.name=x,k=%2C"}[name]
		return v, ok
	})
	if want := [][2]string{{"service.name", "x"}, {"k", ","}, {"service.name", "chat"}}; err != nil ||
		!slices.Equal(s.Resource, want) {
		t.Errorf("%v %v", s, err)
	}
}
