//go:build linux

package session

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"golang.org/x/sys/unix"
)

// disk is a file system and a run on it, each of a given size.
type disk struct {
	total, free uint64
	used        int64
	beside      int64 // what was written without asking
	waiting     int64
	segments    []int64 // that can be removed
	statErr     error
	looks       int
}

func (d *disk) room(maxDisk config.Bytes, minFree config.MinFree) *room {
	return &room{
		tap:    &config.Tap{MaxDisk: config.MaxDisk{Bytes: maxDisk}, MinFree: minFree, Out: "out"},
		use:    func() (int64, int64) { d.looks++; return d.used, d.waiting },
		beside: func() int64 { return d.beside },
		give: func(string) bool {
			if len(d.segments) == 0 {
				return false
			}
			d.used, d.free = d.used-d.segments[0], d.free+uint64(d.segments[0])
			d.segments = d.segments[1:]
			return true
		},
		statfs: func(_ string, s *unix.Statfs_t) error {
			*s = unix.Statfs_t{Frsize: 1024, Blocks: d.total / 1024, Bavail: d.free / 1024}
			return d.statErr
		},
	}
}

// write asks for pieces until it is refused, and writes what it was given.
func (d *disk) write(r *room, piece int64) error {
	for range 1 << 20 {
		if err := r.reserve(piece); err != nil {
			return err
		}
		d.used, d.free = d.used+piece, d.free-uint64(piece)
	}
	return nil
}

func TestRoom(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name  string
		disk  disk
		max   config.Bytes
		floor config.MinFree
		cause string
		used  int64 // when it stopped, at least
	}{
		{"bound", disk{total: 1 << 40, free: 1 << 39}, 100 * mib, config.MinFree{Auto: true}, causeMaxDisk, 99 * mib},
		{"bound, already past", disk{total: 1 << 40, free: 1 << 39, used: 101 * mib}, 100 * mib, config.MinFree{},
			causeMaxDisk, 101 * mib},
		{"floor", disk{total: 1000 * mib, free: 100 * mib}, 0, config.MinFree{Bytes: 40 * mib}, causeMinFree, 59 * mib},
		{"floor of 2 %", disk{total: 1000 * mib, free: 100 * mib}, 0, config.MinFree{Auto: true}, causeMinFree,
			79 * mib},
		{"what waits counts", disk{total: 1000 * mib, free: 100 * mib, waiting: 30 * mib}, 0,
			config.MinFree{Bytes: 40 * mib}, causeMinFree, 29 * mib},
		{"the nearer one", disk{total: 1000 * mib, free: 100 * mib}, 50 * mib, config.MinFree{Bytes: 10 * mib},
			causeMaxDisk, 49 * mib},
		{"a disk of unknown size", disk{total: 1 << 40, statErr: syscall.ENOSYS}, 20 * mib, config.MinFree{Auto: true},
			causeMaxDisk, 19 * mib},
	} {
		d := c.disk
		r := d.room(c.max, c.floor)
		var limit *limitError
		if err := d.write(r, 10_000); !errors.As(err, &limit) || limit.cause != c.cause || d.used < c.used ||
			c.max > 0 && d.used > max(int64(c.max), c.disk.used) {
			t.Errorf("%s: %v at %d bytes", c.name, err, d.used)
		}
		if causeOf(fmt.Errorf("in a chain: %w", limit)) != c.cause {
			t.Errorf("%s: cause %s", c.name, causeOf(limit))
		}
		if d.looks > 60 {
			t.Errorf("%s: looked %d times", c.name, d.looks)
		}
	}
}

// TestRoomBeside: what is written without asking counts too, long before it is time to look.
func TestRoomBeside(t *testing.T) {
	d := disk{total: 1 << 40, free: 1 << 39}
	r := d.room(64<<20, config.MinFree{})
	for range 1000 {
		var limit *limitError
		if err := r.tick(); errors.As(err, &limit) {
			if limit.cause != causeMaxDisk || d.beside < 63<<20 || d.beside > 65<<20 || d.looks > 60 {
				t.Errorf("%s at %d bytes, after %d looks", limit.cause, d.beside, d.looks)
			}
			return
		}
		d.beside += 1 << 20
	}
	t.Error("nothing stops it")
}

// TestRoomRotates: the oldest go one by one, and only as many as must.
func TestRoomRotates(t *testing.T) {
	const mib = 1 << 20
	d := disk{total: 1 << 40, free: 1 << 39, used: 60 * mib, segments: []int64{20 * mib, 20 * mib, 20 * mib}}
	r := d.room(64*mib, config.MinFree{})
	for want := 3; want >= 0; want-- {
		if len(d.segments) != want {
			t.Fatalf("%d segments are left, want %d", len(d.segments), want)
		}
		for len(d.segments) == want {
			if err := r.reserve(100_000); err != nil {
				if want > 0 {
					t.Fatal(err)
				}
				return
			}
			if d.used += 100_000; d.used > 64*mib {
				t.Fatalf("%d bytes", d.used)
			}
		}
	}
}

