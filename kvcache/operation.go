package kvcache

// Action is what happened to cells. The names are those of resource events.
type Action uint8

// The actions.
const (
	Allocate Action = iota // free cells were written, or a state was copied or loaded into them
	Update                 // cells in use were written again, moved to other positions, or given to a further sequence
	Evict                  // cells became free
)

var actions = [...]string{"allocate", "update", "evict"}

// String returns the action's name as written in files.
func (a Action) String() string { return actions[a] }

// Change is what one call or execution did to cells of one sequence.
type Change struct {
	Action           Action
	Reason           Reason // of an eviction, or Loaded
	Seq              int32  // -1 = unknown
	PosFirst, PosEnd int32  // PosFirst ≤ position < PosEnd, the new ones where they were moved; PosUnknown
	Cells            int
	Written          int // of them, those whose keys or values the execution wrote
}

// Operation is a Change with what it was to each layer.
type Operation struct {
	Change
	Ctx    uint32
	Cache  Kind
	MonoNS int64
	Exec   uint64 // execution that did it; 0: the program
	// Layers are the bytes of the cells in each layer, exactly. They are borrowed until the call that hands them
	// over returns.
	Layers []LayerBytes
	// Reused and Needed are cells of the sequence's request: those that its prompt found, and all that its prompt
	// takes so far. 0 of 0 where no request is known.
	Reused, Needed int64
	// AllReused and AllNeeded are those of all prompts of the context so far, but for requests of which it is not
	// known.
	AllReused, AllNeeded int64
}

// LayerBytes are bytes of one layer: of keys or the convolution's state, and of values or the recurrence's state.
type LayerBytes struct {
	Layer              int32
	K, V               int64 // that the cells hold
	KWritten, VWritten int64 // that the execution wrote: a shift of positions rewrites keys alone
}

// changes gathers what happened to cells.
type changes struct{ noted []Change }

// note adds one cell to the changes, which are gathered by what happened to which sequence, and returns the change.
func (c *changes) note(action Action, reason Reason, seq, pos int32) *Change {
	for i := len(c.noted) - 1; i >= 0; i-- {
		if was := &c.noted[i]; was.Action == action && was.Reason == reason && was.Seq == seq {
			was.Cells++
			widen(&was.PosFirst, &was.PosEnd, pos)
			return was
		}
	}
	added := Change{Action: action, Reason: reason, Seq: seq, PosFirst: PosUnknown, PosEnd: PosUnknown, Cells: 1}
	widen(&added.PosFirst, &added.PosEnd, pos)
	c.noted = append(c.noted, added)
	return &c.noted[len(c.noted)-1]
}

// TakeChanges returns what happened since it was called last. The slice is valid until cells change again.
func (c *changes) TakeChanges() []Change {
	taken := c.noted
	c.noted = c.noted[:0]
	return taken
}
