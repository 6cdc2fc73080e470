//go:build linux

package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
)

// allMetrics are the counters and gauges.
var allMetrics = []*metric{runInfo, logBehind, eventsTotal, badTotal, lostTotal, graphsTotal, graphTime, insideTime,
	lookTime,
	tokensTotal, flopsTotal, paddedTotal, readTotal, writtenTotal,
	componentsNS, kvCells, kvRatio, kvCellOps, kvWritten, memoryLive, memoryPeak, gpuBusy, gpuMemory, gpuUsed, gpuPower,
	gpuEnergy, captureSize, captureSum, packetsSum, packetsLost, timeLost, overhead, kvSequence, kvNeeded, kvReused,
	kvHits}

// exposed returns the metrics as Prometheus's own parser reads them.
func exposed(t *testing.T, m *metrics) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := m.collect()
	var text strings.Builder
	if err == nil {
		err = writeSamples(&text, expfmt.NewFormat(expfmt.TypeTextPlain), all)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, parseErr := parser.TextToMetricFamilies(strings.NewReader(text.String()))
	if err = errors.Join(err, parseErr); err != nil {
		t.Fatalf("%v\n%s", err, text.String())
	}
	return families
}

// TestExposition: Prometheus's parser reads every figure and label back, whatever characters they have.
func TestExposition(t *testing.T) {
	odd := "a\\b\"c\nd\xff{},é"
	one, other := gauge("test_value", "What\\ it\nmeans.", "z", "a"), histogram("test_seconds", "Time.")
	for _, value := range []float64{0, -1, 1e21, 0.1, math.Inf(1), math.MaxFloat64} {
		var text strings.Builder
		all := []sample{one.at(value, "r", odd, "x"), one.at(2, "r", "", ""),
			other.distribution(7, value, []bucket{{0.5, 3}, {2, 6}}, "r")}
		if err := writeSamples(&text, expfmt.NewFormat(expfmt.TypeTextPlain), all); err != nil {
			t.Fatal(err)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		found, err := parser.TextToMetricFamilies(strings.NewReader(text.String()))
		if err != nil || len(found) != 2 {
			t.Fatalf("%v\n%s", err, text.String())
		}
		f := found["llamatap_test_value"]
		if f.GetHelp() != one.help || f.GetType() != dto.MetricType_GAUGE || len(f.Metric) != 2 {
			t.Errorf("%v", f)
		}
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["z"] != "" && (labels["z"] != strings.ToValidUTF8(odd, "?") || labels["a"] != "x" ||
				labels["run"] != "r" || m.GetGauge().GetValue() != value) {
				t.Errorf("%v: %v", value, m)
			}
		}
		h := found["llamatap_test_seconds"].Metric[0].GetHistogram()
		if h.GetSampleCount() != 7 || h.GetSampleSum() != value || len(h.Bucket) != 3 ||
			h.Bucket[1].GetUpperBound() != 2 || h.Bucket[1].GetCumulativeCount() != 6 {
			t.Errorf("%v", h)
		}
	}
	if err := writeSamples(io.Discard, expfmt.NewFormat(expfmt.TypeTextPlain), []sample{one.at(1, "r", "b", "a"),
		one.at(2, "r", "b", "a")}); err == nil {
		t.Error("two values of one series are no error")
	}
}

// TestNativeHistograms: who accepts protobuf gets the buckets of native histograms with the classic ones.
func TestNativeHistograms(t *testing.T) {
	m := histogram("test_seconds", "Time.")
	var h kvcache.Histogram
	for _, ns := range []int64{0, 5e8, 5e8 + 1, 6e8, 3e9, 1e3} {
		h.Add(ns)
	}
	header := http.Header{"Accept": {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;" +
		"encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3"}}
	form := expfmt.NegotiateAccept(header, expfmt.DefaultAcceptedFormats()...)
	var out bytes.Buffer
	if err := writeSamples(&out, form, []sample{m.durations(&h, "r")}); err != nil {
		t.Fatal(err)
	}
	var family dto.MetricFamily
	if err := expfmt.NewDecoder(&out, form).Decode(&family); err != nil || form.FormatType() != expfmt.TypeProtoDelim {
		t.Fatal(form, err)
	}
	got := family.Metric[0].GetHistogram()
	if got.GetSampleCount() != 6 || got.GetSchema() != 3 || got.GetZeroCount() != 1 ||
		len(got.GetPositiveSpan()) != 4 ||
		!slices.Equal(got.GetPositiveDelta(), []int64{1, 0, 0, 0, 0}) {
		t.Errorf("%v", got)
	}
	for bound, want := range map[float64]uint64{math.Ldexp(1, -20): 1, 0.5: 3, 1: 5, 2048: 6} {
		i := slices.IndexFunc(got.Bucket, func(b *dto.Bucket) bool { return b.GetUpperBound() == bound })
		if i < 0 || got.Bucket[i].GetCumulativeCount() != want {
			t.Errorf("at most %v s: %v, want %d", bound, got.Bucket, want)
		}
	}
}

