//go:build linux

package oracle

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
	collectmetrics "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	collecttrace "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	metric "go.opentelemetry.io/proto/slim/otlp/metrics/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A receiver takes what OTLP over HTTP brings, and decodes it with the messages of opentelemetry-proto.
type receiver struct {
	url      string
	lock     sync.Mutex
	spans    []*trace.Span
	metrics  map[string]*metric.Metric // the newest
	resource map[string]any
}

func receive(t *testing.T) *receiver {
	r := &receiver{metrics: map[string]*metric.Metric{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	r.lock.Lock()
	defer r.lock.Unlock()
	var spans collecttrace.ExportTraceServiceRequest
	var metrics collectmetrics.ExportMetricsServiceRequest
	switch request.URL.Path {
	case "/v1/traces":
		err = proto.Unmarshal(body, &spans)
	case "/v1/metrics":
		err = proto.Unmarshal(body, &metrics)
	}
	if err != nil || request.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
		return
	}
	for _, of := range spans.ResourceSpans {
		r.resource = attributesOf(of.Resource.Attributes)
		for _, scope := range of.ScopeSpans {
			r.spans = append(r.spans, scope.Spans...)
		}
	}
	for _, of := range metrics.ResourceMetrics {
		for _, scope := range of.ScopeMetrics {
			for _, m := range scope.Metrics {
				r.metrics[m.Name] = m
			}
		}
	}
}

// attributesOf is attributes by their names.
func attributesOf(all []*common.KeyValue) map[string]any {
	m := map[string]any{}
	for _, a := range all {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			m[a.Key] = v.IntValue
		case *common.AnyValue_DoubleValue:
			m[a.Key] = v.DoubleValue
		case *common.AnyValue_BoolValue:
			m[a.Key] = v.BoolValue
		case *common.AnyValue_ArrayValue:
			m[a.Key] = v.ArrayValue.Values[0].GetStringValue()
		}
	}
	return m
}

// roots are the spans of requests by their number.
func (r *receiver) roots() map[int64]*trace.Span {
	all := map[int64]*trace.Span{}
	for _, s := range r.spans {
		if s.Kind == trace.Span_SPAN_KIND_SERVER {
			all[attributesOf(s.Attributes)["llamatap.request.id"].(int64)] = s
		}
	}
	return all
}

// wantSpans compares what was exported with the table of requests: every span's times and counts, and every histogram.
func wantSpans(t *testing.T, r *receiver, records []kvcache.Request) {
	t.Helper()
	r.lock.Lock()
	defer r.lock.Unlock()
	roots := r.roots()
	children := map[string]*trace.Span{}
	for _, s := range r.spans {
		children[string(s.ParentSpanId)+s.Name] = s
	}
	n := 0
	for i := range records {
		q := &records[i]
		begun := []int64{q.ArrivalNS, q.LaunchNS, q.PromptNS, q.FirstNS}
		begun = slices.DeleteFunc(begun, func(ns int64) bool { return ns == 0 })
		s := roots[q.ID]
		if s == nil || len(begun) == 0 {
			t.Errorf("request %d, known since %v, has the span %v", q.ID, begun, s)
			continue
		}
		n++
		failed := q.End == kvcache.EndError || q.End == kvcache.EndCancelled
		if s.StartTimeUnixNano != uint64(begun[0]) || s.EndTimeUnixNano != uint64(q.EndNS) ||
			(s.Status.Code == trace.Status_STATUS_CODE_ERROR) != failed || len(s.TraceId) != 16 || len(s.SpanId) != 8 {
			t.Errorf("request %+v: span %v", *q, s)
		}
		want := map[string]any{"llamatap.request.id": q.ID, "llamatap.slot": q.Seq, "gen_ai.provider.name": "llama.cpp",
			"gen_ai.usage.output_tokens": q.Output, "gen_ai.operation.name": "text_completion",
			"url.path": "/completion"}
		if q.Prompt >= 0 {
			want["gen_ai.usage.input_tokens"], want["gen_ai.usage.cache_read.input_tokens"] = q.Prompt, q.Cached
		}
		if q.End == kvcache.EndStop || q.End == kvcache.EndLength {
			want["gen_ai.response.finish_reasons"] = kvcache.EndName(q.End)
		}
		if q.Cause != kvcache.CauseNone {
			want["llamatap.recomputed.cause"], want["llamatap.recomputed.tokens"] = kvcache.CauseName(q.Cause), q.Again
		}
		got := attributesOf(s.Attributes)
		for _, key := range []string{"gen_ai.input.messages", "gen_ai.output.messages", "llamatap.texts.cut"} {
			if got[key] != nil {
				t.Errorf("request %d has %s, which nobody asked for", q.ID, key)
			}
		}
		for key, value := range want {
			if got[key] != value && (q.End != kvcache.EndError || q.Said.Path != "") {
				t.Errorf("request %d: %s is %v, want %v", q.ID, key, got[key], value)
			}
		}
		for _, phase := range []struct {
			name       string
			begin, end int64
		}{{"queue", q.ArrivalNS, q.LaunchNS}, {"prefill", q.PromptNS, q.FirstNS}, {"decode", q.FirstNS, q.LastNS}} {
			child, there := children[string(s.SpanId)+phase.name], phase.begin != 0 && phase.end >= phase.begin
			if there {
				n++
			}
			if (child != nil) != there || there && (child.StartTimeUnixNano != uint64(phase.begin) ||
				child.EndTimeUnixNano != uint64(phase.end) || !bytes.Equal(child.TraceId, s.TraceId)) {
				t.Errorf("request %d: %s from %d to %d, the span is %v", q.ID, phase.name, phase.begin, phase.end,
					child)
			}
		}
	}
	if n != len(r.spans) {
		t.Errorf("%d spans came, want %d of %d requests", len(r.spans), n, len(records))
	}
	r.wantMetrics(t, records)
}

