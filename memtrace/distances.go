package memtrace

// Distances are exact reuse distances of numbered items, each touched as a whole. The zero value is ready.
type Distances struct {
	recency
	at []int32 // by item: 1 + the slot of its last touch; 0: never touched
}

// Touch touches an item of some bytes (> 0, the same at each touch). It returns how many bytes of other items were
// touched since the item was: -1 where this is its first touch.
func (d *Distances) Touch(item int, bytes int64) int64 {
	for item >= len(d.at) {
		d.at = append(d.at, 0)
	}
	if d.isFull() {
		d.compact()
	}
	before, slot := d.at[item], d.slot()
	d.at[item] = slot + 1
	if before == 0 {
		d.addNewest(slot, bytes)
		return -1
	}
	distance := d.since(before - 1)
	d.move(before-1, slot, bytes)
	return distance
}

// compact gives items new slots, without those that hold nothing.
func (d *Distances) compact() {
	numbers := d.renumber()
	for i, at := range d.at {
		if at > 0 {
			d.at[i] = numbers[at-1] + 1
		}
	}
}