func TestRoomChecks(t *testing.T) {
	d := disk{total: 100 << 20, free: 3 << 20}
	if err := d.room(0, config.MinFree{Auto: true}).check(); err != nil {
		t.Error(err)
	}
	err := d.room(0, config.MinFree{Bytes: 3 << 20}).check()
	if err == nil || !strings.Contains(err.Error(), "--tap-min-free") || !strings.Contains(err.Error(), "--tap-out") {
		t.Error(err)
	}
	if err := d.room(0, config.MinFree{}).check(); err != nil {
		t.Error(err)
	}
}

// TestRoomAhead: what the disk keeps ahead of a stream is counted once. It is no longer free, so what waits for it
// needs nothing more, and what is kept beyond that is part of the run.
func TestRoomAhead(t *testing.T) {
	dir, err := rundir.Create(t.TempDir(), "model", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	g := &segment{dir: dir}
	if g.tokens, err = rundir.NewTokensWriter(dir); err != nil {
		t.Fatal(err)
	}
	defer g.tokens.Discard()
	if g.stream, err = stream.Create(g.streamPath(), stream.Options{DType: codec.F32}); err != nil {
		t.Fatal(err)
	}
	defer g.stream.Close()
	s := &files{current: g, run: &run{o: Options{Tap: &config.Tap{Preallocate: 64 << 20}}}, others: &recorders{}}
	write := func(n int) {
		for range n {
			if err := g.stream.Append(&stream.Packet{Name: "x"}, make([]byte, 1<<20), nil); err != nil {
				t.Fatal(err)
			}
			g.appended.packets, g.appended.raw = g.appended.packets+1, g.appended.raw+1<<20
		}
		if err := g.stream.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	write(4)
	if all, waiting := s.used(); waiting != 0 || all < 4<<20 || all > 5<<20 {
		t.Errorf("without: %d bytes, %d waiting", all, waiting)
	}
	s.limitAhead(1 << 40)
	write(4)
	if g.stream.Stats().Ahead == 0 {
		testenv.Beyond(t, "a file system that keeps room", "this one does not")
	}
	before, waiting := s.used()
	if ahead := g.stream.Stats().Ahead; s.ahead != 64<<20 || waiting != -ahead || before < 8<<20+ahead ||
		before > 9<<20+ahead {
		t.Errorf("%d bytes are kept: %d bytes, %d waiting", ahead, before, waiting)
	}
	g.appended.raw += 3 << 20 // that wait to be packed
	if after, less := s.used(); after-before > 1<<16 || less-waiting < 3<<20 || less-waiting > 4<<20 {
		t.Errorf("3 MiB more wait: %d bytes more, %d waiting more", after-before, less-waiting)
	}
	g.appended.raw -= 3 << 20
	s.limitAhead(0)
	for g.stream.Stats().Ahead > 0 {
		write(1)
	}
	if _, waiting := s.used(); waiting != 0 {
		t.Errorf("used up: %d waiting", waiting)
	}
}

// TestWanted: only a bound that somebody gave is an end that somebody wanted.
func TestWanted(t *testing.T) {
	auto, given := &config.Tap{MinFree: config.MinFree{Auto: true}},
		&config.Tap{MinFree: config.MinFree{Bytes: 1 << 30}}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&limitError{causeMaxDisk, auto, "x"}, true},
		{&limitError{causeMinFree, given, "x"}, true},
		{&limitError{causeMinFree, auto, "x"}, false},
		{fmt.Errorf("write: %w", syscall.ENOSPC), false},
	} {
		s := &report{counter: &counter{halted: &halted{err: c.err}}, others: &recorders{}}
		lacks, sealing := s.incomplete(nil, &rundir.Stopped{}), errors.New("seal")
		if s.counter.halted.wanted() != c.want || lacks == c.want || !s.incomplete(sealing, &rundir.Stopped{}) ||
			s.incomplete(nil, &rundir.Stopped{Whole: true}) {
			t.Errorf("%v: wanted %v, incomplete %v", c.err, s.counter.halted.wanted(), lacks)
		}
	}
	if (&report{counter: &counter{}, others: &recorders{}}).incomplete(nil, nil) {
		t.Error("a whole recording is incomplete")
	}
}

func TestCauseOf(t *testing.T) {
	for want, err := range map[string]error{
		"disk_full": fmt.Errorf("write: %w", syscall.ENOSPC), "io_error": fmt.Errorf("write: %w", syscall.EIO),
		"error": errors.New("else"),
	} {
		if got := causeOf(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	if causeOf(syscall.EDQUOT) != "disk_full" {
		t.Error("a quota is a disk")
	}
}