// TestMetrics reads the figures of a run as Prometheus does.
func TestMetrics(t *testing.T) {
	s := newServer(t, Options{Dir: folder(t)})
	for _, run := range []struct{ id, want string }{
		{sealedRun, `# HELP llamatap_tokens_total Tokens that graphs computed, by the phase of each.
# TYPE llamatap_tokens_total counter
llamatap_tokens_total{phase="decode",run="RUN"} 1
# HELP llamatap_component_seconds_total Time in nodes of a component, measured in the graphs of ` +
			`llamatap_timed_graph_seconds_total.
# TYPE llamatap_component_seconds_total counter
llamatap_component_seconds_total{component="attention",phase="decode",run="RUN"} 1e-07
llamatap_component_seconds_total{component="mlp",phase="decode",run="RUN"} 2e-07
# HELP llamatap_kv_cells Cells of a KV cache by state: used, and capacity where it is known.
# TYPE llamatap_kv_cells gauge
llamatap_kv_cells{cache="base",ctx="0",run="RUN",state="capacity"} 64
llamatap_kv_cells{cache="base",ctx="0",run="RUN",state="used"} 4
# HELP llamatap_events_lost_total Resource events that are not in the log.
# TYPE llamatap_events_lost_total counter
llamatap_events_lost_total{cause="rate",event="sampling_state",run="RUN"} 3
# HELP llamatap_capture_bytes Bytes of captured tensors on the disk, with the index, which lists every token.
# TYPE llamatap_capture_bytes gauge
llamatap_capture_bytes{run="RUN"} 5
# HELP llamatap_capture_packets_lost_total Captured tensors that a run has lost.
# TYPE llamatap_capture_packets_lost_total counter
llamatap_capture_packets_lost_total{cause="drop",run="RUN"} 2
# HELP llamatap_model_seconds_lost_total Time that the model's threads lost to the recording, warm-up apart: ` +
			`in the tap's code, waiting, and in cuts of the graph.
# TYPE llamatap_model_seconds_lost_total counter
llamatap_model_seconds_lost_total{cause="cut",run="RUN"} 0.05
llamatap_model_seconds_lost_total{cause="tap",run="RUN"} 0.001
llamatap_model_seconds_lost_total{cause="wait",run="RUN"} 0.049
# HELP llamatap_overhead_ratio Share of the run's time that the model lost to the recording, at least, 0 to 1.
# TYPE llamatap_overhead_ratio gauge
llamatap_overhead_ratio{run="RUN"} 0.5
# HELP llamatap_overhead_upper_ratio overhead_ratio and the processor time that the collector may have taken.
# TYPE llamatap_overhead_upper_ratio gauge
llamatap_overhead_upper_ratio{run="RUN"} 0.6
# HELP llamatap_run_info A run that is served; always 1. State is running, sealed, damaged or cut off.
# TYPE llamatap_run_info gauge
llamatap_run_info{level="DETAILED",model="m",run="RUN",state="sealed"} 1
`},
	} {
		one := newServer(t, Options{Dir: filepath.Join(s.o.Dir, "m", run.id)})
		names := []string{"llamatap_tokens_total", "llamatap_component_seconds_total", "llamatap_kv_cells",
			"llamatap_events_lost_total", "llamatap_capture_bytes",
			"llamatap_capture_packets_lost_total", "llamatap_model_seconds_lost_total", "llamatap_overhead_ratio",
			"llamatap_overhead_upper_ratio",
			"llamatap_run_info"}
		web := httptest.NewServer(one)
		err := testutil.ScrapeAndCompare(web.URL+"/metrics",
			strings.NewReader(strings.ReplaceAll(run.want, "RUN", run.id)),
			names...)
		if web.Close(); err != nil {
			t.Error(err)
		}
	}
	w := request(s, "/metrics")
	if w.Code != 200 || !strings.Contains(w.Body.String(),
		`llamatap_run_info{level="DETAILED",model="m",run="`+openRun+`",state="cut off"} 1`) {
		t.Errorf("of the newest: %d %s", w.Code, w.Body)
	}
}

