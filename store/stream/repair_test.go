package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
)

// repaired repairs damaged files and checks the law of repairs: what the files say afterwards is whole by itself,
// every value is one that was written, nothing was thrown away, and there is nothing left to repair.
func (c *capture) repaired(t *testing.T, what string, stream, index []byte, id codec.ID) (*Reader, *Repaired) {
	t.Helper()
	path := t.TempDir() + "/a.stream"
	writeFiles(t, path, stream, index)
	done, err := Repair(path, Assumed{Codec: id})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	compareSum(t, path, done.Stream)
	compareSum(t, path+IndexSuffix, done.Index)
	left, err := os.ReadFile(path)
	cut, cutErr := os.ReadFile(path + cutSuffix)
	if err != nil || !bytes.Equal(append(left, cut...), stream) || cutErr != nil && !errors.Is(cutErr, fs.ErrNotExist) {
		t.Fatalf("%s: %d bytes of stream and %d put aside were %d: %v, %v", what, len(left), len(cut), len(stream), err,
			cutErr)
	}
	if now, _ := os.ReadFile(path + IndexSuffix); index != nil && !bytes.Equal(now, index) {
		if orig, err := os.ReadFile(path + IndexSuffix + OrigSuffix); err != nil || !bytes.Equal(orig, index) {
			t.Fatalf("%s: the index was changed, and the old one is not there: %v", what, err)
		}
	}
	r, err := Open(path)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	t.Cleanup(func() { r.Close() })
	if err := errors.Join(r.Info().Damage...); err != nil {
		t.Fatalf("%s: after %q there is still: %v", what, done.What, err)
	}
	if again, err := Repair(path, Assumed{Codec: id}); err != nil || len(again.What) > 0 {
		t.Fatalf("%s: a second repair: %v, %v", what, again, err)
	}
	return r, done
}

