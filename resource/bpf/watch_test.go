package bpf

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// counter is a collector that counts its snapshots and fails at the given one.
type counter struct {
	n, fail int
	closed  bool
}

type line struct {
	N    int    `json:"n"`
	Name string `json:"name"`
}

func (c *counter) Snapshot(time.Time) (any, error) {
	if c.n++; c.n == c.fail {
		return nil, errors.New("gone")
	}
	if c.fail < 0 {
		return []line{{c.n, "a"}, {c.n, "b"}}, nil
	}
	return line{c.n, "<é😀>"}, nil
}

func (c *counter) Close() error { c.closed = true; return nil }

// kept are the lines of a collector.
type kept []string

func (k *kept) Append(line []byte) error { *k = append(*k, string(line)); return nil }

func TestAsk(t *testing.T) {
	var lines, printed kept
	start := time.Unix(1000, 0)
	failing, good := &counter{fail: 2}, &counter{}
	w := NewWatch(time.Second, start, Source{"block", good, &lines}, Source{"system", failing, &printed},
		Source{"prof", &counter{fail: -1}, &printed})
	if err := w.Ask(start.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := w.Ask(start.Add(4500 * time.Millisecond)); err == nil || !strings.Contains(err.Error(), "system: gone") {
		t.Errorf("a collector that fails: %v", err)
	}
	if w.Late != 2 || !w.next.Equal(start.Add(5*time.Second)) || w.Running() != 2 || !failing.closed {
		t.Errorf("late %d, next %v, running %d, closed %v", w.Late, w.next, w.Running(), failing.closed)
	}
	if err := errors.Join(w.Ask(start.Add(5*time.Second)), w.Close()); err != nil || !good.closed {
		t.Fatal(err, good.closed)
	}
	if len(lines) != 3 || lines[0] != `{"n":1,"name":"<\u00e9\ud83d\ude00>"}` {
		t.Fatalf("lines %q", lines)
	}
	var got line
	if err := json.Unmarshal([]byte(lines[2]), &got); err != nil || got != (line{3, "<é😀>"}) {
		t.Errorf("%+v %v", got, err)
	}
	if len(printed) != 1+2*3 {
		t.Errorf("%d lines of the others: %q", len(printed), printed)
	}
}

// TestRun: it ends with its context, and not without a last snapshot.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var printed kept
	w := NewWatch(time.Hour, time.Now(), Source{"block", &counter{}, &printed})
	cancel()
	if err := w.Run(ctx, 0, func(err error) { t.Error(err) }); err != nil ||
		len(printed) != 1 {
		t.Errorf("%v, %q", err, printed)
	}
	w = NewWatch(time.Microsecond, time.Now(), Source{"block", &counter{}, &printed})
	if err := w.Run(t.Context(), 3, func(err error) { t.Error(err) }); err != nil || w.Snapshots != 3 {
		t.Errorf("%v, %d snapshots", err, w.Snapshots)
	}
	w = NewWatch(time.Microsecond, time.Now(), Source{"block", &counter{fail: 1}, &printed})
	if err := w.Run(t.Context(), 0, func(error) {}); !errors.Is(err, ErrNoCollector) {
		t.Errorf("without a collector: %v", err)
	}
}

// drafts is a collector of which each snapshot waits until the run is known.
type drafts struct {
	n        int64
	complete func(n int64) any
}

func (c *drafts) Snapshot(time.Time) (any, error) {
	c.n++
	n := c.n
	return NewDraft(n, func() any { return c.complete(n) }), nil
}

func (c *drafts) Close() error { return nil }

// TestHold: a draft waits until the run is known up to its end, other lines do not, and none is lost at the end.
func TestHold(t *testing.T) {
	var upto int64
	var waiting, others kept
	snapshots := &drafts{complete: func(n int64) any { return [2]int64{n, upto} }}
	w := NewWatch(time.Second, time.Unix(0, 0), Source{"system", snapshots, &waiting},
		Source{"block", &counter{}, &others})
	w.Hold(func(ns int64) bool { return ns <= upto })
	ask := func(known int64, want ...string) {
		t.Helper()
		upto = known
		if err := w.Ask(time.Unix(snapshots.n, 0)); err != nil || !slices.Equal(waiting, want) ||
			len(others) != int(snapshots.n) {
			t.Errorf("known to %d: %v, %q, want %q; %d of others", known, err, waiting, want, len(others))
		}
	}
	ask(0)
	ask(0)
	ask(2, "[1,2]", "[2,2]")
	ask(3, "[1,2]", "[2,2]", "[3,3]")
	if err := w.writeAll(); err != nil || len(waiting) != 4 || waiting[3] != "[4,3]" {
		t.Errorf("%v, %q", err, waiting)
	}
	waiting, upto = nil, 0
	for range mostHeld + 10 {
		if err := w.Ask(time.Unix(snapshots.n, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if len(waiting) != 10 || len(w.held) != mostHeld || waiting[9] != "[14,0]" {
		t.Errorf("of %d that are never known: %q, %d wait", mostHeld+10, waiting, len(w.held))
	}
}

// TestHoldWhileRunning: a draft is written when it is known, though no further snapshot is due.
func TestHoldWhileRunning(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int32
	written, ended := make(lineChan, 2), make(chan error)
	w := NewWatch(time.Hour, time.Now().Add(-time.Hour), Source{"system",
		&drafts{complete: func(n int64) any { return n }}, written})
	w.Hold(func(int64) bool { return asked.Add(1) > 2 })
	go func() { ended <- w.Run(ctx, 0, func(err error) { t.Error(err) }) }()
	if line := <-written; line != "1" || asked.Load() != 3 {
		t.Errorf("first %q after %d looks", line, asked.Load())
	}
	cancel()
	if err := <-ended; err != nil || <-written != "2" {
		t.Error(err)
	}
}

// lineChan takes lines.
type lineChan chan string

func (c lineChan) Append(line []byte) error { c <- string(line); return nil }

// TestLargeLines: a line that was larger than all others leaves no memory behind.
func TestLargeLines(t *testing.T) {
	large := &texts{all: []string{"a", strings.Repeat("b", 8<<20), "c"}}
	w := NewWatch(time.Second, time.Unix(0, 0), Source{"system", large, new(kept)})
	for i := range large.all {
		if err := w.Ask(time.Unix(int64(i), 0)); err != nil {
			t.Fatal(err)
		}
		if w.buf.Cap() > keptBytes {
			t.Errorf("after line %d a buffer of %d bytes is kept", i, w.buf.Cap())
		}
	}
	if w.buf.Cap() == 0 {
		t.Error("small buffers are not used again")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// texts is a collector that says one text at each snapshot.
type texts struct{ all []string }

func (c *texts) Snapshot(time.Time) (any, error) {
	s := c.all[0]
	c.all = c.all[1:]
	return s, nil
}

func (c *texts) Close() error { return nil }
