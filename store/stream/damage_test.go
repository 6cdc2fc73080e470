package stream

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

func checkSum(t *testing.T, path string, s Sum) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil || int64(len(b)) != s.Size || sha256.Sum256(b) != s.SHA256 {
		t.Errorf("%s: %d bytes, %v; the writer says %d, %x", path, len(b), err, s.Size, s.SHA256)
	}
}

func reported(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrVersion)
}

// survivors opens damaged files and checks the law of this format: what comes back is what was written, and what
// does not is reported. It returns how many packets came back.
func (c *capture) survivors(t *testing.T, what string, stream, index []byte) int {
	t.Helper()
	r, err := newMemoryReader(bytes.NewReader(stream), int64(len(stream)), index)
	if err != nil {
		if !reported(err) {
			t.Fatalf("%s: %v", what, err)
		}
		return 0
	}
	good := 0
	for i, p := range r.Packets() {
		n := c.find(p)
		if n < 0 {
			t.Fatalf("%s: packet %d was never written: %+v", what, i, p)
		}
		want, _ := stored(t, &c.packets[n], c.data[n], codec.F16)
		got, err := r.ReadInto(p, nil)
		switch {
		case err != nil && !reported(err):
			t.Fatalf("%s: packet %d: %v", what, i, err)
		case err == nil && !bytes.Equal(got, want):
			t.Fatalf("%s: packet %d holds %x, want %x", what, i, got, want)
		case err == nil:
			good++
		}
	}
	for e := range r.Executions() {
		if n := int(e.Exec) - 10; n < 0 || n >= len(c.executions) || e.Rows[0].Token != c.executions[n].Rows[0].Token {
			t.Fatalf("%s: an execution that was never written: %+v", what, e)
		} else if got := e.Rows[0].Request; got != requestOf(n) && got != label.RequestUnknown {
			t.Fatalf("%s: row %+v is of request %d", what, e.Rows[0], requestOf(n))
		}
	}
	if err := r.Verify(nil); !reported(err) {
		t.Fatalf("%s: %d of %d packets are there, and Verify says %v", what, good, len(c.packets), err)
	}
	return good
}

func (c *capture) find(p *Packet) int {
	for i := range c.packets {
		w := &c.packets[i]
		if w.Exec == p.Exec && w.Name == p.Name && w.NE == p.NE && w.NodeIndex == p.NodeIndex &&
			w.TokenFirst == p.TokenFirst {
			return i
		}
	}
	return -1
}

func TestTruncateIndex(t *testing.T) {
	testenv.Once(t, "TestPages")
	c := newCapture(4, 4)
	stream, index := c.files(t, Options{Codec: codec.LZ4, Workers: 1})
	before := 0
	for cut := range index {
		good := c.survivors(t, fmt.Sprintf("index cut at byte %d", cut), stream, index[:cut])
		if good < before {
			t.Fatalf("index cut at byte %d: %d packets, where one byte less gave %d", cut, good, before)
		}
		before = good
	}
	if before != len(c.packets) {
		t.Errorf("only the end record is cut, and %d of %d packets are there", before, len(c.packets))
	}
}

func TestTruncateStream(t *testing.T) {
	testenv.Once(t, "TestPages")
	c := newCapture(4, 4)
	stream, index := c.files(t, Options{Codec: codec.Zstd, Workers: 1})
	for cut := range stream {
		good := c.survivors(t, fmt.Sprintf("stream cut at byte %d", cut), stream[:cut], index)
		whole := 0
		for _, p := range open(t, stream, index).Packets() {
			if p.Offset+packetHeader+int64(len(p.Name))+p.Stored <= int64(cut) {
				whole++
			}
		}
		if good != whole {
			t.Fatalf("stream cut at byte %d: %d packets, %d are whole", cut, good, whole)
		}
	}
}

