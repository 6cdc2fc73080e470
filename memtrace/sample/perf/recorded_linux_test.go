package perf

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "record the rings of testdata/ anew")

// recorded is a ring as the kernel left it, with what was expected of it then.
type recorded struct {
	What    string
	Attr    []byte // of the event
	ID      uint64
	Tail    uint64 // of the next record, and the end of what there was
	Head    uint64
	Samples int // by kind of record
	Lost    uint64
	Data    []byte
}

// keep writes the rings of a session to testdata/, the fullest.
func keep(t *testing.T, s *Session, name, what string) {
	t.Helper()
	var best *recorded
	for _, r := range s.rings {
		c := recorded{What: what, Attr: s.decoder.events[0].Attr.Append(nil), Tail: r.ring.Tail(),
			Head: r.page.Data_head, Data: r.ring.data}
		if best == nil || c.Head-c.Tail > best.Head-best.Tail {
			best = &c
		}
	}
	best.read(t, func(r *Record) {
		switch r.Type {
		case recordSample:
			best.Samples++
			best.ID = r.Sample.ID
		case recordLost:
			best.Lost += r.Lost
		}
	})
	b, err := json.Marshal(best)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata", name+".json"), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// read walks over a recorded ring.
func (c *recorded) read(t *testing.T, each func(*Record)) {
	t.Helper()
	attr, err := parseAttr(c.Attr)
	if err != nil {
		t.Fatal(err)
	}
	d := newDecoder([]Event{{Attr: attr, IDs: []uint64{c.ID}}})
	ring := newRing(c.Data, c.Tail)
	for {
		raw, err := ring.Next(c.Head)
		if err != nil {
			t.Fatal(err)
		}
		if raw == nil {
			return
		}
		var r Record
		if err := d.Decode(raw, &r); err != nil {
			t.Fatal(err)
		}
		each(&r)
	}
}

// recordRings makes the rings of testdata/.
func recordRings(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set unix.CPUSet
	set.Set(0)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	mem, _ := fresh(t, 400)
	touch := func(from, n int) {
		for i := range n {
			mem[(from+i)*os.Getpagesize()] = 1
		}
	}
	s := open(t, Options{Events: []eventSpec{faults()}, Pages: 1})
	touch(0, 40)
	if _, err := s.Drain(func(*Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	touch(40, 30)
	keep(t, s, "wrapped", "30 page faults around the end of a ring of one page")
	touch(70, 100)
	if _, err := s.Drain(func(*Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	touch(170, 20)
	keep(t, s, "lost", "20 page faults after some had found no room")
}

// TestRecordedRings reads rings that the kernel filled: around their end, and after a loss.
func TestRecordedRings(t *testing.T) {
	if *update {
		recordRings(t)
	}
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil || len(paths) < 2 {
		t.Fatalf("%d rings: %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var c recorded
			if err := json.Unmarshal(b, &c); err != nil {
				t.Fatal(err)
			}
			samples, lost, last := 0, uint64(0), uint64(0)
			c.read(t, func(r *Record) {
				switch r.Type {
				case recordSample:
					samples++
					if r.Sample.ID != c.ID || r.Sample.Time < last || r.Sample.Addr == 0 || r.Sample.Period != 1 ||
						r.Sample.PID == 0 {
						t.Errorf("%+v", r.Sample)
					}
					last = r.Sample.Time
				case recordLost:
					lost += r.Lost
				}
			})
			if samples != c.Samples || lost != c.Lost || samples == 0 {
				t.Errorf("%s: %d samples and %d lost, it were %d and %d", c.What, samples, lost, c.Samples, c.Lost)
			}
			n := uint64(len(c.Data))
			if wrapped := c.Head/n != c.Tail/n; filepath.Base(path) == "wrapped.json" && !wrapped ||
				filepath.Base(path) == "lost.json" && lost == 0 {
				t.Errorf("%s: from %d to %d of %d bytes, %d lost", c.What, c.Tail, c.Head, n, lost)
			}
		})
	}
}

// TestThrottledRing: an event that the kernel stops for a while, around the end of a ring, byte by byte as the
// kernel writes it.
func TestThrottledRing(t *testing.T) {
	a := Attr{SampleType: sampleIdentifier | sampleTID | sampleTime | sampleIP, Flags: flagSampleIDAll}
	who := words(pair(1, 2), 3, 9)
	sample := record(recordSample, 2, words(9, 0x1000, pair(1, 2), 3))
	throttle, on := record(recordThrottle, 0, words(3, 9, 9), who), record(recordUnthrottle, 0, words(4, 9, 9), who)
	stream := slices.Concat(sample, throttle, on, sample, throttle)
	for begin := range uint64(32) {
		data := make([]byte, 256)
		for i, b := range stream {
			data[(8*begin+uint64(i))%256] = b
		}
		s := &Session{decoder: newDecoder([]Event{{Attr: a, IDs: []uint64{9}}})}
		page := &unix.PerfEventMmapPage{Data_head: 8*begin + uint64(len(stream))}
		s.rings = []*cpuRing{{page: page, ring: newRing(data, 8*begin)}}
		n, err := s.Drain(func(*Record) error { return nil })
		if st := s.Stats(); err != nil || n != 2 || st.Throttles != 2 || st.Bad != 0 ||
			page.Data_tail != page.Data_head {
			t.Errorf("from %d: %d samples, %+v: %v", 8*begin, n, st, err)
		}
	}
}
