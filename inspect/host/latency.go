package host

import "math/bits"

// slots is how many slots a latency can be in.
const slots = 64

// Latency counts requests by the slot of their latency. Slot s holds 2^(s-1) ≤ µs < 2^s, slot 0 what took less than
// 1 µs. It is as long as its last slot needs.
type Latency []uint64

// slotLow is the least latency of a slot in µs.
func slotLow(slot int) uint64 {
	if slot == 0 {
		return 0
	}
	return 1 << (slot - 1)
}

// slotHigh is the largest latency of a slot in whole µs.
func slotHigh(slot int) uint64 { return 1<<slot - 1 }

// add counts n requests in a slot.
func (l *Latency) add(slot int, n uint64) {
	for len(*l) <= slot {
		*l = append(*l, 0)
	}
	(*l)[slot] += n
}

// merge adds what another one counted.
func (l *Latency) merge(from Latency) {
	for slot, n := range from {
		if n > 0 {
			l.add(slot, n)
		}
	}
}

// Total is how many requests were counted.
func (l Latency) Total() (n uint64) {
	for _, count := range l {
		n += count
	}
	return n
}

// Percentile is the slot that a share of the requests does not pass: the first one up to which there are
// total·p/100 or more. ok is false where there is no request.
func (l Latency) Percentile(p float64) (slot int, ok bool) {
	need, seen := float64(l.Total())*p/100, uint64(0)
	for slot, n := range l {
		if seen += n; n > 0 && float64(seen) >= need {
			return slot, true
		}
	}
	return 0, false
}

// percentiles are those of the requests; none where there is no request.
func (l Latency) percentiles(percents []float64) (all []Percentile) {
	for _, p := range percents {
		if slot, ok := l.Percentile(p); ok {
			all = append(all, Percentile{p, slotHigh(slot)})
		}
	}
	return all
}

// Mean is the mean latency in µs, each request taken at the middle of its slot.
func (l Latency) Mean() (us float64, ok bool) {
	total := l.Total()
	if total == 0 {
		return 0, false
	}
	for slot, n := range l {
		us += (float64(slotLow(slot)) + float64(slotHigh(slot))) / 2 * float64(n)
	}
	return us / float64(total), true
}

// slotFrom finds the slot that has these bounds, as they are right or as STRAP-LLM writes them, twice as high.
func slotFrom(low, high float64, strap bool) (slot int, ok bool) {
	if low < 0 || low >= 1<<62 || low != float64(uint64(low)) || bits.OnesCount64(uint64(low)) > 1 {
		return 0, false
	}
	slot = bits.Len64(uint64(low))
	if high != float64(slotHigh(slot)) && !(strap && low == 0 && high == 1) {
		return 0, false
	}
	if strap && slot > 0 {
		slot--
	}
	return slot, true
}