// TestMetricsLint holds every metric to Prometheus's conventions.
func TestMetricsLint(t *testing.T) {
	dir := filepath.Join(folder(t), "m", sealedRun)
	write(t, filepath.Join(dir, "resource.jsonl"), log7+`{"event":"gpu_sample","unix_ns":2,"mono_ns":2,"gpu_index":1,`+
		`"gpu_name":"g","window_ns":9,"gpu_utilization_percent":87,"memory_utilization_percent":41,`+
		`"gpu_memory_used_bytes":5,"gpu_memory_total_bytes":9,"gpu_power_w":250.5,"gpu_energy_j":2}`+"\n"+
		`{"event":"rapl_sample","unix_ns":2,"mono_ns":2,"domain":"package-0","window_ns":9,"energy_j":1.5}`+"\n"+
		`{"event":"rapl_sample","unix_ns":3,"mono_ns":3,"domain":"package-0","window_ns":9,"energy_j":2}`+"\n")
	s := newServer(t, Options{Dir: dir})
	w := request(s, "/metrics")
	for _, want := range []string{"gpu_utilization_ratio", "gpu_energy_joules_total"} {
		if value := map[string]string{"gpu_utilization_ratio": "0.87",
			"gpu_energy_joules_total": "2"}[want]; !strings.Contains(w.Body.String(),
			"llamatap_"+want+`{gpu="1",name="g",run="`+sealedRun+`"} `+value+"\n") {
			t.Errorf("%s is not %s:\n%s", want, value, w.Body)
		}
	}
	rapl := `llamatap_rapl_energy_joules_total{domain="package-0",run="` + sealedRun + `"} 3.5` + "\n"
	if !strings.Contains(w.Body.String(), rapl) {
		t.Errorf("no %s in\n%s", rapl, w.Body)
	}
	problems, err := promlint.New(w.Body).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	text := request(s, "/metrics").Body.String()
	for _, m := range allMetrics {
		name := m.name
		if !strings.Contains(text, "# TYPE "+name+" ") && !strings.HasPrefix(name, "llamatap_kv_prompt_") &&
			name != "llamatap_kv_sequence_cells" && name != "llamatap_memory_bytes" &&
			name != "llamatap_memory_peak_bytes" {
			t.Errorf("%s is never exported", name)
		}
		if strings.HasSuffix(name, "_total") != (m.kind == dto.MetricType_COUNTER) {
			t.Errorf("%s: its kind and its name differ", name)
		}
	}
}

// TestMetricsGrow reads only what has come since the last look, and forgets runs that are gone.
func TestMetricsGrow(t *testing.T) {
	dir := folder(t)
	going := filepath.Join(dir, "m", lockedRun(t, dir), ".resource.jsonl.part")
	s := newServer(t, Options{Dir: dir})
	m := newMetrics(s)
	count := func() string {
		got, families := "", exposed(t, m)
		for _, name := range slices.Sorted(maps.Keys(families)) {
			if name == "llamatap_tokens_total" || name == "llamatap_log_unread_bytes" ||
				name == "llamatap_token_latency_seconds" {
				for _, one := range families[name].Metric {
					got += fmt.Sprintf("%s %v ", name,
						one.GetCounter().GetValue()+one.GetGauge().
							GetValue()+float64(one.GetHistogram().GetSampleCount()))
				}
			}
		}
		return strings.ReplaceAll(got, "llamatap_", "")
	}
	if got := count(); got != "log_unread_bytes 0 token_latency_seconds 1 tokens_total 1 " {
		t.Error(got)
	}
	write(t, going, log7+log7+`{"event":`)
	if got := count(); got != "log_unread_bytes 9 token_latency_seconds 2 tokens_total 2 " {
		t.Error(got)
	}
	if len(m.held) != 1 {
		t.Errorf("%d logs are open", len(m.held))
	}
	if err := os.RemoveAll(filepath.Dir(going)); err != nil {
		t.Fatal(err)
	}
	count()
	if len(m.held) != 1 || m.held[filepath.Join(dir, "m", openRun)] == nil {
		t.Errorf("%v", m.held)
	}
}

