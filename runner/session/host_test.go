//go:build linux

package session

import (
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource/bpf"
)

// asked is a collector that says when it is asked, and waits for its answer.
type asked struct {
	asks    chan struct{}
	answers chan any
}

func (a asked) Snapshot(time.Time) (any, error) {
	a.asks <- struct{}{}
	return <-a.answers, nil
}

func (a asked) Close() error { return nil }

// TestSlowHost: a host that does not answer delays neither this one's collectors nor another host.
func TestSlowHost(t *testing.T) {
	var local, remote, slow asked
	for _, c := range []*asked{&local, &remote, &slow} {
		*c = asked{make(chan struct{}), make(chan any)}
	}
	lines := &hostLines{name: "hosts.jsonl"}
	source := func(c asked) bpf.Source { return bpf.Source{Name: "a", Collector: c, Lines: lines} }
	h := &hostSide{interval: time.Millisecond, sources: []bpf.Source{source(local)},
		remote: []bpf.Source{source(slow), source(remote)}, lines: []*hostLines{lines}}
	h.start()
	patience := time.After(testenv.Patience())
	await := func(c asked) {
		select {
		case <-c.asks:
		case <-patience:
			t.Fatal("it is not asked")
		}
	}
	await(slow)
	for range 5 {
		for _, c := range []asked{local, remote} {
			await(c)
			c.answers <- map[string]int{"n": 1}
		}
	}
	for _, c := range []asked{local, remote, slow} {
		close(c.answers)
		go func() {
			for range c.asks {
			}
		}()
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if len(lines.waiting) < 10 {
		t.Errorf("%d lines", len(lines.waiting))
	}
}