// wantMetrics adds requests up again.
func (r *receiver) wantMetrics(t *testing.T, records []kvcache.Request) {
	t.Helper()
	sums, counts := map[string]float64{}, map[string]uint64{}
	add := func(name string, v float64) { sums[name] += v; counts[name]++ }
	for i := range records {
		q := &records[i]
		failed := q.End == kvcache.EndError || q.End == kvcache.EndCancelled
		if q.ArrivalNS != 0 {
			add("gen_ai.server.request.duration", float64(q.EndNS-q.ArrivalNS)/1e9)
		}
		if q.ArrivalNS != 0 && q.FirstNS != 0 {
			add("gen_ai.server.time_to_first_token", float64(q.FirstNS-q.ArrivalNS)/1e9)
		}
		if q.Output > 1 && !failed {
			add("gen_ai.server.time_per_output_token", float64(q.LastNS-q.FirstNS)/1e9/float64(q.Output-1))
		}
		if q.Prompt >= 0 {
			add("gen_ai.client.token.usage", float64(q.Prompt))
		}
		if q.Output > 0 {
			add("gen_ai.client.token.usage", float64(q.Output))
		}
	}
	for name, want := range sums {
		sum, n, inBuckets := 0.0, uint64(0), uint64(0)
		for _, p := range r.metrics[name].GetHistogram().GetDataPoints() {
			sum, n = sum+p.GetSum(), n+p.Count
			for _, count := range p.BucketCounts {
				inBuckets += count
			}
		}
		if math.Abs(sum-want) > 1e-9*want || n != counts[name] || n != inBuckets {
			t.Errorf("%s: %d values, %d in buckets, sum %v; want %d, sum %v", name, n, inBuckets, sum, counts[name],
				want)
		}
	}
	for _, name := range []string{"llamatap.kv.cells", "llamatap.kv.utilization"} {
		if len(r.metrics[name].GetGauge().GetDataPoints()) == 0 {
			t.Errorf("no %s", name)
		}
	}
}

// exportedCounts are those that a sealed run and its summary have.
func (s *server) exportedCounts(t *testing.T) (counts kvcache.Exported) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(runDirs(t, s.out)[0], "metadata.json"))
	var of struct {
		Extra struct{ OTLP *kvcache.Exported }
	}
	if err = errors.Join(err, json.Unmarshal(text, &of)); err != nil || of.Extra.OTLP == nil {
		t.Fatalf("metadata.json counts no spans: %v", err)
	}
	if line := fmt.Sprintf("%d spans sent to ", of.Extra.OTLP.Spans); !strings.Contains(s.stderr.String(), line) {
		t.Errorf("the summary lacks %q:\n%s", line, s.stderr.String())
	}
	return *of.Extra.OTLP
}

