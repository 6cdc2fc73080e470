//go:build linux

package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// A turn lets a test and a server that waits for a log to grow take turns.
type turn struct{ asked, granted chan struct{} }

func newTurn() turn { return turn{make(chan struct{}), make(chan struct{})} }

// wait is the server's.
func (t turn) wait(ctx context.Context) {
	select {
	case t.asked <- struct{}{}:
	case <-ctx.Done():
		return
	}
	select {
	case <-t.granted:
	case <-ctx.Done():
	}
}

// do does something while the server waits, and lets it look again.
func (t turn) do(something func()) {
	<-t.asked
	something()
	t.granted <- struct{}{}
}

// growing is a live run that is served.
type growing struct {
	*rundir.Dir
	turn
	addr string
	stop func() error
}

func newGrowing(t *testing.T, limits Limits) *growing {
	t.Helper()
	out := t.TempDir()
	dir, err := rundir.Create(out, "m", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	g := &growing{Dir: dir, turn: newTurn()}
	g.addr, g.stop = listen(t, newServer(t, Options{Dir: out, Wait: g.wait, Limits: limits}))
	return g
}

// part begins a part of the log.
func (g *growing) part(t *testing.T, name string) io.WriteCloser {
	t.Helper()
	file, err := g.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func (g *growing) follow(t *testing.T, query string) (*bufio.Reader, *http.Response) {
	t.Helper()
	answer, err := http.Get("http://" + g.addr + "/api/v1/resource-logs?follow" + query)
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("%v, %v", answer, err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return bufio.NewReader(answer.Body), answer
}

func event(n int) string { return fmt.Sprintf("{\"event\":\"loss\",\"layer_id\":%d}\n", n) }

// TestFollow follows a run from its first line over a rotation to its seal.
func TestFollow(t *testing.T) {
	g := newGrowing(t, Limits{})
	first := g.part(t, "resource.jsonl")
	fmt.Fprint(first, event(1))
	lines, answer := g.follow(t, "")
	expect := func(n int) {
		t.Helper()
		if line, err := lines.ReadString('\n'); line != event(n) || err != nil {
			t.Fatalf("%q, %v; want line %d", line, err, n)
		}
	}
	expect(1)
	g.do(func() { fmt.Fprint(first, event(2)+event(3)[:10]) })
	expect(2)
	g.do(func() { fmt.Fprint(first, event(3)[10:]) })
	expect(3)
	var second io.WriteCloser
	g.do(func() {
		fmt.Fprint(first, event(4))
		second = g.part(t, "resource.1.jsonl")
		first.Close()
		fmt.Fprint(second, event(5))
	})
	expect(4)
	expect(5)
	g.do(func() {
		fmt.Fprint(second, event(6))
		second.Close()
		if err := g.Seal(); err != nil {
			t.Error(err)
		}
	})
	expect(6)
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("behind the end: %q, %v", rest, err)
	}
	if next := answer.Trailer.Get(nextLineHeader); next != "6" {
		t.Errorf("next line %q", next)
	}
}

// TestFollowFilters passes by what is not asked for, and begins at the requested place.
func TestFollowFilters(t *testing.T) {
	g := newGrowing(t, Limits{})
	log := g.part(t, "resource.jsonl")
	fmt.Fprint(log, event(1)+event(7)+event(2))
	lines, _ := g.follow(t, "&layer=7&from_line=2")
	g.do(func() { fmt.Fprint(log, "{\"event\":\"level\"}\n"+event(7)+"\n") })
	if line, err := lines.ReadString('\n'); line != event(7) || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	g.do(func() { log.Close(); g.Seal() })
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestFollowStops ends streams when the server stops, whole.
func TestFollowStops(t *testing.T) {
	g := newGrowing(t, Limits{})
	fmt.Fprint(g.part(t, "resource.jsonl"), event(1))
	lines, answer := g.follow(t, "")
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	<-g.asked
	stopped := make(chan error, 1)
	go func() { stopped <- g.stop() }()
	for { // until the listener is closed, which is after the streams were stopped
		conn, err := net.Dial("tcp", g.addr)
		if err != nil {
			break
		}
		conn.Close()
	}
	g.granted <- struct{}{}
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil || answer.Trailer.Get(nextLineHeader) != "1" {
		t.Errorf("%q, %v, %v", rest, err, answer.Trailer)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestVanishedClient gives back the place of a client that is gone, while nothing is written.
func TestVanishedClient(t *testing.T) {
	g := newGrowing(t, Limits{Follows: 1})
	fmt.Fprint(g.part(t, "resource.jsonl"), event(1))
	_, answer := g.follow(t, "")
	<-g.asked
	refused, err := http.Get("http://" + g.addr + "/api/v1/resource-logs?follow=true")
	if err != nil || refused.StatusCode != 503 {
		t.Fatalf("%v, %v", refused, err)
	}
	refused.Body.Close()
	answer.Body.Close() // closes the connection: wait's context ends
	for {
		again, err := http.Get("http://" + g.addr + "/api/v1/resource-logs?follow=true")
		if err != nil {
			t.Fatal(err)
		}
		again.Body.Close()
		if again.StatusCode == 200 {
			break
		}
	}
}

// TestSlowClient cuts a client that takes nothing.
func TestSlowClient(t *testing.T) {
	g := newGrowing(t, Limits{Follows: 1, WriteTime: time.Second})
	log := g.part(t, "resource.jsonl")
	line := `{"event":"loss","x":"` + strings.Repeat("x", 100_000) + "\"}\n"
	for range 300 { // more than sockets hold
		fmt.Fprint(log, line)
	}
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /api/v1/resource-logs?follow HTTP/1.1\r\nHost: localhost\r\n\r\n")
	status := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(conn, status); err != nil || string(status) != "HTTP/1.1 200" { // it has its place
		t.Fatalf("%q, %v", status, err)
	}
	for { // until its place is free again
		answer, err := http.Get("http://" + g.addr + "/api/v1/resource-logs?follow&from_line=300")
		if errors.Is(err, io.EOF) {
			continue // on a busy machine this client, too, may be too slow
		}
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode == 200 {
			break
		}
	}
}

// TestCutOffRun ends a stream of a run whose collector is gone without having sealed it.
func TestCutOffRun(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "run_x", ".resource.jsonl.part"), event(1)+"{\"ev")
	s := newServer(t, Options{Dir: dir, Wait: func(context.Context) { t.Error("it is waited for more") }})
	if w := request(s, "/api/v1/resource-logs?follow"); w.Body.String() != event(1) {
		t.Errorf("%q", w.Body)
	}
}
