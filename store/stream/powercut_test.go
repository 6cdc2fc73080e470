package stream

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
)

// sector is what a disk writes whole or not at all.
const sector = 512

// cutDisk is two files on a disk with a cache: what was written and not synced may be there after a power cut, or
// not, sector by sector, in any order; sizes are as of the last sync or a later write.
type cutDisk struct {
	mu     sync.Mutex
	stream cutFile
	index  cutFile
	cut    func() // if set: called before every change, with mu held
}

// cutFile is one file of a cutDisk. It takes plain writes.
type cutFile struct {
	disk   *cutDisk
	now    []byte
	synced []byte
}

func (f *cutFile) Write(p []byte) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.cut()
	f.now = append(f.now, p...)
	return len(p), nil
}

func (f *cutFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.cut()
	f.synced = bytes.Clone(f.now)
	return nil
}

func (f *cutFile) Close() error { return nil }

// after is what may be on the disk after a power cut: the file has some size between what was synced and what was
// written, and of the sectors that were written since the sync some are there and some hold zeros or what was there
// before.
func (f *cutFile) after(r *rand.Rand) []byte {
	n := len(f.synced) + r.IntN(len(f.now)-len(f.synced)+1)
	left := make([]byte, n)
	copy(left, f.synced)
	keep := r.Float64()
	for at := len(f.synced) / sector * sector; at < n; at += sector {
		if r.Float64() < keep {
			copy(left[at:min(at+sector, n)], f.now[at:])
		}
	}
	return left
}

// leftover is what a power cut left, and what had been promised before it.
type leftover struct {
	stream, index []byte
	synced        Mark
	whole         bool // everything that was written is there
}

// cutDuring writes the capture under a policy and cuts the power before every change of the disk: it returns what
// was left each time.
func cutDuring(t *testing.T, c *capture, o Options, seed uint64) (all []leftover) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	d := &cutDisk{}
	d.stream.disk, d.index.disk = d, d
	var promised func() Mark
	d.cut = func() {
		if promised == nil {
			return
		}
		l := leftover{synced: promised()} // before what is on the disk is looked at: it may only become more
		l.stream, l.index = d.stream.after(r), d.index.after(r)
		l.whole = bytes.Equal(l.stream, d.stream.now) && bytes.Equal(l.index, d.index.now)
		all = append(all, l)
	}
	w, err := New(&d.stream, &d.index, o)
	if err != nil {
		t.Fatal(err)
	}
	var mark Mark // of the last Sync that this test saw ending
	promised = func() Mark { return mark }
	for i := range c.executions {
		if err := w.AppendExecution(&c.executions[i]); err != nil {
			t.Fatal(err)
		}
		for at := range c.packets {
			if c.packets[at].Exec == c.executions[i].Exec {
				if err := w.Append(&c.packets[at], c.data[at], nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		switch o.Sync.Policy {
		case SyncToken:
			for deadline := time.Now().Add(testenv.Patience()); w.Synced().
				Commits <= uint64(i); time.Sleep(100 * time.Microsecond) {
				if time.Now().After(deadline) {
					t.Fatalf("commit %d is not synced after a minute", i)
				}
			}
		case SyncNone:
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		d.mu.Lock()
		mark = w.Synced()
		d.mu.Unlock()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// A power cut at every step: no value is ever wrong, what was reported as synced is there, and a repair leaves a
// whole stream that holds it as well.
func TestPowerCut(t *testing.T) {
	seeds := 4
	if testenv.Nightly() {
		seeds = 100
	}
	c := newCapture(12, 6)
	for _, policy := range []Sync{{Policy: SyncToken}, {Policy: SyncNone},
		{Policy: SyncInterval, Interval: time.Millisecond}} {
		for seed := range seeds {
			o := Options{Workers: 1 + seed%2, Codec: []codec.ID{codec.LZ4, codec.None}[seed%2], Sync: policy}
			left := cutDuring(t, c, o, uint64(seed))
			if least := len(c.executions); policy.Policy != SyncInterval && len(left) < least {
				t.Fatalf("%v: only %d steps", policy, len(left))
			}
			for i, l := range left {
				c.checkLeft(t, fmt.Sprintf("%v, seed %d, power cut at step %d", policy, seed, i), l)
			}
		}
	}
}

// checkLeft reads what a power cut left, as it is and repaired.
func (c *capture) checkLeft(t *testing.T, what string, l leftover) {
	t.Helper()
	if !l.whole { // which may be all there is, with its end
		c.survivors(t, what, l.stream, l.index)
	}
	r, err := newMemoryReader(bytes.NewReader(l.stream), int64(len(l.stream)), l.index)
	if err != nil {
		if l.synced.Commits > 0 || !reported(err) {
			t.Fatalf("%s: %d commits were synced: %v", what, l.synced.Commits, err)
		}
		return
	}
	promised(t, what, r, l.synced)
}

// promised checks that a reader has everything up to a mark.
func promised(t *testing.T, what string, r *Reader, m Mark) {
	t.Helper()
	if uint64(r.Len()) < m.Packets || r.Info().Totals.Executions < m.Executions || r.Info().Totals.Commits < m.Commits {
		t.Fatalf("%s: %d packets, %d executions, %d commits are there, of %+v", what, r.Len(), r.Info().
			Totals.Executions,
			r.Info().Totals.Commits, m)
	}
	var p Packet
	for i := range int(m.Packets) {
		if err := r.Packet(i, &p); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ReadInto(&p, nil); err != nil {
			t.Fatalf("%s: packet %d of %d that were synced: %v", what, i, m.Packets, err)
		}
	}
}

// After a repair everything that was promised is there still, and whatever is there is right; only bytes of the
// stream that no index describes and no codec checks cannot be detected, and are marked.
func TestPowerCutRepaired(t *testing.T) {
	c := newCapture(8, 4)
	left := cutDuring(t, c, Options{Workers: 1, Codec: codec.LZ4, Sync: Sync{Policy: SyncToken}}, 9)
	for i, l := range left {
		if len(l.index) < headerSize {
			continue
		}
		what := fmt.Sprintf("power cut at step %d", i)
		path := t.TempDir() + "/a.stream"
		writeFiles(t, path, nil2empty(l.stream), l.index)
		if _, err := Repair(path, Assumed{Codec: codec.LZ4}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		promised(t, what, r, l.synced)
		for j, p := range r.Packets() {
			if n := c.find(p); !p.Rebuilt && n < 0 {
				t.Fatalf("%s: packet %d was never written: %+v", what, j, p)
			}
			if _, err := r.ReadInto(p, nil); err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
		}
		r.Close()
	}
}