// checkRepaired compares every packet with what was written, and returns how many came back with all that was known
// of them, and how many from the stream alone.
func (c *capture) checkRepaired(t *testing.T, what string, r, whole *Reader) (known, rebuilt int) {
	t.Helper()
	for i, p := range r.Packets() {
		n, found := sort.Find(whole.Len(), func(i int) int {
			var w Packet
			whole.parts[0].index.packet(i, &w)
			return int(p.Offset - w.Offset)
		})
		if !found {
			t.Fatalf("%s: packet %d was never written: %+v", what, i, p)
		}
		var was Packet
		whole.Packet(n, &was)
		want, err := whole.ReadInto(&was, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.ReadInto(p, nil)
		if err != nil || !bytes.Equal(got, want) || p.Name != was.Name {
			t.Fatalf("%s: packet %d: %v; %x, want %x", what, i, err, got, want)
		}
		was.Phase = p.Phase // what resolves it may be lost
		if !p.Rebuilt && *p != was {
			t.Fatalf("%s: packet %d: %+v, was %+v", what, i, p, was)
		}
		if p.Rebuilt {
			rebuilt++
		} else {
			known++
		}
	}
	for e := range r.Executions() {
		if n := int(e.Exec) - 10; n < 0 || n >= len(c.executions) || e.Rows[0].Token != c.executions[n].Rows[0].Token {
			t.Fatalf("%s: an execution that was never written: %+v", what, e)
		}
	}
	return known, rebuilt
}

func TestRepairNothing(t *testing.T) {
	c := newCapture(3, 3)
	stream, index := c.files(t, Options{})
	if _, done := c.repaired(t, "whole", stream, index, codec.None); len(done.What) > 0 || done.Lost {
		t.Errorf("%+v", done)
	}
}

// An index that is torn is cut off after its last commit.
func TestRepairTorn(t *testing.T) {
	c := newCapture(4, 4)
	stream, index := c.files(t, Options{Codec: codec.LZ4, Workers: 1})
	whole := open(t, stream, index)
	places := commits(t, index)
	for cut := headerSize; cut < len(index); cut += 43 {
		r, done := c.repaired(t, fmt.Sprintf("index cut at byte %d", cut), stream, index[:cut], codec.LZ4)
		known, rebuilt := c.checkRepaired(t, fmt.Sprintf("index cut at byte %d", cut), r, whole)
		want := 0
		for _, at := range places {
			if at.end <= cut {
				want = at.packets
			}
		}
		var lost uint64
		for _, l := range r.Info().Losses {
			if l.Cause == causeCutOff {
				lost = l.Packets
			}
		}
		if known != want || rebuilt != 0 || done.Lost != (want < whole.Len()) || lost != uint64(whole.Len()-want) {
			t.Fatalf("index cut at byte %d: %d packets and %d, want %d; lost %v, %d", cut, known, rebuilt, want,
				done.Lost, lost)
		}
	}
}

// TestRepairCountsLoss: what was cut off is counted in packets and in the tensors' bytes, whether the index
// describes it or the stream alone, up to the packet in which the stream ends.
func TestRepairCountsLoss(t *testing.T) {
	for _, o := range []Options{{Codec: codec.None}, {Codec: codec.LZ4, DType: codec.F16},
		{Codec: codec.ZstdShuffle, DType: codec.F16}} {
		c := newCapture(4, 4)
		o.Workers = 1
		stream, index := c.files(t, o)
		whole := open(t, stream, index)
		second := commits(t, index)[1]
		index = index[:second.end] // each node has a packet in it
		for end := int(second.stream) + 1; end <= len(stream); end += 37 {
			what := fmt.Sprintf("%v, %v, stream cut at byte %d", o.Codec, o.DType, end)
			r, done := c.repaired(t, what, stream[:end], index, o.Codec)
			unsized := strings.Contains(strings.Join(done.What, "\n"), "without their bytes")
			want := Loss{Cause: causeCutOff}
			for i, p := range whole.Packets() {
				if i < second.packets || p.Offset >= int64(end) {
					continue
				}
				want.Packets++
				there := int64(end) - (p.Offset + packetHeader + int64(len(p.Name))) // of the payload
				if there >= p.Stored || !unsized {
					want.Bytes += uint64(p.SrcBytes)
				} else if there >= 32 && o.Codec != codec.ZstdShuffle {
					t.Fatalf("%s: the last packet's size was not read: %q", what, done.What)
				}
			}
			if losses := r.Info().Losses; len(losses) != 1 || losses[0] != want {
				t.Fatalf("%s: lost %+v, want %+v: %q", what, losses, want, done.What)
			}
		}
	}
}

// A stream that is cut off, wherever, ends after its last commit, whatever the index says.
func TestRepairShortStream(t *testing.T) {
	c := newCapture(3, 3)
	stream, index := c.files(t, Options{Codec: codec.Zstd, Workers: 1})
	whole := open(t, stream, index)
	for cut := 0; cut < len(stream); cut += 23 {
		what := fmt.Sprintf("stream cut at byte %d", cut)
		r, done := c.repaired(t, what, stream[:cut], index, codec.Zstd)
		if known, _ := c.checkRepaired(t, what, r, whole); !done.Lost || known >= whole.Len() {
			t.Fatalf("%s: %d packets, %+v", what, known, done)
		}
	}
}

// One bit of the index costs what stood in its record; the packets themselves are found in the stream.
func TestRepairFlippedIndex(t *testing.T) {
	testenv.Once(t, "TestPages")
	for _, id := range []codec.ID{codec.None, codec.LZ4, codec.ZstdShuffle, codec.Q} {
		c := newCapture(3, 3)
		stream, index := c.files(t, Options{Codec: id, Workers: 1, Bound: codec.Bound{Error: 1e-3}})
		whole := open(t, stream, index)
		step := 29
		if testenv.Nightly() {
			step = 1
		}
		for at := 0; at < len(index); at += step {
			bad := bytes.Clone(index)
			bad[at] ^= 1 << (at % 8)
			what := fmt.Sprintf("%v: index flipped at byte %d", id, at)
			if _, err := scan(bad); errors.Is(err, ErrVersion) {
				continue
			}
			r, done := c.repaired(t, what, stream, bad, id)
			known, rebuilt := c.checkRepaired(t, what, r, whole)
			if torn := strings.Contains(strings.Join(done.What, " "), "had no end"); known+rebuilt != whole.Len() &&
				!torn || len(done.What) == 0 {
				t.Fatalf("%s: %d packets and %d from the stream, want %d: %q", what, known, rebuilt, whole.Len(),
					done.What)
			}
			if gaps := r.Info().Gaps; rebuilt > 0 && len(gaps) == 0 {
				t.Fatalf("%s: %d packets from the stream, and no gap", what, rebuilt)
			}
		}
	}
}

// Without an index everything comes from the stream; what is no packet is put aside at the end, and stays in the
// middle.
func TestRepairWithoutIndex(t *testing.T) {
	c := newCapture(4, 4)
	stream, index := c.files(t, Options{Codec: codec.LZ4, Workers: 1})
	whole := open(t, stream, index)
	r, _ := c.repaired(t, "no index", stream, nil, codec.LZ4)
	if known, rebuilt := c.checkRepaired(t, "no index", r, whole); known != 0 || rebuilt != whole.Len() ||
		r.Len() != rebuilt {
		t.Errorf("%d and %d packets", known, rebuilt)
	}
	for _, zeros := range []int{1, 6, 4096} {
		r, done := c.repaired(t, "zeros", append(bytes.Clone(stream), make([]byte, zeros)...), nil, codec.LZ4)
		if r.Len() != whole.Len() || !done.Lost {
			t.Errorf("%d zeros: %d packets, %+v", zeros, r.Len(), done)
		}
	}
}

// Index and stream are damaged at the same place: what is before and behind is there, and the bytes between are
// reported.
func TestRepairBoth(t *testing.T) {
	c := newCapture(6, 3)
	stream, index := c.files(t, Options{Codec: codec.LZ4, Workers: 1})
	whole := open(t, stream, index)
	var p Packet
	whole.Packet(7, &p)
	badStream, badIndex := bytes.Clone(stream), bytes.Clone(index)
	badIndex[recordAt(t, whole.parts[0].index, 7)+20] ^= 4
	badStream[p.Offset] = 0xff // the name's length
	r, _ := c.repaired(t, "both", badStream, badIndex, codec.LZ4)
	known, rebuilt := c.checkRepaired(t, "both", r, whole)
	size := packetHeader + int64(len(p.Name)) + p.Stored
	if gaps := r.Info().Gaps; known != whole.Len()-1 || rebuilt != 0 || len(gaps) == 0 ||
		gaps[len(gaps)-1].StreamBytes != size || gaps[len(gaps)-1].Packet != 7 {
		t.Errorf("%d packets, %d rebuilt, gaps %+v, want one of %d bytes", known, rebuilt, r.Info().Gaps, size)
	}
}

// Whatever an index holds, what a repair leaves can be opened, and needs no other.
func FuzzRepair(f *testing.F) {
	stream, index := newCapture(2, 3).files(f, Options{Workers: 1, Codec: codec.LZ4})
	f.Add(index, false)
	f.Add(index[:300], true)
	f.Fuzz(func(t *testing.T, index []byte, repair bool) {
		if repair {
			index = reseal(index)
		}
		path := t.TempDir() + "/a.stream"
		writeFiles(t, path, stream, append([]byte{}, index...))
		if _, err := Repair(path, Assumed{}); err != nil {
			if !errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := errors.Join(r.Info().Damage...); err != nil {
			t.Fatalf("after a repair: %v", err)
		}
		readEverything(t, r)
	})
}
