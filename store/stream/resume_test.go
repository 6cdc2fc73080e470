package stream

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

// tokens appends tokens from first on, each with its commit.
func (c *capture) tokens(t *testing.T, w *Writer, first int) {
	t.Helper()
	at := 0
	for i := range c.executions {
		if i >= first {
			if err := w.AppendExecution(&c.executions[i]); err != nil {
				t.Fatal(err)
			}
		}
		for ; at < len(c.packets) && c.packets[at].Exec == c.executions[i].Exec; at++ {
			if i >= first {
				if err := w.Append(&c.packets[at], c.data[at], nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		if i >= first {
			if err := w.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// uninterrupted writes a capture in one go, and returns both files' bytes.
func (c *capture) uninterrupted(t *testing.T, o Options) (path string, stream, index []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "a.stream")
	w, err := Create(path, o)
	if err != nil {
		t.Fatal(err)
	}
	c.tokens(t, w, 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path, read(t, path), read(t, path+IndexSuffix)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// goOn resumes what lies at path and appends what is missing.
func (c *capture) goOn(t *testing.T, path string, o Options) *Kept {
	t.Helper()
	w, kept, err := resume(path, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	items := 0
	for it := range kept.Items() {
		if !it.Commit {
			items++
		}
		if it.Packet != nil && it.Packet.Name == "" || it.Execution != nil && len(it.Execution.Rows) != 1 {
			t.Errorf("item %+v", it)
		}
	}
	if items != int(kept.Packets+kept.Executions) {
		t.Errorf("%d items of %d packets and %d executions", items, kept.Packets, kept.Executions)
	}
	if s := w.Stats(); s.Packets != kept.Packets || s.FileBytes != uint64(kept.StreamBytes+kept.IndexBytes) {
		t.Errorf("%+v of %+v", s, kept)
	}
	c.tokens(t, w, int(kept.Executions))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return kept
}

// TestResumeThrownAway: executions at the end that were thrown away come again; those before a good one are kept.
func TestResumeThrownAway(t *testing.T) {
	for _, thrown := range [][]int{{3}, {2, 3}, {0}, {1, 3}, {}, {0, 1, 2, 3}} {
		c := newCapture(4, 3)
		path := filepath.Join(t.TempDir(), "a.stream")
		w, err := Create(path, Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		keep := 4
		for i := range c.executions {
			x := &c.executions[i]
			err := w.AppendExecution(x)
			for at := range c.packets {
				if c.packets[at].Exec == x.Exec {
					err = errors.Join(err, w.Append(&c.packets[at], c.data[at], nil))
				}
			}
			if slices.Contains(thrown, i) {
				err = errors.Join(err, w.AppendResolution(Resolution{Ctx: x.Ctx, FirstExec: x.Exec, LastExec: x.Exec,
					Phase: label.PhaseSetup}))
			}
			if err := errors.Join(err, w.Commit()); err != nil {
				t.Fatal(err)
			}
		}
		for keep > 0 && slices.Contains(thrown, keep-1) {
			keep--
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		kept, err := Examine(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if kept.Executions != uint64(keep) || kept.Cut.Executions != uint64(4-keep) {
			t.Errorf("of executions of which %v were thrown away, %d are kept, want %d", thrown, kept.Executions, keep)
		}
		kept.Close()
	}
}

// A stream that was cut off at any byte of its index, with as much of the stream as there must then be, or more, is
// after Resume what it would have been without the interruption, byte for byte, sums included.
func TestResumeEverywhere(t *testing.T) {
	c := newCapture(3, 3)
	o := Options{Codec: codec.LZ4, Workers: 1}
	path, stream, index := c.uninterrupted(t, o)
	x, err := scan(index)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for cut := headerSize; cut <= len(index); cut += stride() {
		part, err := scan(index[:cut])
		if err != nil {
			t.Fatal(err)
		}
		end := int(part.totals.StreamBytes)
		end += r.IntN(len(stream) - end + 1)
		write(t, path, stream[:end])
		write(t, path+IndexSuffix, index[:cut])
		kept := c.goOn(t, path, o)
		if kept.Commits > part.totals.Commits || kept.Packets != kept.Executions*3 ||
			kept.Packets+kept.Cut.Packets != part.totals.Packets {
			t.Fatalf("cut at byte %d of the index: %+v of %+v", cut, kept, part.totals)
		}
		if !bytes.Equal(read(t, path), stream) || !bytes.Equal(read(t, path+IndexSuffix), index) {
			t.Fatalf("cut at byte %d of %d of the index, %d of %d of the stream: the files differ from those of a "+
				"run without interruption", cut, len(index), end, len(stream))
		}
	}
	if x.footer == nil {
		t.Error("the index has no end")
	}
}

// Where the machine was cut off, the index may describe bytes of the stream that are missing or are not what was
// written.
func TestResumeLostBytes(t *testing.T) {
	c := newCapture(2, 3)
	o := Options{Codec: codec.None, DType: codec.F32, Workers: 1}
	path, stream, index := c.uninterrupted(t, o)
	for at := 0; at < len(stream); at += stride() {
		for _, damaged := range []func([]byte) []byte{
			func(s []byte) []byte { return s[:at] },
			func(s []byte) []byte { s[at] ^= 0x40; return s },
		} {
			write(t, path, damaged(bytes.Clone(stream)))
			write(t, path+IndexSuffix, index)
			kept := c.goOn(t, path, o)
			if kept.StreamBytes > int64(at) {
				t.Fatalf("damage at byte %d, and %d bytes are kept", at, kept.StreamBytes)
			}
			if !bytes.Equal(read(t, path), stream) || !bytes.Equal(read(t, path+IndexSuffix), index) {
				t.Fatalf("damage at byte %d: the files differ", at)
			}
		}
	}
}

// Large streams are resumed in the middle of a block, and have seek tables.
func TestResumeLarge(t *testing.T) {
	c := newCapture(900, 7)
	for i := range c.data {
		if i%3 == 0 {
			c.data[i] = bytes.Repeat(c.data[i], 100)
			c.packets[i].NE[0] *= 100
		}
	}
	o := Options{Codec: codec.LZ4, Workers: 2}
	path, stream, index := c.uninterrupted(t, o)
	r := rand.New(rand.NewPCG(3, 4))
	for range 5 {
		write(t, path, stream)
		write(t, path+IndexSuffix, index[:headerSize+r.IntN(len(index)-headerSize)])
		c.goOn(t, path, o)
		if !bytes.Equal(read(t, path), stream) || !bytes.Equal(read(t, path+IndexSuffix), index) {
			t.Fatal("the files differ from those of a run without interruption")
		}
	}
	for cut := len(index) - 5; cut > 0; cut -= len(index) / 3 { // interrupted again and again
		write(t, path+IndexSuffix, read(t, path+IndexSuffix)[:max(cut, headerSize)])
		c.goOn(t, path, o)
	}
	if !bytes.Equal(read(t, path), stream) || !bytes.Equal(read(t, path+IndexSuffix), index) {
		t.Error("the files differ after several interruptions")
	}
}

func TestResumeSums(t *testing.T) {
	c := newCapture(50, 5)
	path, _, index := c.uninterrupted(t, Options{})
	write(t, path+IndexSuffix, index[:len(index)/2])
	w, kept, err := resume(path, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.tokens(t, w, int(kept.Executions))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, gotIndex := w.Sums()
	want, err := sumFile(path)
	wantIndex, err2 := sumFile(path + IndexSuffix)
	if err := errors.Join(err, err2); err != nil || got != want || gotIndex != wantIndex {
		t.Errorf("sums %v %v, want %v %v, %v", got, gotIndex, want, wantIndex, err)
	}
}

// A stream may be cut after an earlier commit than its last.
func TestResumeUpTo(t *testing.T) {
	c := newCapture(6, 3)
	path, stream, index := c.uninterrupted(t, Options{Workers: 1})
	for _, commits := range []uint64{0, 1, 5, 6, 99} {
		w, kept, err := resume(path, &Mark{Commits: commits}, Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		if kept.Commits != min(commits, 6) || kept.Packets != 3*kept.Commits {
			t.Errorf("up to commit %d: %+v", commits, kept.Mark)
		}
		c.tokens(t, w, int(kept.Executions))
		if err := w.Close(); err != nil || !bytes.Equal(read(t, path), stream) ||
			!bytes.Equal(read(t, path+IndexSuffix), index) {
			t.Errorf("up to commit %d: the files differ, %v", commits, err)
		}
	}
}

func TestResumeRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.stream")
	if _, _, err := resume(path, nil, Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.AppendLoss(Loss{Cause: "pool full", Packets: 1}), w.Commit(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := resume(path, nil, Options{}); !errors.Is(err, ErrNotResumable) {
		t.Errorf("a stream with losses: %v", err)
	}
	write(t, path+IndexSuffix, []byte("something else that is long enough to be the header of an index file"))
	if _, _, err := resume(path, nil, Options{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("no index: %v", err)
	}
}

// stride is 1 in the nightly tests. Each step syncs its files, so the others leave steps out, and the race
// detector's most of them.
func stride() int {
	switch {
	case testenv.Nightly():
		return 1
	case testing.Short():
		return 29
	}
	return 7
}

// Values are compared as they are stored, with every codec.
func TestSameValues(t *testing.T) {
	c := newCapture(4, 5)
	for _, o := range []Options{
		{Workers: 2}, {Workers: 2, Codec: codec.LZ4}, {Workers: 2, Codec: codec.Zstd},
		{Workers: 2, Codec: codec.ZstdShuffle, DType: codec.F32},
		{Workers: 2, Codec: codec.Q, Bound: codec.Bound{Error: 1e-3}},
		{Workers: 2, Codec: codec.QFSE, Bound: codec.Bound{Error: 1e-3}},
	} {
		path, _, _ := c.uninterrupted(t, o)
		w, kept, err := resume(path, nil, o)
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		for it := range kept.Items() {
			if it.Packet == nil {
				continue
			}
			if same, err := kept.SameValues(it.Packet, &c.packets[at], c.data[at]); err != nil || !same {
				t.Errorf("%v: packet %d is taken for another one, %v", o.Codec, at, err)
			}
			other := bytes.Clone(c.data[at])
			if len(other) > 3 {
				other[3] ^= 0x40
				if same, err := kept.SameValues(it.Packet, &c.packets[at], other); err != nil || same {
					t.Errorf("%v: packet %d is taken for the same, %v", o.Codec, at, err)
				}
			}
			at++
		}
		if at != len(c.packets) {
			t.Errorf("%v: %d packets of %d", o.Codec, at, len(c.packets))
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Going on takes memory by what nodes there are, not by how long the stream is; and an index that goes away
// meanwhile is reported.
func TestExamineBounded(t *testing.T) {
	var grown [2]uint64
	for i, tokens := range []int{300, 3000} {
		c := newCapture(tokens, 6)
		path, _, index := c.uninterrupted(t, Options{Workers: 1})
		write(t, path+IndexSuffix, index[:len(index)-20])
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		k, err := Examine(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		grown[i] = after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc)
		if k.Packets != uint64(6*tokens) || len(k.index.pages.all) > 0 {
			t.Errorf("%+v, %d pages noted", k.Mark, len(k.index.pages.all))
		}
		items := 0
		for it := range k.Items() {
			if items++; it.Err != nil {
				t.Fatal(it.Err)
			}
		}
		if err := os.Truncate(path+IndexSuffix, int64(len(index)/2)); err != nil {
			t.Fatal(err)
		}
		var last Item
		for it := range k.Items() {
			last = it
		}
		if last.Err == nil {
			t.Error("an index that was cut off is read to its end")
		}
		if err := errors.Join(k.Close(), k.Close()); err != nil {
			t.Error(err)
		}
		runtime.KeepAlive(k)
	}
	if grown[1] > grown[0]+32<<10 {
		t.Errorf("%d bytes for a stream, %d for one ten times as long", grown[0], grown[1])
	}
}