// After a crash both files end somewhere, the index after the stream's data or before.
func TestTruncateBoth(t *testing.T) {
	testenv.Once(t, "TestPages")
	c := newCapture(3, 3)
	stream, index := c.files(t, Options{Workers: 1})
	for i := range stream {
		for j := headerSize; j < len(index); j += 7 {
			c.survivors(t, fmt.Sprintf("cut at %d and %d", i, j), stream[:i], index[:j])
		}
	}
}

func TestBitFlips(t *testing.T) {
	testenv.Once(t, "TestPages")
	c := newCapture(4, 4)
	for _, id := range []codec.ID{codec.None, codec.LZ4, codec.Zstd, codec.ZstdShuffle} {
		stream, index := c.files(t, Options{Codec: id, Workers: 1})
		for at := range stream {
			bad := bytes.Clone(stream)
			bad[at] ^= 1 << (at % 8)
			if good := c.survivors(t, fmt.Sprintf("%v: stream flipped at byte %d", id, at), bad,
				index); good != len(c.packets)-1 {
				t.Fatalf("%v: stream flipped at byte %d: %d of %d packets came back", id, at, good, len(c.packets))
			}
		}
		for at := range index {
			bad := bytes.Clone(index)
			bad[at] ^= 1 << (at % 8)
			c.survivors(t, fmt.Sprintf("%v: index flipped at byte %d", id, at), stream, bad)
		}
	}
}

// One damaged record in the middle costs that record, not what comes after it.
func TestCorruptMiddle(t *testing.T) {
	c := newCapture(6, 3)
	stream, index := c.files(t, Options{Workers: 1})
	x, err := scan(index)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{4, 9, 13} { // packets whose nodes were described before
		for offset := range 40 {
			bad := bytes.Clone(index)
			bad[recordAt(t, x, i)+int64(offset)] ^= 0x10
			good := c.survivors(t, fmt.Sprintf("packet record %d, byte %d", i, offset), stream, bad)
			if least := len(c.packets) - 2; good < least {
				t.Errorf("packet record %d, byte %d: %d packets came back, at least %d could", i, offset, good, least)
			}
		}
	}
	dir := t.TempDir()
	bad := bytes.Clone(index)
	bad[recordAt(t, x, 4)+20] ^= 1
	writeFiles(t, dir+"/a.stream", stream, bad)
	if _, err := Open(dir + "/a.stream"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Open: %v", err)
	}
	r, err := OpenDamaged(dir + "/a.stream")
	if err != nil || r.Len() != len(c.packets)-1 {
		t.Fatalf("OpenDamaged: %v", err)
	}
	r.Close()
}

