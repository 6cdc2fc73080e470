package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/kvcache"
)

// traceArguments are what a trace is replayed with.
type traceArguments struct {
	file, url          string
	speed              float64
	concurrency, block int
}

// traceFlags are those that a replay has.
var traceFlags = []string{"--trace", "--url", "--speed", "--concurrency", "--trace-block", "--format", "--json",
	"--output", "--results"}

func (t *traceArguments) define(f *cli.Flags) {
	t.speed, t.concurrency, t.block = 1, 256, kvcache.TraceBlock
	f.Add("--trace FILE", &t.file, "replay a Mooncake trace against a llama-server: that of --url, or one that is "+
		"started by the command after -- (docs/TRACES.md)")
	f.Add("--url URL", &t.url, "--trace: the server, such as http://127.0.0.1:8080")
	f.Add("--speed X", &t.speed, "--trace: seconds of the trace per second")
	f.Add("--concurrency N", &t.concurrency, "--trace: requests under way at most; what must wait for that is late")
	f.Add("--trace-block N", &t.block, "--trace: tokens per hash id")
}

const maxTraceBytes, maxTraceRequests = 1 << 28, 1 << 20

// replay replays a trace. server is the command of a server to start; nil: it runs.
func (a *benchArguments) replay(f *cli.Flags, server []string) (err error) {
	t := &a.trace
	for _, flag := range f.List {
		if name := flag.Names[len(flag.Names)-1]; f.Given(name) && !slices.Contains(traceFlags, name) {
			return cli.Wrongf("%s is not for a replay: --trace takes %s", name, strings.Join(traceFlags[1:], ", "))
		}
	}
	switch {
	case (t.url == "") == (server == nil):
		return cli.Wrongf("--trace: name a running server with --url URL, or write the command of one to start " +
			"after --, such as -- llama-server -m model.gguf -np 4")
	case !(t.speed > 0) || t.concurrency < 1 || t.block < 1:
		return cli.Wrongf("--speed, --concurrency and --trace-block must be positive")
	case a.form != "md" && a.form != "json":
		return cli.Wrongf("--trace prints text or json: leave --format %s out", a.form)
	}
	in, err := cli.ReadFile(t.file, maxTraceBytes)
	if err != nil {
		return err
	}
	r := &bench.Replay{URL: strings.TrimSuffix(t.url, "/"), Speed: t.speed, Concurrency: t.concurrency, Block: t.block}
	if r.Trace, err = kvcache.ReadTrace(bytes.NewReader(in), t.block, maxTraceRequests); err != nil {
		return fmt.Errorf("%s: %w", t.file, err)
	}
	if len(r.Trace) == 0 {
		return fmt.Errorf("%s: the trace has no requests", t.file)
	}
	ctx, stop := untilSignal()
	defer stop()
	if server != nil {
		url, end, err := startServer(ctx, server)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		r.URL = url
	}
	if a.results != "" {
		rows, err := os.OpenFile(a.results, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("--results: %w", err)
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		r.Each = func(row *bench.ReplayRow) error { return bench.WriteReplayRow(rows, row) }
	}
	report, runErr := r.Run(ctx)
	if report == nil {
		return runErr
	}
	if err := a.write(func(out io.Writer) error { return report.Write(out, a.form == "json") }); err != nil {
		return err
	}
	if runErr != nil {
		return stopped(runErr, "ended before all requests were sent")
	}
	if report.Answered == 0 {
		return errors.New("no request was answered: the report has the causes")
	}
	return nil
}

// startServer starts a server by a command of llamatap, such as llama-server with --tap flags, on a free port of
// loopback, and waits until it has loaded its model. end stops it. Its output is shown if it fails.
func startServer(ctx context.Context, command []string) (url string, end func() error, err error) {
	self, err := llama.Self()
	if err != nil {
		return "", nil, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	url = "http://127.0.0.1:" + port
	cmd := exec.Command(self, slices.Concat(command, []string{"--host", "127.0.0.1", "--port", port})...)
	var said lastBytes
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = time.Second
	exited, err := bench.StartChild(cmd)
	if err != nil {
		return "", nil, err
	}
	end = func() error {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := <-exited; err != nil && !errors.As(err, new(*exec.ExitError)) {
			return fmt.Errorf("stop the server: %w", err)
		}
		return nil
	}
	for {
		if healthy(ctx, url) {
			return url, end, nil
		}
		select {
		case err := <-exited:
			return "", nil, fmt.Errorf("the server ended before it was ready: %v:\n%s", err, present.Quote(said.text()))
		case <-ctx.Done():
			return "", nil, errors.Join(ctx.Err(), end())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func healthy(ctx context.Context, url string) bool {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(ask)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// lastBytes keeps the end of what a program says. One goroutine writes it, and it is read when that has ended.
type lastBytes struct{ bytes.Buffer }

func (l *lastBytes) Write(p []byte) (int, error) {
	if l.Len() > 1<<16 {
		l.Reset()
	}
	return l.Buffer.Write(p)
}

func (l *lastBytes) text() string {
	b := l.Bytes()
	return string(b[max(len(b)-2000, 0):])
}
