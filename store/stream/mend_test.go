package stream

import (
	"bytes"
	"crypto/sha256"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
)

// put writes a stream and its index into a folder.
func put(t *testing.T, stream, index []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "a.stream")
	for name, data := range map[string][]byte{path: stream, path + IndexSuffix: index} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// mendFiles mends a stream whose process has ended.
func mendFiles(path string, losses func(kept Totals) []Loss) (stream, index Sum, err error) {
	return (&Writer{files: &files{index: &output{size: math.MaxInt}}}).Mend(path, losses)
}

// TestMend cuts both files off where a full disk may, and mends them: what is left is whole, begins as what was
// written, ends with a commit, and loses no more than what came after the last commit that was whole in both files.
func TestMend(t *testing.T) {
	testenv.Once(t, "TestMendWriter")
	c := newCapture(6, 5)
	stream, idx := c.files(t, Options{Workers: 1, Codec: codec.LZ4})
	whole := open(t, stream, idx)
	least := commits(t, idx)
	for cut := headerSize; cut < len(idx); cut += 19 {
		// The index describes no more than the stream holds; what it knows of is there, or, where both are cut, some
		// of it.
		for _, size := range []int64{streamUpTo(idx[:cut]), int64(len(stream)), streamUpTo(idx[:cut]) / 2} {
			path := put(t, stream[:size], idx[:cut])
			s, x, err := mendFiles(path, func(kept Totals) []Loss {
				return []Loss{{Cause: "disk_full", Packets: uint64(whole.Len()) - kept.Packets, Bytes: 9}}
			})
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			mended, err := Open(path)
			if err != nil {
				t.Fatalf("cut at %d, %d: %v", cut, size, err)
			}
			want := 0
			for _, at := range least {
				if at.end <= cut && at.stream <= size {
					want = at.packets
				}
			}
			if err := mended.Verify(nil); err != nil || mended.Len() != want || mended.parts[0].index.footer == nil {
				t.Fatalf("cut at %d, %d: %d packets, want %d: %v", cut, size, mended.Len(), want, err)
			}
			if l := mended.Info().Losses; l[len(l)-1] != (Loss{Cause: "disk_full", Packets: uint64(whole.Len() - want),
				Bytes: 9}) {
				t.Fatalf("losses %v", l)
			}
			for i, p := range mended.Packets() {
				var was Packet
				whole.Packet(i, &was)
				if was.Phase = p.Phase; *p != was { // what resolves it comes after the last commit
					t.Fatalf("packet %d: %+v, was %+v", i, *p, was)
				}
			}
			compareSum(t, path, s)
			compareSum(t, path+IndexSuffix, x)
			mended.Close()
		}
	}
}

// commit is a place of an index up to which everything is known to be in both files.
type commitAt struct {
	end     int
	stream  int64
	packets int
}

func commits(t *testing.T, idx []byte) (all []commitAt) {
	t.Helper()
	at := headerSize
	for at < len(idx) {
		r, ok := parseRecord(idx[at:])
		if !ok {
			t.Fatal("no record")
		}
		at += r.size()
		if r.kind == recordCommit {
			c := cursor{b: r.payload}
			all = append(all, commitAt{at, c.size(1 << 40), int(c.uint())})
		}
	}
	return all
}

// streamUpTo is the size of the stream that a piece of an index describes.
func streamUpTo(idx []byte) int64 {
	x, err := scan(idx)
	if err != nil {
		return 0
	}
	return x.totals.StreamBytes
}

func compareSum(t *testing.T, path string, s Sum) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || int64(len(data)) != s.Size || sha256.Sum256(data) != s.SHA256 {
		t.Fatalf("%s: sum of %d bytes, there are %d: %v", path, s.Size, len(data), err)
	}
}

// TestMendWhole leaves a stream alone that has its end.
func TestMendWhole(t *testing.T) {
	stream, idx := newCapture(3, 3).files(t, Options{})
	path := put(t, stream, idx)
	s, x, err := mendFiles(path, func(kept Totals) []Loss { return []Loss{{Cause: "none", Packets: kept.Packets}} })
	if err != nil {
		t.Fatal(err)
	}
	compareSum(t, path, s)
	compareSum(t, path+IndexSuffix, x)
	if got, _ := os.ReadFile(path + IndexSuffix); !bytes.Equal(got, idx) {
		t.Error("the index was changed")
	}
	for _, bad := range []string{filepath.Join(t.TempDir(), "none"), put(t, stream, idx[:headerSize-1]),
		put(t, stream, nil)} {
		if _, _, err := mendFiles(bad, func(Totals) []Loss { return nil }); err == nil {
			t.Errorf("%s: mended", bad)
		}
	}
}

// fullFile is a file on a disk that is full from some byte on.
type fullFile struct {
	*os.File
	left int
}

func (f *fullFile) Write(p []byte) (int, error) {
	if len(p) <= f.left {
		f.left -= len(p)
		return f.File.Write(p)
	}
	n, _ := f.File.Write(p[:f.left])
	f.left = 0
	return n, errFull
}

// TestMendWriter fills the disk under a writer, at many bytes of either file: of what is in the stream nothing is
// lost that a commit came after, though the index had not been written so far.
func TestMendWriter(t *testing.T) {
	c := newCapture(40, 5)
	stream, idx := c.files(t, Options{Workers: 1})
	places := commits(t, idx)
	for room := headerSize; room < len(stream)+len(idx); room += 379 {
		for _, inIndex := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "a.stream")
			s, x := &fullFile{File: create(t, path), left: room},
				&fullFile{File: create(t, path+IndexSuffix), left: 1 << 30}
			if inIndex {
				s.left, x.left = 1<<30, room
			}
			w, err := New(s, x, Options{Workers: 1})
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.executions {
				w.AppendExecution(&c.executions[i])
				for at := range c.packets {
					if c.packets[at].Exec == c.executions[i].Exec {
						w.Append(&c.packets[at], c.data[at], nil)
					}
				}
				w.Commit()
				if i == 0 {
					w.Flush()
				}
			}
			w.Close()
			if _, _, err := w.Mend(path, func(Totals) []Loss { return nil }); err != nil {
				t.Fatalf("%d bytes, in the index %v: %v", room, inIndex, err)
			}
			mended, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			for _, at := range places {
				if inIndex && at.end <= room || !inIndex && at.stream <= int64(room) {
					want = at.packets
				}
			}
			if err := mended.Verify(nil); err != nil || mended.Len() < want {
				t.Fatalf("%d bytes, in the index %v: %d packets, at least %d are there: %v", room, inIndex,
					mended.Len(), want, err)
			}
			mended.Close()
		}
	}
}

func create(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
