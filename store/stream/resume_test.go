package stream

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/codec"
)

// appendRun appends a run of that many micro-batches, always the same one.
func appendRun(w *Writer, batches int) error {
	for e := range uint64(batches) {
		x := &Execution{Exec: e + 1, Graph: 3, Phase: ggmlhooks.PhaseDecode, TimeNS: 1e18 + int64(e), MonoNS: int64(e), TokenFirst: int64(e),
			Rows: []ggmlhooks.Row{{Index: int64(e), Token: int32(7 * e), Pos: int32(e), Seqs: []int32{0}, Phase: ggmlhooks.PhaseDecode}}}
		if e%5 == 0 {
			if err := w.AppendRequest(ggmlhooks.RequestBegin{Seq: 0, Number: int32(e / 5)}); err != nil {
				return err
			}
		}
		if err := w.AppendExecution(x); err != nil {
			return err
		}
		for i := range 4 {
			p := &Packet{Name: fmt.Sprintf("l_out-%d", (int(e)+i)%6), SrcType: ggmlF32, Exec: e + 1, Graph: 3, NE: [4]int64{64, 1, 1, 1}, TimeNS: 1e18 + int64(e), TokenFirst: int64(e), TokenCount: 1}
			if err := w.Append(p, resumeData(e, i), nil); err != nil {
				return err
			}
		}
		if err := w.Commit(); err != nil {
			return err
		}
	}
	return nil
}

func resumeData(e uint64, i int) []byte { return bytes.Repeat([]byte{byte(e), byte(i), 3, 60}, 64) }

func wholeRun(t *testing.T, o Options, batches int) (data, index []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.stream")
	w, err := Create(path, o)
	if err == nil {
		err = errors.Join(appendRun(w, batches), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return readBoth(t, path)
}

func readBoth(t *testing.T, path string) (data, index []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if index, err = os.ReadFile(path + IndexSuffix); err != nil {
		t.Fatal(err)
	}
	return data, index
}

// TestResume cuts both files of a run off anywhere, or damages the stream's end, and goes on: both are then what they were, to the byte.
func TestResume(t *testing.T) {
	for _, o := range []Options{{Workers: 2}, {Workers: 1, Codec: codec.LZ4}, {Workers: 2, Codec: codec.Q, Bound: codec.Bound{Error: 1e-3}}} {
		const batches = 40
		data, index := wholeRun(t, o, batches)
		path := filepath.Join(t.TempDir(), "a.stream")
		for at := headerSize; at <= len(index); at += 389 {
			cutData := append([]byte(nil), data[:len(data)*at/len(index)]...)
			if at%2 == 0 && len(cutData) > 0 {
				cutData[len(cutData)-1] ^= 1 // a block that was not written
			}
			writeBoth(t, path, cutData, index[:at])
			w, mark, err := Resume(path, o)
			if err != nil {
				t.Fatalf("%v, index cut at %d: %v", o.Codec, at, err)
			}
			if err := errors.Join(appendRun(w, batches), w.Close()); err != nil {
				t.Fatalf("%v, index cut at %d, resumed at %+v: %v", o.Codec, at, mark, err)
			}
			gotData, gotIndex := readBoth(t, path)
			if !bytes.Equal(gotData, data) || !bytes.Equal(gotIndex, index) {
				t.Fatalf("%v, index cut at %d, resumed at %+v: other files", o.Codec, at, mark)
			}
			checkSums(t, w, data, index)
		}
	}
}

func checkSums(t *testing.T, w *Writer, data, index []byte) {
	t.Helper()
	a, b := w.Sums()
	if a != sumOf(data) || b != sumOf(index) {
		t.Fatal("the sums are not those of the files")
	}
	if s := w.Stats(); s.Packets != 160 || s.FileBytes > uint64(len(data)+len(index)) {
		t.Fatalf("stats are %+v", s)
	}
}

func sumOf(b []byte) Sum { return Sum{Size: int64(len(b)), SHA256: sha256.Sum256(b)} }

func writeBoth(t *testing.T, path string, data, index []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, data, 0o600), os.WriteFile(path+IndexSuffix, index, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestResumeRefusesAnother: what is appended again must be what it was.
func TestResumeRefusesAnother(t *testing.T) {
	o := Options{Workers: 1}
	data, index := wholeRun(t, o, 10)
	tests := map[string]func(w *Writer) error{
		"another token": func(w *Writer) error {
			return errors.Join(w.AppendRequest(ggmlhooks.RequestBegin{}), w.AppendExecution(&Execution{Exec: 1, Graph: 3, Phase: ggmlhooks.PhaseDecode}))
		},
		"another kind": func(w *Writer) error { return w.Commit() },
		"a loss":       func(w *Writer) error { return w.AppendLoss(Loss{Cause: "pool_full", Packets: 1}) },
	}
	for name, do := range tests {
		path := filepath.Join(t.TempDir(), "a.stream")
		writeBoth(t, path, data, index[:len(index)-300])
		w, mark, err := Resume(path, o)
		if err != nil || mark.Packets == 0 || !w.Repeating() {
			t.Fatal(err, mark)
		}
		if err := do(w); !errors.Is(err, ErrRepeat) {
			t.Errorf("%s: %v", name, err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if got, _ := readBoth(t, path); !bytes.Equal(got, data[:mark.StreamBytes]) {
			t.Errorf("%s: the stream is not what it was", name)
		}
	}
}

// TestResumeComparesValues: the last packets are packed again and compared.
func TestResumeComparesValues(t *testing.T) {
	o := Options{Workers: 1}
	path := filepath.Join(t.TempDir(), "a.stream")
	make := func(w *Writer, value byte) error {
		err := w.Append(&Packet{Name: "a", SrcType: ggmlF32}, []byte{0, 0, value, 60}, nil)
		return errors.Join(err, w.Commit())
	}
	w, err := Create(path, o)
	if err := errors.Join(err, make(w, 0), w.Close()); err != nil {
		t.Fatal(err)
	}
	if w, _, err = Resume(path, o); err != nil {
		t.Fatal(err)
	}
	if err := make(w, 128); !errors.Is(err, ErrRepeat) {
		t.Error(err)
	}
	w.Close()
}

// TestResumeRefusesLosses: what was lost the first time would not be the second time.
func TestResumeRefusesLosses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.stream")
	w, err := Create(path, Options{})
	if err := errors.Join(err, w.AppendLoss(Loss{Cause: "pool_full", Packets: 1}), w.Commit(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Resume(path, Options{}); !errors.Is(err, ErrLossy) {
		t.Error(err)
	}
}