// TestMetricsHeldUp: a run whose log is never read to an end, because a reader is stuck in it or a line has no end,
// is reported by run_info alone, and the others are whole.
func TestMetricsHeldUp(t *testing.T) {
	dir := t.TempDir()
	good, stuck, endless := lockedRun(t, dir), lockedRun(t, dir), lockedRun(t, dir)
	if err := os.Truncate(filepath.Join(dir, "m", endless, ".resource.jsonl.part"), 1<<43); err != nil {
		testenv.Beyond(t, "a file system of large files", err.Error())
	}
	fifo := filepath.Join(dir, "m", good, "metadata.json")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, Options{Dir: dir, Limits: Limits{FoldTime: 200 * time.Millisecond}})
	m := newMetrics(s)
	runs, err := s.runs.runs()
	if err != nil || len(runs) != 3 {
		t.Fatal(runs, err)
	}
	for i, f := range m.pick(runs) {
		if runs[i].ID == stuck {
			f.busy <- struct{}{}
		}
	}
	seen := map[string]string{}
	// A busy machine may take longer than FoldTime for the good one, too.
	for deadline := time.Now().Add(testenv.Patience()); seen[good] != "run_info tokens_total "; {
		if time.Now().After(deadline) {
			t.Fatalf("%v", seen)
		}
		clear(seen)
		found := exposed(t, m)
		for _, name := range slices.Sorted(maps.Keys(found)) {
			family := found[name]
			for _, one := range family.Metric {
				for _, label := range one.Label {
					if label.GetName() == "run" &&
						strings.Contains("llamatap_run_info llamatap_tokens_total", family.GetName()) {
						seen[label.GetValue()] += strings.TrimPrefix(family.GetName(), "llamatap_") + " "
					}
				}
			}
		}
		if seen[stuck] != "run_info " || !strings.HasPrefix(seen[endless], "run_info ") {
			t.Errorf("%v", seen)
		}
	}
}

// TestDashboard holds that the dashboard asks for metrics that there are, and for all labels that they have.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	decode(t, text, &board)
	described := map[string]bool{}
	for _, m := range append(allMetrics, latency, kvLifetime, kvIdle, kvGap, kvUtilization, requestsEnded,
		requestsRunning,
		requestsWaiting, requestsPrompt, againTokens, againTime, requestQueue, requestFirst, requestGap, requestTime,
		energyTotal) {
		described[m.name] = true
	}
	rules, err := os.ReadFile(filepath.Join("..", "..", "docs", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`llamatap_[a-z_]+`).FindAllString(string(rules), -1) {
		if !described[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("a rule asks for %s, which there is not", name)
		}
	}
	seen := map[int]bool{}
	for _, p := range board.Panels {
		if seen[p.ID] || (len(p.Targets) == 0) != (p.Type == "row") {
			t.Errorf("panel %q has no number of its own, or asks for nothing", p.Title)
		}
		seen[p.ID] = true
		for _, target := range p.Targets {
			names := regexp.MustCompile(`llamatap_[a-z_]+`).FindAllString(target.Expr, -1)
			if len(names) == 0 {
				t.Errorf("%s: %s", p.Title, target.Expr)
			}
			sums := regexp.MustCompile(`\b(sum|max|count)\b`).MatchString(target.Expr)
			byRun := strings.Contains(target.Expr, "by (run")
			if (!sums || byRun) && !strings.Contains(target.LegendFormat, "{{run}}") {
				t.Errorf("%s does not say which run a series is of", p.Title)
			}
			// Of two runs, shares of the time add up to more than all of it, and each counts what a device draws.
			if !byRun && regexp.MustCompile(`_(graph|looking|recomputed)_seconds|_energy_`).MatchString(
				strings.ReplaceAll(target.Expr, "timed_graph", "")) {
				t.Errorf("%s adds up what runs have at the same time", p.Title)
			}
		}
	}
}
