//go:build linux

package oracle

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
)

// buildCollector makes OpenTelemetry's collector of its Go modules, which takes minutes and the network.
func buildCollector(t *testing.T) (program string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "main.go"} {
		text, err := os.ReadFile(filepath.Join("testdata", "otelcol", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	program = filepath.Join(dir, "otelcol")
	build := exec.Command("go", "build", "-mod=mod", "-o", program, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the collector: %v\n%s", err, out)
	}
	return program
}

// TestCollectorRestarts exports to OpenTelemetry's own collector, which is absent at first, then there, stopped, and
// there again: it takes every message, and each span passes through it once.
func TestCollectorRestarts(t *testing.T) {
	testenv.Slow(t)
	program, to, port := buildCollector(t), receive(t), freePort(t)
	config := filepath.Join(t.TempDir(), "otelcol.yaml")
	text := fmt.Sprintf(`
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:%s"}}}}
exporters: {otlp_http: {endpoint: %q, compression: none}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], exporters: [otlp_http]}
    metrics: {receivers: [otlp], exporters: [otlp_http]}
`, port, to.url)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	collector := func() (stop func()) {
		cmd := exec.Command(program, "--config", config)
		var log strings.Builder
		cmd.Stdout, cmd.Stderr = &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stop = func() {
			if cmd.ProcessState == nil {
				cmd.Process.Signal(syscall.SIGTERM)
				cmd.Wait()
			}
			if strings.Contains(log.String(), "\terror\t") {
				t.Errorf("the collector says:\n%s", log.String())
			}
		}
		t.Cleanup(stop)
		testenv.Until(t, "the collector answers", func() bool {
			response, err := http.Get("http://127.0.0.1:" + port)
			if err == nil {
				response.Body.Close()
			}
			return err == nil
		})
		return stop
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:"+port)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "300")
	t.Setenv("OTEL_SERVICE_NAME", "chat")
	s := serve(t, []string{"--tap-requests", "--tap-kv"}, "-np", "2", "-c", "2048", "-t", "1", "--no-webui")
	asked := 0
	ask := func() {
		for range 4 {
			asked++
			s.ask(t, question{prompt: fmt.Sprintf("package p%d", asked), slot: -1, n: 2 + asked})
		}
	}
	arrived := func() {
		testenv.Until(t, fmt.Sprintf("the spans of %d requests pass through the collector", asked), func() bool {
			to.lock.Lock()
			defer to.lock.Unlock()
			return len(to.spans) >= 4*asked
		})
	}
	unanswered(t, port, ask)
	stop := collector()
	ask()
	arrived()
	stop()
	unanswered(t, port, ask)
	collector()
	ask()
	arrived()
	records := s.recordedRequests(t)
	testenv.Until(t, "the last metrics pass through the collector", func() bool {
		to.lock.Lock()
		defer to.lock.Unlock()
		n := uint64(0)
		for _, p := range to.metrics["gen_ai.server.request.duration"].GetHistogram().GetDataPoints() {
			n += p.Count
		}
		return n == uint64(asked)
	})
	wantSpans(t, to, records)
	if counts := s.exportedCounts(t); counts.Spans != int64(4*asked) || counts.Dropped() != 0 || !counts.LastMetrics {
		t.Errorf("%+v", counts)
	}
	if name := to.resource["service.name"]; name != "chat" {
		t.Errorf("the service is %v", name)
	}
	failing, again := 0, 0
	for line := range strings.Lines(s.stderr.String()) {
		if strings.Contains(line, "/v1/traces: ") && strings.HasSuffix(line, "; trying again\n") {
			failing++
		} else if strings.HasSuffix(line, "/v1/traces: answers again\n") {
			again++
		}
	}
	if failing != 2 || again != 2 {
		t.Errorf("%d and %d lines of two absences:\n%s", failing, again, s.stderr.String())
	}
}

// unanswered does something while nobody answers at a port, until somebody has tried to send spans there.
func unanswered(t *testing.T, port string, during func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	tried := make(chan struct{}, 1)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			begin := make([]byte, len("POST /v1/traces"))
			if io.ReadFull(connection, begin); string(begin) == "POST /v1/traces" {
				select {
				case tried <- struct{}{}:
				default:
				}
			}
			connection.Close()
		}
	})
	during()
	select {
	case <-tried:
	case <-time.After(testenv.Patience()):
		t.Error("nobody tried to send spans")
	}
	listener.Close()
	done.Wait()
}
