package stream

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
)

// What is written in pieces of any size, with flushes between, is in the file after each flush, and hashed right,
// whether the file system takes the direct writes or refuses them.
func TestBlocks(t *testing.T) {
	for _, refused := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "a")
		file, err := createBlocks(path)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		o := newOutput("stream", file, 4*BlockAlign)
		if refused {
			o.buf = make([]byte, 4*BlockAlign+1)[1:1] // memory that no direct write takes
		}
		var want []byte
		for i := range 400 {
			p := make([]byte, r.IntN(3*BlockAlign))
			for j := range p {
				p[j] = byte(r.Uint32())
			}
			want = append(want, p...)
			if err := o.write(p); err != nil {
				t.Fatal(err)
			}
			if i%7 != 0 {
				continue
			}
			if err := errors.Join(o.flush(), o.flush()); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) || o.end() != int64(len(want)) {
				t.Fatalf("after piece %d: %d bytes in the file, %d written, %v", i, len(got), len(want), err)
			}
		}
		if err := errors.Join(o.flush(), o.sync(), o.close()); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if sum := o.sum(); err != nil || !bytes.Equal(got, want) || sum.Size != int64(len(want)) ||
			sum.SHA256 != sha256.Sum256(want) {
			t.Errorf("refused %v: %d bytes, %v; the sum is of %d", refused, len(got), err, sum.Size)
		}
	}
}

// A commit marker reaches its file without any further call.
func TestCommitDelay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.stream")
	w, err := Create(path, Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for round := range uint64(3) {
		if err := w.Append(&Packet{Name: "x", SrcType: ggmlI32, Exec: round}, []byte{1, 2, 3, 4}, nil); err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(testenv.Patience()); committed(path) != round+
			1; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d commit markers are in the file a minute after commit %d", committed(path), round+1)
			}
		}
	}
}

// committed is the number of commit markers in a stream's index, whose packets are all there.
func committed(path string) uint64 {
	r, err := Open(path)
	if err != nil {
		return 0
	}
	defer r.Close()
	for _, p := range r.Packets() {
		if _, err := r.ReadInto(p, nil); err != nil {
			return 0
		}
	}
	return r.Info().Totals.Commits
}
