package memtrace

import (
	"math/rand/v2"
	"testing"
)

// TestRecencyAgainstSums compares reuse distances with sums over everything that was touched since, beyond the
// number of slots, so that they are numbered anew several times, with few and with many things alive.
func TestRecencyAgainstSums(t *testing.T) {
	for _, things := range []int{3, 40, minSlots / 3} {
		r := rand.New(rand.NewPCG(uint64(things), 11))
		var all recency
		slots, touched, bytes := make([]int32, things), make([]int64, things), make([]int64, things)
		renumbered := 0
		for step := int64(1); step < 4*minSlots; step++ {
			if all.isFull() {
				renumbered++
				numbers := all.renumber()
				for i := range slots {
					if bytes[i] > 0 {
						slots[i] = numbers[slots[i]]
					}
				}
			}
			one := r.IntN(things)
			// in turn, which is fast to check: nobody was touched since but those before
			if things > 1000 && step%97 != 0 {
				one = int(step) % things
			} else if bytes[one] > 0 {
				want := int64(0)
				for i := range touched {
					if touched[i] > touched[one] {
						want += bytes[i]
					}
				}
				if got := all.since(slots[one]); got != want {
					t.Fatalf("%d things, step %d: %d bytes since, want %d", things, step, got, want)
				}
			}
			slot := all.slot()
			switch n := 1 + r.Int64N(1000); {
			case bytes[one] == 0:
				all.addNewest(slot, n)
				bytes[one] = n
			case r.IntN(20) == 0: // it ends, and another one comes
				all.leave(slots[one], bytes[one])
				all.addNewest(slot, n)
				bytes[one] = n
			default:
				all.move(slots[one], slot, bytes[one])
			}
			slots[one], touched[one] = slot, step
		}
		if renumbered < 3 {
			t.Errorf("%d things: slots were numbered anew %d times", things, renumbered)
		}
	}
}
