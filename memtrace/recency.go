package memtrace

// recency knows how many bytes were touched since others were: their reuse distance, exactly. Each touch has a slot, in the order of touches, which
// holds the bytes that were not touched again since; sums over 32 slots and over 1024 make adding up short.
type recency struct {
	slots, middle, top []int64
	next               int32 // the next slot
}

const (
	slotBits  = 5
	slotGroup = 1 << slotBits
	minSlots  = 1 << 12
)

// isFull tells that slots must be renumbered before a touch may have one.
func (r *recency) isFull() bool { return int(r.next) == len(r.slots) }

// slot is that of the next touch.
func (r *recency) slot() int32 {
	r.next++
	return r.next - 1
}

// add lets bytes come into a slot, or go from it.
func (r *recency) add(slot int32, bytes int64) {
	r.slots[slot] += bytes
	r.middle[slot>>slotBits] += bytes
	r.top[slot>>(2*slotBits)] += bytes
}

// since is how many bytes are in slots behind one.
func (r *recency) since(slot int32) int64 {
	i := int(slot) + 1
	end := min((i+slotGroup-1)&^(slotGroup-1), int(r.next))
	bytes := sumOf(r.slots[i:end])
	i = (end + slotGroup - 1) >> slotBits
	last := (int(r.next) + slotGroup - 1) >> slotBits
	end = min((i+slotGroup-1)&^(slotGroup-1), last)
	bytes += sumOf(r.middle[i:end])
	i = (end + slotGroup - 1) >> slotBits
	return bytes + sumOf(r.top[i:(last+slotGroup-1)>>slotBits])
}

// sumOf adds values up, four at a time.
func sumOf(all []int64) int64 {
	var a, b, c, d int64
	for len(all) >= 4 {
		a, b, c, d = a+all[0], b+all[1], c+all[2], d+all[3]
		all = all[4:]
	}
	for _, v := range all {
		a += v
	}
	return a + b + c + d
}

// renumber leaves out slots that hold nothing, and makes room for as many touches again. It returns the new number of each old slot.
func (r *recency) renumber() []int32 {
	numbers := make([]int32, len(r.slots))
	old := r.slots
	live := 0
	for i, bytes := range old {
		numbers[i] = int32(live)
		if bytes != 0 {
			live++
		}
	}
	size := minSlots
	for size < 4*live {
		size *= 2
	}
	r.slots, r.middle, r.top = make([]int64, size), make([]int64, size>>slotBits), make([]int64, size>>(2*slotBits))
	r.next = int32(live)
	for i, bytes := range old {
		if bytes != 0 {
			r.add(numbers[i], bytes)
		}
	}
	return numbers
}
