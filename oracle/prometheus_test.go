//go:build linux

package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
)

// prometheus is a Prometheus that reads the metrics of llamatap serve each second.
type prometheus struct{ url string }

// startPrometheus starts one, with alert rules and further flags.
func startPrometheus(t *testing.T, program string, view *showing, rules string, flags ...string) prometheus {
	t.Helper()
	dir, port := t.TempDir(), freePort(t)
	token, config := filepath.Join(dir, "token"), filepath.Join(dir, "prometheus.yml")
	address, err := url.Parse(view.url)
	if err == nil {
		err = os.WriteFile(token, []byte(view.token), 0o600)
	}
	if err == nil {
		err = os.WriteFile(config, fmt.Appendf(nil, "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"+
			"rule_files: [%q]\nscrape_configs:\n  - job_name: llamatap\n    authorization: {credentials_file: %q}\n"+
			"    static_configs: [{targets: [%q]}]\n", rules, token, address.Host), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{"--config.file=" + config, "--storage.tsdb.path=" + dir,
		"--web.listen-address=127.0.0.1:" + port, "--log.level=warn"}, flags...)...)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus says:\n%s", log.String())
		}
	})
	p := prometheus{"http://127.0.0.1:" + port}
	testenv.Until(t, "Prometheus is ready", func() bool {
		answer, err := http.Get(p.url + "/-/ready")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil && answer.StatusCode == http.StatusOK
	})
	return p
}

