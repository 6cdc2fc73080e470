package memtrace

// Hot path: 5 ns for a question, 3 ns for a move. Nothing in them is a loop whose length nobody can foresee: a
// branch that is foreseen wrongly costs as much as all of it.

// recency knows how many bytes were touched since others were: their reuse distance, exactly. Each touch has a
// slot, in the order of touches, which holds the bytes that were not touched again since; sums over 8 slots, 64,
// 512 and 4096 make adding up short. A sum is reported when the slots that it is of are taken, all of them.
type recency struct {
	slots []int64
	sums  [slotLevels][]int64
	all   int64 // of all slots
	next  int32 // the next slot
	// New numbers of slots, when they were numbered anew.
	numbers []int32
}

const (
	slotBits   = 3
	slotGroup  = 1 << slotBits
	slotLevels = 4
	minSlots   = 4 << (slotBits * slotLevels)
)

// first has bits where numbers are among the first ones of a group, so many.
var first = func() (masks [slotGroup + 1][slotGroup]int64) {
	for n := range masks {
		for i := range n {
			masks[n][i] = -1
		}
	}
	return masks
}()

// isFull reports that slots must be renumbered before a touch may have one.
func (r *recency) isFull() bool { return int(r.next) == len(r.slots) }

// slot is that of the next touch, to which bytes must come.
func (r *recency) slot() int32 {
	n := r.next
	if r.next++; n&(slotGroup-1) == 0 && n > 0 {
		r.sum(int(n))
	}
	return n
}

// sum returns the sums of what ends before a slot.
func (r *recency) sum(at int) {
	values := r.slots
	for level := range r.sums {
		at >>= slotBits
		v := groupOf(values, (at-1)<<slotBits)
		r.sums[level][at-1] = v[0] + v[1] + v[2] + v[3] + v[4] + v[5] + v[6] + v[7]
		if at&(slotGroup-1) != 0 {
			return
		}
		values = r.sums[level]
	}
}

// addNewest adds bytes to the newest slot.
func (r *recency) addNewest(slot int32, bytes int64) {
	r.slots[slot] += bytes
	r.all += bytes
}

// leave lets bytes go from a slot.
func (r *recency) leave(slot int32, bytes int64) {
	r.subtract(slot, bytes)
	r.all -= bytes
}

// move lets bytes go from a slot to the newest one.
func (r *recency) move(from, to int32, bytes int64) {
	r.subtract(from, bytes)
	r.slots[to] += bytes
}

// subtract takes bytes out of a slot, and out of the sums that it is of: those that are not reported yet do not matter.
func (r *recency) subtract(slot int32, bytes int64) {
	r.slots[slot] -= bytes
	r.sums[0][slot>>slotBits] -= bytes
	r.sums[1][slot>>(2*slotBits)] -= bytes
	r.sums[2][slot>>(3*slotBits)] -= bytes
	r.sums[3][slot>>(4*slotBits)] -= bytes
}

// since is how many bytes are in slots after one: those that are not in it, in those before it of its 8, in the 8
// before these of their 64, and so on.
func (r *recency) since(slot int32) int64 {
	at := int(slot)
	bytes := r.all - masked(groupOf(r.slots, at), &first[at&(slotGroup-1)+1])
	at >>= slotBits
	bytes -= masked(groupOf(r.sums[0], at), &first[at&(slotGroup-1)])
	at >>= slotBits
	bytes -= masked(groupOf(r.sums[1], at), &first[at&(slotGroup-1)])
	at >>= slotBits
	bytes -= masked(groupOf(r.sums[2], at), &first[at&(slotGroup-1)])
	for _, v := range r.sums[3][:at>>slotBits] {
		bytes -= v
	}
	return bytes
}

// groupOf returns the group that a value is in.
func groupOf(values []int64, at int) *[slotGroup]int64 {
	return (*[slotGroup]int64)(values[at&^(slotGroup-1):])
}

// masked adds up values of a group.
func masked(v, m *[slotGroup]int64) int64 {
	return v[0]&m[0] + v[1]&m[1] + v[2]&m[2] + v[3]&m[3] + v[4]&m[4] + v[5]&m[5] + v[6]&m[6] + v[7]&m[7]
}

// renumber leaves out slots that hold nothing, so that there is room for as many touches again. It returns the new
// number of each old slot, until it is called again.
func (r *recency) renumber() []int32 {
	r.numbers = resized(r.numbers, len(r.slots))
	live := int32(0)
	for i, bytes := range r.slots {
		r.numbers[i] = live
		one := int32(0)
		if bytes != 0 {
			one = 1
		}
		live += one
		r.slots[i] = 0
		r.slots[r.numbers[i]] += bytes // it lies before, or is zero
	}
	r.next = live
	size := max(len(r.slots), minSlots)
	for size < 4*int(live) {
		size *= 2
	}
	if size > len(r.slots) {
		r.slots = append(r.slots, make([]int64, size-len(r.slots))...)
	}
	values := r.slots
	for level := range r.sums {
		r.sums[level] = resized(r.sums[level], max(len(values)>>slotBits, slotGroup))
		for i := range len(values) >> slotBits {
			r.sums[level][i] = masked(groupOf(values, i<<slotBits), &first[slotGroup])
		}
		values = r.sums[level]
	}
	return r.numbers
}

// resized is a slice of n values, in the same memory where there is room.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
