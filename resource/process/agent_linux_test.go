package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// counter is a collector whose line has a time, and how many there were.
type counter struct{ n, closed int }

func (c *counter) Snapshot(time.Time) (any, error) {
	c.n++
	return map[string]any{"mono_ns": bpf.MonoNS(), "n": c.n, "nested": map[string]any{"mono_ns": 1}}, nil
}

func (c *counter) Close() error { c.closed++; return nil }

// TestAgent: a run gets the host's lines on its own clock, and the lines before it came are not its own. Who has
// another token gets nothing, and a second run is refused while there is one.
func TestAgent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	source := &counter{}
	agent := NewAgent("right", time.Second, func(error) {}, bpf.Source{Name: "counter", Collector: source})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- agent.Serve(ctx, listener) }()
	addr := listener.Addr().String()
	if _, err := DialAgent("a", addr, "wrong"); err == nil || source.n > 0 {
		t.Errorf("another token: %v, %d snapshots", err, source.n)
	}
	host, err := DialAgent("a", addr, "right")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DialAgent("b", addr, "right"); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("a second run: %v", err)
	}
	if len(host.Hello.Collectors) != 1 || host.Hello.Collectors[0] != "counter" || host.Hello.BootID == "" {
		t.Errorf("%+v", host.Hello)
	}
	began := bpf.MonoNS()
	for i := range 3 {
		all, err := host.Snapshot(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		lines := all.([]json.RawMessage)
		var clock clockLine
		var line struct {
			Host, Collector string
			N               int
			Mono            int64 `json:"mono_ns"`
			Own             int64 `json:"host_mono_ns"`
		}
		if len(lines) != 2 || json.Unmarshal(lines[0], &clock) != nil || json.Unmarshal(lines[1], &line) != nil {
			t.Fatalf("%s", lines)
		}
		if off := max(clock.Offset, -clock.Offset); clock.Host != "a" || clock.Collector != "clock" ||
			off > clock.Uncertainty {
			t.Errorf("the same clock: %+v", clock)
		}
		if line.Host != "a" || line.Collector != "counter" || line.N != i+2 || line.Own-line.Mono != clock.Offset ||
			line.Own < began || line.Own > bpf.MonoNS() {
			t.Errorf("%s", lines[1])
		}
	}
	if fit, ok := host.Fit(); !ok || fit.Samples != 3 {
		t.Errorf("%+v", fit)
	}
	stop()
	if err := <-ended; err != nil || source.closed != 1 {
		t.Errorf("%v; closed %d times", err, source.closed)
	}
	if _, err := host.Snapshot(time.Now()); err == nil || host.Err() != err {
		t.Error("lines of an agent that has ended")
	}
	if fit, _ := host.Fit(); fit.Samples != 3 {
		t.Errorf("what was known of its clock is lost: %+v", fit)
	}
	host.Close()
}

// ending is a collector that fails at its second line.
type ending struct{ counter }

func (e *ending) Snapshot(now time.Time) (any, error) {
	if e.n == 1 {
		return nil, errors.New("its program\nwas unloaded")
	}
	return e.counter.Snapshot(now)
}

// TestAgentLosesCollector: a run knows which collector of a host failed, and has the lines of the others on.
func TestAgentLosesCollector(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	agent := NewAgent("right", time.Second, func(error) {}, bpf.Source{Name: "ending", Collector: &ending{}},
		bpf.Source{Name: "counter", Collector: &counter{}})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- agent.Serve(ctx, listener) }()
	host, err := DialAgent("a", listener.Addr().String(), "right")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if all, err := host.Snapshot(time.Now()); err != nil || len(all.([]json.RawMessage)) != 2 {
			t.Errorf("%s, %v: want the clock and the other collector", all, err)
		}
		if err := host.Err(); err == nil || err.Error() != "ending: its program; was unloaded" {
			t.Errorf("lost: %v", err)
		}
	}
	host.Close()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestAgentUnreachable: a connection that broke is no agent that ended, and what is said of it is one line.
func TestAgentUnreachable(t *testing.T) {
	near, far := net.Pipe()
	host := &RemoteHost{Name: "a", conn: near, in: bufio.NewScanner(near)}
	go func() {
		bufio.NewReader(far).ReadString('\n')
		near.SetReadDeadline(time.Now())
	}()
	_, err := host.Snapshot(time.Now())
	if !errors.Is(err, os.ErrDeadlineExceeded) || strings.ContainsAny(err.Error(), "\n") ||
		strings.Contains(err.Error(), "ended") {
		t.Errorf("%v", err)
	}
}

// TestAlign: a line is put on the run's clock by its own time alone.
func TestAlign(t *testing.T) {
	for _, c := range [][2]string{
		{`{"mono_ns":5000,"x":{"mono_ns":1}}`,
			`{"host":"h","collector":"c","mono_ns":2000,"host_mono_ns":5000,"x":{"mono_ns":1}}`},
		{`{"begin_mono_ns":7}`, `{"host":"h","collector":"c","begin_mono_ns":7}`},
	} {
		if got, err := align("h", AgentLine{"c", json.RawMessage(c[0])}, 3000); err != nil || string(got) != c[1] {
			t.Errorf("%s, %v, want %s", got, err, c[1])
		}
	}
	for _, bad := range []string{`{"mono_ns":1,"host":"other"}`, `{"HOST":1}`, `{"collector":null}`, `{}`, `3`, `null`,
		`[1]`} {
		if got, err := align("h", AgentLine{"c", json.RawMessage(bad)}, 0); err == nil {
			t.Errorf("%s became %s", bad, got)
		}
	}
}

// TestKeep: the bound on samples keeps the better ones, and their order.
func TestKeep(t *testing.T) {
	var h RemoteHost
	for i := range int64(3 * mostSamples) {
		h.keep(sampleAt(i, 10+i%2))
	}
	if len(h.samples) > mostSamples {
		t.Fatalf("%d samples", len(h.samples))
	}
	for i, s := range h.samples[:mostSamples/2] {
		if s.Width() != 10 || i > 0 && s.MonoNS <= h.samples[i-1].MonoNS {
			t.Fatalf("sample %d: %+v", i, s)
		}
	}
}

func sampleAt(at, width int64) (s resource.ClockSample) {
	return resource.ClockSample{MonoNS: at, LowNS: 0, HighNS: width}
}