// get asks its API and reads the data of the answer.
func (p prometheus) get(t *testing.T, path string, data any) {
	t.Helper()
	answer, err := http.Get(p.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	said := struct {
		Error string
		Data  any
	}{Data: data}
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil || said.Error != "" {
		t.Fatalf("%s: %v %s", path, err, said.Error)
	}
}

// query is the values of an expression now, without those that are no numbers.
func (p prometheus) query(t *testing.T, expr string) (values []float64) {
	t.Helper()
	var data struct{ Result []struct{ Value [2]any } }
	p.get(t, "/api/v1/query?query="+url.QueryEscape(expr), &data)
	for _, r := range data.Result {
		text, _ := r.Value[1].(string)
		if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values
}

// TestPrometheus: a real Prometheus reads native histograms whose quantiles are those of the requests' records, and
// one that reads the text has a series for each figure of the dashboard. promtool accepts metrics and rules.
func TestPrometheus(t *testing.T) {
	testenv.Slow(t)
	program, promtool := testenv.NeedPrometheus(t)
	fakeGPU(t)
	s := serve(t, []string{"--tap-requests", "--tap-kv", "--tap-resource-level", "DETAILED", "--tap-resource-rate",
		"1000",
		"--tap-tensor", "result_norm"}, "-np", "2", "-c", "2048", "-t", "1", "--no-webui")
	view := show(t, s.out)
	rules := filepath.Join(testenv.Root(t), "docs", "alerts.yml")
	native := startPrometheus(t, program, &view, rules, "--enable-feature=native-histograms")
	classic := startPrometheus(t, program, &view, rules)
	asked := 0
	load := func() {
		var all sync.WaitGroup
		for client := range 3 {
			all.Go(func() {
				for i := range 4 {
					s.ask(t, question{prompt: fmt.Sprintf("package p%d\nfunc f%d(", client, i), slot: int32(i % 2),
						n: 3 + 7*i, options: map[string]any{"ignore_eos": true}})
				}
			})
		}
		all.Wait()
		asked += 12
	}
	load()
	wanted := board(t)
	testenv.Until(t, "each figure of the dashboard has a series", func() bool {
		load()
		maps.DeleteFunc(wanted, func(_, expr string) bool { return len(classic.query(t, expr)) > 0 })
		if len(wanted) > 0 && t.Context().Err() == nil {
			t.Logf("nothing yet of %q", slices.Sorted(maps.Keys(wanted)))
		}
		return len(wanted) == 0
	})
	testenv.Until(t, "Prometheus has read all requests", func() bool {
		n := native.query(t, "sum(llamatap_requests_total)")
		return len(n) == 1 && n[0] == float64(asked)
	})
	if n := native.query(t, "llamatap_request_duration_seconds_bucket"); len(n) > 0 {
		t.Error("the histograms that it has read are classic")
	}
	text := view.ask(t, "GET", "/metrics", "")
	var groups struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	classic.get(t, "/api/v1/rules", &groups)
	if len(groups.Groups) != 1 || len(groups.Groups[0].Rules) < 6 {
		t.Errorf("%+v", groups)
	}
	for _, r := range groups.Groups[0].Rules {
		if r.Health != "ok" {
			t.Errorf("%+v", r)
		}
	}
	for _, check := range []struct{ what, input, file string }{{"metrics", text, ""}, {"rules", "", rules}} {
		cmd := exec.Command(promtool, append([]string{"check", check.what}, strings.Fields(check.file)...)...)
		cmd.Stdin = strings.NewReader(check.input)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool check %s: %v\n%s", check.what, err, out)
		}
	}
	read := time.Now() // Prometheus forgets a server that is gone
	s.stop()
	wantQuantiles(t, native, read, runDirs(t, s.out)[0])
}

// TestAlerts: a loss is alerted for ten minutes, the first one of its kind too, of which Prometheus has a new series.
func TestAlerts(t *testing.T) {
	_, promtool := testenv.NeedPrometheus(t)
	path := filepath.Join(t.TempDir(), "test.yml")
	text := fmt.Appendf(nil, "rule_files: [%q]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n",
		filepath.Join(testenv.Root(t), "docs", "alerts.yml"))
	for run, values := range map[string]string{"new": "_x3 500x40", "known": "7x30 8x20"} {
		text = fmt.Appendf(text, "      - {series: 'llamatap_events_lost_total{run=%q}', values: %q}\n", run, values)
	}
	text = append(text, "    promql_expr_test:\n"...)
	for _, at := range []struct {
		minute int
		alerts []string
	}{{5, []string{"new", "known"}}, {20, nil}, {33, []string{"known"}}, {45, nil}} {
		text = fmt.Appendf(text, "      - eval_time: %dm\n        expr: count by (run) (ALERTS)\n"+
			"        exp_samples:\n", at.minute)
		for _, run := range at.alerts {
			text = fmt.Appendf(text, "          - {labels: '{run=%q}', value: 1}\n", run)
		}
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// board is the expressions of the dashboard's panels by their titles, over all runs.
func board(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs", "grafana.json"))
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all[p.Title+": "+target.LegendFormat] = strings.NewReplacer("$run", ".*", "$__rate_interval", "1m").
				Replace(target.Expr)
		}
	}
	return all
}

// wantQuantiles compares quantiles of native histograms at a time with those of the requests' times, each in a bucket
// between powers of 2^(1/8), in which Prometheus interpolates by lengths or, since version 3, by logarithms.
func wantQuantiles(t *testing.T, p prometheus, at time.Time, dir string) {
	t.Helper()
	var said struct {
		Requests []struct {
			Arrival int64 `json:"arrival_ns"`
			Launch  int64 `json:"launch_ns"`
			First   int64 `json:"first_token_ns"`
			End     int64 `json:"end_ns"`
		}
	}
	if err := json.Unmarshal([]byte(llamatap(t, "requests", dir, "--json").good(t).stdout), &said); err != nil {
		t.Fatal(err)
	}
	times := map[string][]float64{}
	for _, q := range said.Requests {
		times["queue"] = append(times["queue"], float64(q.Launch-q.Arrival)/1e9)
		times["time_to_first_token"] = append(times["time_to_first_token"], float64(q.First-q.Arrival)/1e9)
		times["duration"] = append(times["duration"], float64(q.End-q.Arrival)/1e9)
	}
	for name, all := range times {
		counts := map[int]float64{}
		for _, seconds := range all {
			counts[int(math.Ceil(8*math.Log2(seconds)))]++
		}
		for _, quantile := range []float64{0.1, 0.5, 0.9, 0.99} {
			rank, below := quantile*float64(len(all)), 0.0
			var byLength, byLogarithm float64
			for _, i := range slices.Sorted(maps.Keys(counts)) {
				if below+counts[i] >= rank {
					share, lower, upper := (rank-below)/counts[i], math.Exp2(float64(i-1)/8), math.Exp2(float64(i)/8)
					byLength, byLogarithm = lower+(upper-lower)*share, lower*math.Pow(upper/lower, share)
					break
				}
				below += counts[i]
			}
			got := p.query(t, fmt.Sprintf("histogram_quantile(%v, llamatap_request_%s_seconds @ %.3f)", quantile, name,
				float64(at.UnixMilli())/1e3))
			if len(got) != 1 || math.Abs(got[0]/byLength-1) > 1e-9 && math.Abs(got[0]/byLogarithm-1) > 1e-9 {
				t.Errorf("quantile %v of %s is %v, want %v", quantile, name, got, byLength)
			}
		}
	}
	if len(times["duration"]) < 24 {
		t.Errorf("%d requests", len(times["duration"]))
	}
}