func writeFiles(t *testing.T, path string, stream, index []byte) {
	t.Helper()
	for name, b := range map[string][]byte{path: stream, path + IndexSuffix: index} {
		if b == nil {
			continue
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	stream, index := newCapture(1, 2).files(t, Options{})
	future := bytes.Clone(index)
	future[8] = 2
	binary.LittleEndian.PutUint32(future[headerSize-4:], checksum(future[:headerSize-4]))
	record, _ := appendRecord(nil, 99, 0, binary.LittleEndian.Uint32(index[headerSize-4:]), nil)
	writeFiles(t, dir+"/alone", stream, nil)
	writeFiles(t, dir+"/future", stream, future)
	writeFiles(t, dir+"/type", nil2empty(nil), append(bytes.Clone(index[:headerSize]), record...))
	writeFiles(t, dir+"/text", stream, []byte("not an index at all, but long enough to be looked at as if it were one"))
	writeFiles(t, dir+"/empty", stream, []byte{})
	for name, want := range map[string]error{"alone": ErrNoIndex, "missing": os.ErrNotExist, "future": ErrVersion,
		"type": ErrVersion, "text": ErrCorrupt, "empty": ErrTruncated} {
		if _, err := Open(dir + "/" + name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if _, err := Open(dir); err == nil {
		t.Error("a directory was opened")
	}
}

func nil2empty(b []byte) []byte { return append([]byte{}, b...) }

// A reader passes over records that it may ignore, and refuses the rest.
func TestOptionalRecord(t *testing.T) {
	h := Header{Major: versionMajor, Minor: 9}
	b := h.append(nil)
	_, chain, err := parseHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	b, chain = appendRecord(b, recordOptional+5, 0, chain, []byte("later"))
	f := Footer{Records: 1}
	b, _ = appendRecord(b, recordEnd, 1, chain, f.append(nil))
	r := open(t, nil, b)
	if r.Len() != 0 || len(r.Info().Damage) != 0 {
		t.Errorf("%d packets, %v", r.Len(), r.Info().Damage)
	}
}

func TestFooter(t *testing.T) {
	c := newCapture(5, 3)
	stream, index := c.files(t, Options{})
	r := open(t, stream, index)
	f := r.parts[0].index.footer
	if f.Totals != r.Info().Totals || f.Totals.StreamBytes != int64(len(stream)) || len(f.Nodes) != 3 ||
		len(f.Losses) != 1 || len(f.Seeks) != 1 {
		t.Errorf("%+v", f)
	}
	for _, n := range f.Nodes {
		if n.Packets != 5 || n.Packet.Name == "" || n.Stored == 0 {
			t.Errorf("%+v", n)
		}
	}
}

// The seek table stays small, and every entry of it is the beginning of a packet's record.
func TestSeekTable(t *testing.T) {
	testenv.Once(t)
	x := newMemory()
	out := newOutput("index", x, indexBuffer)
	j, err := newJournal(Header{Major: 1}, out, newOutput("stream", newMemory(), 16))
	if err != nil {
		t.Fatal(err)
	}
	j.every = 1
	p := Packet{Name: "a"}
	for i := range 3 * maxSeeks {
		p.Exec = uint64(i)
		if err := j.packet(&p); err != nil {
			t.Fatal(err)
		}
		p.Offset += packetHeader + 1
	}
	if err := errors.Join(j.end(), out.flush()); err != nil {
		t.Fatal(err)
	}
	ix, err := scan(x.Bytes())
	if err != nil || len(ix.damage) > 0 {
		t.Fatal(err, ix.damage)
	}
	if n := len(ix.footer.Seeks); n > maxSeeks || n < maxSeeks/2 {
		t.Errorf("%d entries", n)
	}
	for _, s := range ix.footer.Seeks {
		r, ok := parseRecord(x.Bytes()[s.Index:])
		var p Packet
		if !ok || !r.follows(s.chain) || uint64(r.sequence) != s.record || recordAt(t, ix, int(s.Packet)) != s.Index ||
			ix.packet(int(s.Packet), &p) != nil || p.Exec != s.Exec || p.Offset != s.Stream {
			t.Fatalf("%+v", s)
		}
	}
}

// A full disk: the error sticks, everything is released, Close returns it, and the files hold a true beginning.
func TestDiskFull(t *testing.T) {
	c := newCapture(60, 6)
	stream, index := c.files(t, Options{Workers: 2})
	for limit := 0; limit < len(stream); limit += len(stream)/23 + 1 {
		for _, which := range []string{"stream", "index"} {
			s, x := newMemory(), newMemory()
			if which == "stream" {
				s.limit = limit
			} else {
				x.limit = min(limit, len(index)-1)
			}
			w, err := New(s, x, Options{Workers: 2, Queue: 8})
			if err != nil {
				t.Fatal(err)
			}
			released := atomic.Int32{}
			var first error
			for i := range c.packets {
				if err := w.Append(&c.packets[i], c.data[i], func() { released.Add(1) }); err != nil && first == nil {
					first = err
				} else if err != nil && err != first {
					t.Fatalf("%s full at %d: %v after %v", which, limit, err, first)
				}
				if i%10 == 0 && first == nil {
					first = w.Commit()
				}
			}
			flush, closed := w.Flush(), w.Close()
			if !errors.Is(flush, errFull) || !errors.Is(closed, errFull) || !errors.Is(w.Close(), errFull) {
				t.Fatalf("%s full at %d: Flush %v, Close %v", which, limit, flush, closed)
			}
			if int(released.Load()) != len(c.packets) || s.closed != 1 || x.closed != 1 {
				t.Fatalf("%s full at %d: %d of %d released, files closed %d and %d times", which, limit,
					released.Load(), len(c.packets), s.closed, x.closed)
			}
			c.survivors(t, fmt.Sprintf("%s full at %d", which, limit), s.Bytes(), x.Bytes())
		}
	}
}

// TestForgedIndex raises the size that a sound index states for each packet. It is refused before memory is taken
// for it.
func TestForgedIndex(t *testing.T) {
	c := newCapture(3, 3)
	for _, id := range []codec.ID{codec.LZ4, codec.Zstd, codec.ZstdShuffle} {
		stream, index := c.files(t, Options{Codec: id, Workers: 1})
		r := open(t, stream, index)
		header := r.Info().Header
		forged := bytes.Clone(index[:headerSize])
		n := 0
		for at := headerSize; at < len(index); {
			record, ok := parseRecord(index[at:])
			if !ok {
				t.Fatalf("no record at byte %d", at)
			}
			payload := record.payload
			if record.kind == recordPacket {
				_, flags := binary.Uvarint(payload)
				node, _ := binary.Uvarint(payload[flags:])
				var p Packet
				if err := r.parts[0].index.packet(n, &p); err != nil {
					t.Fatal(err)
				}
				p.RawBytes = 1 << 32
				payload = header.appendPacket(nil, node, &p)
				n++
			}
			forged, _ = appendRecord(forged, record.kind, 0, 0, payload)
			at += record.size()
		}
		f := open(t, stream, reseal(forged))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i, p := range f.Packets() {
			if p.RawBytes != 1<<32 {
				t.Fatalf("%v: packet %d is of %d bytes: the index was not forged", id, i, p.RawBytes)
			}
			if _, err := f.ReadInto(p, nil); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%v: packet %d: %v", id, i, err)
			}
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; n == 0 || f.Len() != n || took > 64<<20 {
			t.Errorf("%v: %d of %d packets took %d bytes", id, f.Len(), n, took)
		}
	}
}

// TestPacketsTooLarge: what an index states of a packet makes no reader take more than a packet of the tap's can
// have, and what the stream alone states neither.
func TestPacketsTooLarge(t *testing.T) {
	testenv.Once(t)
	path := filepath.Join(t.TempDir(), "a.stream")
	for name, p := range map[string]Packet{
		"content": {Name: "a", Stored: 60 << 20, RawBytes: 480 << 20, Codec: codec.LZ4, DType: codec.F16},
		"stored":  {Name: "a", Stored: 600 << 20, RawBytes: 600 << 20, DType: codec.F16},
	} {
		head := append(binary.BigEndian.AppendUint32([]byte{0, 1}, uint32(p.Stored)), 'a', 0x04, 0x22, 0x4d, 0x18)
		write(t, path, head)
		if err := os.Truncate(path, packetHeader+1+p.Stored); err != nil {
			t.Fatal(err)
		}
		data := newMemory()
		out := newOutput("index", data, 1<<10)
		j, err := newJournal(Header{Major: versionMajor, Minor: versionMinor}, out, &output{})
		if err == nil {
			err = errors.Join(j.packet(&p), j.commit(), j.end(), out.flush())
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, path+IndexSuffix, data.Bytes())
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		p.CRC = checksum(whole[packetHeader+1:])
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.ReadInto(&p, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if r, err = OpenForeign(path); err == nil {
			for _, p := range r.Packets() {
				if _, err := r.ReadInto(p, nil); !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s, without its index: %v", name, err)
				}
			}
			err = r.Close()
		}
		if err != nil {
			t.Error(err)
		}
		// under the race detector sync.Pool forgets at random
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 200<<20 && !testenv.Race {
			t.Errorf("%s: it takes %d MiB", name, (after.TotalAlloc-before.TotalAlloc)>>20)
		}
	}
}
