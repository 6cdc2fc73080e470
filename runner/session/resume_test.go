//go:build linux

package session

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/store/stream"
)

// recorded is packet i of a run, and its values.
func recorded(i int) (*stream.Packet, []byte) {
	return &stream.Packet{Name: fmt.Sprintf("l_out-%d", i%5), Exec: uint64(1 + i/5), NE: [4]int64{2, 1, 1, 1}},
		[]byte{byte(i), 0, 1, 60, 0, 0, 2, 60}
}

// openReplay records that many packets and opens them to be resumed.
func openReplay(t *testing.T, packets int) *replay {
	t.Helper()
	path := filepath.Join(t.TempDir(), StreamName)
	w, err := stream.Create(path, stream.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range packets {
		p, data := recorded(i)
		if err := w.Append(p, data, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Commit(), w.Close()); err != nil {
		t.Fatal(err)
	}
	kept, err := stream.Examine(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w, err = kept.Resume(stream.Options{Workers: 1}); err != nil {
		t.Fatal(err)
	}
	r := newReplay(&output{}, kept)
	t.Cleanup(func() { r.stop(); w.Close() })
	return r
}

// TestReplayComparesValues: a run that comes with other numbers is noticed, at its first packet, at its last ones,
// and every so often.
func TestReplayComparesValues(t *testing.T) {
	const packets = 4 * valuesEvery
	for _, other := range []int{0, 1, valuesEvery - 1, valuesEvery, 2 * valuesEvery, packets - valuesEvery - 1,
		packets - valuesEvery, packets - 1} {
		r := openReplay(t, packets)
		compared := other%valuesEvery == 0 || other >= packets-valuesEvery
		for i := range packets {
			p, data := recorded(i)
			if i == other {
				data[3] ^= 1
			}
			released := false
			err := r.Append(p, data, func() { released = true })
			if !released {
				t.Fatalf("packet %d is not released", i)
			}
			if want := compared && i == other; errors.Is(err, ErrRepeat) != want || err != nil && !want {
				t.Fatalf("packet %d of %d, the other one is %d: %v", i, packets, other, err)
			}
			if err != nil {
				break
			}
		}
	}
}