// TestExportedTexts: with --tap-otlp-texts spans have the prompt and the answer, up to so many bytes, and none where
// texts are redacted. wantSpans holds that there are none without the flag.
func TestExportedTexts(t *testing.T) {
	for _, c := range []struct{ bytes, redact string }{{"4000", "none"}, {"10", "none"}, {"4000", "text"}} {
		to := receive(t)
		s := serve(t, []string{"--tap-otlp", to.url, "--tap-otlp-texts", c.bytes, "--tap-redact", c.redact}, "-np", "1",
			"-c", "2048", "-t", "1", "--no-webui")
		const prompt = "package \"p\"\nfunc é main("
		a := s.ask(t, question{prompt: prompt, slot: -1, n: 12, options: map[string]any{"ignore_eos": true}})
		s.stop()
		roots := to.roots()
		if roots[0] == nil {
			t.Fatalf("no span came: %s", s.stderr.String())
		}
		got := attributesOf(roots[0].Attributes)
		most, _ := strconv.Atoi(c.bytes)
		for key, want := range map[string]string{
			"gen_ai.input.messages": "<|endoftext|>" + prompt, "gen_ai.output.messages": a.Content} {
			text, _ := got[key].(string)
			var messages []struct {
				Role   string
				Parts  []struct{ Type, Content string }
				Finish string `json:"finish_reason"`
			}
			if c.redact == "text" {
				if got[key] != nil {
					t.Errorf("redacted: %s is %q", key, text)
				}
				continue
			}
			want = strings.ToValidUTF8(want[:min(len(want), most)], "")
			if err := json.Unmarshal([]byte(text), &messages); err != nil || len(messages) != 1 ||
				len(messages[0].Parts) != 1 || messages[0].Parts[0].Type != "text" ||
				messages[0].Parts[0].Content != want ||
				messages[0].Role+messages[0].Finish != map[bool]string{true: "user", false: "assistantlength"}[key ==
					"gen_ai.input.messages"] {
				t.Errorf("at most %s bytes: %s is %q, want %q", c.bytes, key, text, want)
			}
		}
		if cut := got["llamatap.texts.cut"] == true; cut != (most < len(prompt)) {
			t.Errorf("at most %s bytes: cut %v", c.bytes, got["llamatap.texts.cut"])
		}
	}
}

// TestServeExports: llamatap serve exports the requests of a live run that does not do it itself, the same spans, and
// none of a run that does.
func TestServeExports(t *testing.T) {
	to, own := receive(t), receive(t)
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
	out := t.TempDir()
	view := show(t, out, "--otlp", to.url)
	line := []string{testenv.NeedBinary(t), "exec", "--tap-out", out, "--tap-kv"}
	arguments := []string{"--", "llama-server", "-np", "2", "-c", "2048", "-t", "1", "--no-webui"}
	for _, flags := range [][]string{{"--tap-requests"}, {"--tap-otlp", own.url}} {
		s := serveBy(t, out, slices.Concat(line, flags, arguments)...)
		seen := func(name string, of *receiver) {
			testenv.Until(t, name, func() bool {
				of.lock.Lock()
				defer of.lock.Unlock()
				return of.metrics["llamatap.kv.cells"] != nil
			})
		}
		for i := range 5 {
			s.ask(t, question{prompt: fmt.Sprintf("package p%d\nfunc", i), slot: -1, n: 2 + i})
		}
		if of := map[bool]*receiver{true: to, false: own}[flags[0] == "--tap-requests"]; of == to {
			seen("serve has seen the run", of)
		} else {
			seen("the run exports", of)
			testenv.Until(t, "serve sees that the run exports", func() bool {
				return figures(view.ask(t, "GET", "/metrics", ""))["otlp_spans_total"] > 0
			})
		}
		if flags[0] != "--tap-requests" {
			time.Sleep(1200 * time.Millisecond) // serve looks at it again, and would export it
		}
		s.stop()
		if flags[0] != "--tap-requests" {
			continue
		}
		records := s.recordedRequests(t)
		testenv.Until(t, "the spans of the sealed run", func() bool {
			to.lock.Lock()
			defer to.lock.Unlock()
			n := uint64(0)
			for _, p := range to.metrics["gen_ai.server.request.duration"].GetHistogram().GetDataPoints() {
				n += p.Count
			}
			return n == 5 && len(to.spans) == 4*5
		})
		wantSpans(t, to, records)
	}
	if err := view.stop(); err != nil {
		t.Error(err)
	}
	if len(to.spans) != 4*5 || len(own.spans) != 4*5 {
		t.Errorf("%d spans of the run that serve exports, %d of the one that exports itself", len(to.spans),
			len(own.spans))
	}
	for _, key := range []string{"service.name", "host.name"} {
		if to.resource[key] == nil || to.resource[key] != own.resource[key] {
			t.Errorf("%s is %v by serve, %v by the run", key, to.resource[key], own.resource[key])
		}
	}
}

