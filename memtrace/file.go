package memtrace

// DoubtsKey is the key of the table's metadata under which Doubts stand, as JSON.
const DoubtsKey = "llamatap_regions"

// Doubts count what was executed, and what of it did not fit into a map.
type Doubts struct {
	Executions int64 `json:"executions"` // graphs that were computed
	Failed     int64 `json:"failed"`     // of these, those that failed: what they touched is not known, and not counted
	// Unplaced is how often an op of a graph touched a tensor of which it is not known where it lies, or whose type
	// is not known.
	Unplaced int64 `json:"unplaced"`
	// Overlaps is how many tensors were said to lie half in another one.
	Overlaps int64 `json:"overlaps"`
}