// TestTraceParents: the trace context of an HTTP request is that of its own record, whatever else arrives at the same
// time, in pieces, in chunks, or before it by the same connection.
func TestTraceParents(t *testing.T) {
	to := receive(t)
	s := serve(t, []string{"--tap-otlp", to.url}, "-np", "4", "-c", "4096", "-t", "1", "--no-webui")
	const clients, each, ids = 5, 4, 4 // the last one's prompts are token ids
	var all sync.WaitGroup
	var asked sync.Map // ids of answers by the model that was asked for
	for client := range clients {
		all.Go(func() {
			// of its own, kept
			connection := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
			for i := range each {
				n := 1 + client*each + i
				path := "/v1/chat/completions"
				prompt := fmt.Sprintf(`"messages":[{"role":"user","content":"\"model\":\"no\" %d"}]`, i%2)
				if client == ids {
					path, prompt = "/completion", `"prompt":[5, 6, 7]`
				}
				body := fmt.Sprintf(`{%s,"model":"m%d","max_tokens":%d,"temperature":0.5,"ignore_eos":true}`, prompt, n,
					n)
				var reader io.Reader = strings.NewReader(body)
				if i%2 == 1 {
					reader = io.MultiReader(strings.NewReader(body[:40]), strings.NewReader(body[40:])) // chunks
				}
				ask, err := http.NewRequest(http.MethodPost, s.url+path, reader)
				if err != nil {
					t.Error(err)
					return
				}
				if i != 2 { // the third of each connection has none
					ask.Header.Set("traceparent", fmt.Sprintf("00-%032x-%016x-01", 1000+n, 2000+n))
					ask.Header.Set("tracestate", fmt.Sprintf("n=%d", n))
				}
				if i == 0 || i == 3 { // the server is asked whether the body may come
					ask.Header.Set("Expect", "100-continue")
				}
				response, err := connection.Do(ask)
				if err != nil {
					t.Error(err)
					return
				}
				text, _ := io.ReadAll(response.Body)
				response.Body.Close()
				var answer struct {
					ID string
				}
				if json.Unmarshal(text, &answer) != nil || (answer.ID == "") != (client == ids) {
					t.Errorf("answer %s", text)
				}
				asked.Store(fmt.Sprint("m", n), answer.ID)
			}
		})
	}
	all.Wait()
	records := s.recordedRequests(t)
	if counts := s.exportedCounts(t); counts.Dropped() != 0 || !counts.LastMetrics {
		t.Errorf("%+v", counts)
	}
	seen := map[int64]bool{}
	for id, span := range to.roots() {
		a := attributesOf(span.Attributes)
		n, _ := a["gen_ai.usage.output_tokens"].(int64)
		seen[n] = true
		model := fmt.Sprint("m", n)
		operation := "chat"
		var answered any
		if answered, _ = asked.Load(model); answered == "" {
			answered, operation = nil, "text_completion"
		}
		want := map[string]any{"gen_ai.request.model": model, "gen_ai.request.max_tokens": n,
			"gen_ai.operation.name":      operation,
			"gen_ai.request.temperature": 0.5, "gen_ai.response.id": answered,
			"gen_ai.response.finish_reasons": "length"}
		for key, value := range want {
			if a[key] != value {
				t.Errorf("request %d, which has %d tokens: %s is %v, want %v", id, n, key, a[key], value)
			}
		}
		parent, state := hex.EncodeToString(span.ParentSpanId), span.TraceState
		wantParent, wantState := fmt.Sprintf("%016x", 2000+n), fmt.Sprintf("n=%d", n)
		if (n-1)%each == 2 {
			wantParent, wantState = "", ""
		} else if hex.EncodeToString(span.TraceId) != fmt.Sprintf("%032x", 1000+n) {
			t.Errorf("request %d is of trace %x", id, span.TraceId)
		}
		if parent != wantParent || state != wantState || span.Name != operation+" "+model {
			t.Errorf("%q: parent %q, state %q, want %q, %q", span.Name, parent, state, wantParent, wantState)
		}
	}
	if len(seen) != clients*each || len(records) != clients*each {
		t.Errorf("%d requests of different lengths, %d records, want %d", len(seen), len(records), clients*each)
	}
	if name := to.resource["service.name"]; name != "llama-server" {
		t.Errorf("the service is %v", name)
	}
}
