package ggmlhooks

import "math"

// SeqChangeKind is what a program did to a sequence. The numbers are shared with cgo/tap.
type SeqChangeKind uint8

// The kinds of changes. First and End are positions; below 0 they mean the start and the end.
const (
	SeqRemove  SeqChangeKind = iota // cells of positions First ≤ p < End
	SeqCopy                         // the same, into sequence To
	SeqKeep                         // every other sequence was removed
	SeqAdd                          // Value was added to positions
	SeqDivide                       // positions were divided by Value
	SeqRestore                      // its state was set; Value is llama.h's flags
	SeqSampler                      // a sampler was set for it (Value 1), or none
)

// SeqChange is one change of a context's sequences.
type SeqChange struct {
	Ctx        uint32
	MonoNS     int64
	Kind       SeqChangeKind
	Seq        int32 // -1: every one
	To         int32
	First, End int32
	Value      int32
	// Rejected is how many tokens of a draft it takes back, which the model had computed; the [RowJoiner] finds it.
	Rejected int32
}

// sequence is what is known of one sequence.
type sequence struct {
	request   int32
	sampler   bool // its sampler was set since its last row
	cut       bool // cells were removed since its last row
	generated bool // the request has tokens that were generated
	encoded   bool // its last row was an encoder's
	output    bool // its last row was an output row
	last      int32
	// tail is the prompt's last token, if it was an output token, and what was generated after it, as far as it is in
	// the memory.
	tail      []place
	generates int    // of tail, the first that was generated
	redo      *place // the first of tail that was removed since the sequence's last row

	prompt int32     // where the request's prompt ends, as far as it was computed
	target *sequence // that of the model for which this one's drafts
}

type place struct{ pos, token int32 }

// maxTail bounds what is remembered of generated tokens: far more than a program drafts ahead.
const maxTail = 512

const (
	noPos      = math.MinInt32 // of a sequence without cells
	unknownPos = math.MaxInt32 // of a sequence with an unknown number of cells
)

func newSequence() *sequence {
	return &sequence{request: RequestUnknown, last: noPos, prompt: unknownPos}
}

// remove takes cells out. What follows them stays, and is usually moved: then the sequence continues, as after a
// context shift. Removing the end of what was generated is how drafts are rejected; after more was removed, a
// prompt comes. It returns how many tokens of a draft these were.
func (s *sequence) remove(first, end int32) (rejected int) {
	if s.prompt != unknownPos && first <= s.prompt && (end < 0 || s.prompt < end) {
		s.prompt = max(first, 0) - 1
	}
	if first > s.last || end >= 0 && end <= s.last {
		return 0
	}
	s.cut, s.last = true, max(first, 0)-1
	for i, p := range s.tail {
		if p.pos == first {
			if i >= s.generates && !s.sampler {
				rejected = len(s.tail) - i
			}
			s.redo, s.tail, s.output = &place{p.pos, p.token}, s.tail[:i], s.output && i >= s.generates
			return rejected
		}
	}
	s.output, s.redo, s.tail = false, nil, s.tail[:0]
	return 0
}

// redone reports whether several rows stand where the first of them stood before: a draft model that follows its
// target.
func (s *sequence) redone(token, pos int32, rows int) bool {
	return rows > 1 && s.redo != nil && *s.redo == place{pos, token}
}

// move changes positions.
func (s *sequence) move(c *SeqChange) {
	moved := func(pos int32) int32 {
		switch {
		case pos < c.First || c.End >= 0 && pos >= c.End:
			return pos
		case c.Kind == SeqAdd:
			return pos + c.Value
		}
		return pos / max(c.Value, 1)
	}
	if s.last != unknownPos {
		s.last = moved(s.last)
	}
	if s.prompt != unknownPos {
		s.prompt = moved(s.prompt)
	}
	for i := range s.tail {
		s.tail[i].pos = moved(s.tail[i].pos)
	}
}

// restore puts a state of unknown length in the place of what was there.
func (s *sequence) restore() {
	s.cut, s.output, s.last, s.redo, s.tail = true, false, unknownPos, nil, s.tail[:0]
}

// copyOf makes the sequence continue where another one is.
func (s *sequence) copyOf(from *sequence) {
	s.cut, s.output, s.last, s.redo, s.prompt = true, from.output, from.last, nil, from.prompt
	s.tail, s.generates = append(s.tail[:0], from.tail...), from.generates
}

// position is where a row stands: as the graph has it, else as the program wrote it, else where llama.h says that
// it comes, behind the sequence's last.
func (s *sequence) position(row *CallRow, pos int32) int32 {
	switch {
	case pos != PosAuto:
		return pos
	case row.Pos != PosAuto:
		return row.Pos
	case s.last == unknownPos:
		return PosAuto
	}
	return max(s.last, -1) + 1
}

// begins reports whether a row begins a request.
func (s *sequence) begins(now *turn, pos int32, encoder bool) RequestCause {
	prompt := now.phase == PhasePrefill && !now.redone && (encoder || !s.encoded)
	switch {
	case s.request == RequestUnknown:
		return RequestFirst
	case s.sampler:
		return RequestSampler
	case s.target != nil:
		return RequestNone
	case prompt && (s.cut || pos == 0 && s.last > 0):
		return RequestMemory
	case prompt && s.generated:
		return RequestPrompt
	}
	return RequestNone
}

// note takes a row in.
func (s *sequence) note(row *CallRow, pos int32, phase Phase, encoder bool) {
	s.sampler, s.cut, s.redo = false, false, nil
	s.encoded, s.output, s.last = encoder, row.Output, pos
	if phase == PhasePrefill {
		s.prompt = pos
	}
	switch {
	case phase == PhaseDecode:
		s.generated = true
	case row.Output:
		s.tail, s.generates = s.tail[:0], 1
	default:
		s.tail, s.generates = s.tail[:0], 0
		return
	}
	if len(s.tail) == maxTail {
		s.tail, s.generates = s.tail[:copy(s.tail, s.tail[maxTail/2:])], 0
	}
	s.tail = append(s.tail, place{pos, row.Token})
}

// turn is what one sequence brings in a call.
type turn struct {
	rows, outputs int
	phase         Phase // of all its rows, once the first was seen
	redone        bool
}

// sequenceTracker finds for each token row what it was for and to which request of its sequence it belongs. llama.h
// knows neither, so both are inferred, from what the program does to its sequences and from which results it asks for.
//
// A token is one that was generated if the sequence's token before it was an output token and the program has
// looked at results since then (else nobody could have chosen it), it is not the sequence's first, and either it
// comes alone, or with others that all are output tokens after a sampler accepted one: a draft that is verified; or
// the same tokens had been generated there before: a draft model that follows.
//
// A request begins when the program sets the sequence's sampler; where it never does, with a prompt after generated
// tokens or after cells of the sequence were removed.
//
// A draft model's sequence follows its target's, where that has samplers: its prompt ends where the target's does.
type sequenceTracker struct {
	seqs          map[int32]*sequence
	turns         map[int32]*turn
	read, accepts bool
	encoder       bool
}

// Forget makes the tracker new: what the context did was set-up.
func (t *sequenceTracker) Forget() { clear(t.seqs) }

func (t *sequenceTracker) sequence(number int32) *sequence {
	if t.seqs == nil {
		t.seqs, t.turns = map[int32]*sequence{}, map[int32]*turn{}
	}
	s := t.seqs[number]
	if s == nil {
		s = newSequence()
		t.seqs[number] = s
	}
	return s
}

// Reset starts a new call of the context.
func (t *sequenceTracker) Reset(c *Call) {
	clear(t.turns)
	t.read, t.accepts, t.encoder = c.Read || c.Accepts, c.Accepts, c.Kind == CallEncode
	for i := range c.Rows {
		row := &c.Rows[i]
		t.sequence(row.Seqs[0])
		now := t.turns[row.Seqs[0]]
		if now == nil {
			now = &turn{}
			t.turns[row.Seqs[0]] = now
		}
		now.rows++
		if row.Output {
			now.outputs++
		}
	}
}

// change takes in what the program did to sequences, and returns how many tokens of drafts it took back.
func (t *sequenceTracker) change(c *SeqChange) (rejected int) {
	switch c.Kind {
	case SeqSampler:
		s := t.sequence(c.Seq)
		s.sampler, s.output, s.prompt, s.target = true, false, unknownPos, nil
		return 0
	case SeqCopy:
		if from := t.seqs[c.Seq]; from != nil && c.To != c.Seq {
			t.sequence(c.To).copyOf(from)
		}
		return 0
	}
	for number, s := range t.seqs {
		if (c.Seq == -1 || c.Seq == number) == (c.Kind == SeqKeep) {
			continue
		}
		switch c.Kind {
		case SeqRemove, SeqKeep:
			rejected += s.remove(c.First, c.End)
		case SeqAdd, SeqDivide:
			s.move(c)
		case SeqRestore:
			const partial = 1 // llama.h: a checkpoint of what cannot be cut back otherwise
			if c.Value&partial == 0 {
				s.restore()
			}
		}
	}
	return rejected
}

// addRow adds a row of the call that the graph has at pos (PosAuto where it has no positions). It returns the row
// with position, sequences, phase and request, and appends the requests that begin with it to begun.
func (t *sequenceTracker) addRow(begun []RequestBegin, row *CallRow, pos int32) (Row, []RequestBegin) {
	first, now := t.seqs[row.Seqs[0]], t.turns[row.Seqs[0]]
	pos = first.position(row, pos)
	switch target := first.target; {
	case target != nil && pos > target.prompt:
		now.phase = PhaseDecode
	case target != nil:
		now.phase = PhasePrefill
	case now.phase == PhaseUnknown:
		now.phase = PhasePrefill
		now.redone = first.redone(row.Token, pos, now.rows)
		if t.chosen(first, now, pos) {
			now.phase = PhaseDecode
		}
	}
	for _, number := range row.Seqs {
		s := t.sequence(number)
		if cause := s.begins(now, pos, t.encoder); cause != RequestNone {
			s.request, s.generated = s.request+1, false
			begun = append(begun, RequestBegin{Seq: number, Number: s.request, Cause: cause})
		}
		s.note(row, pos, now.phase, t.encoder)
	}
	return Row{Pos: pos, Seqs: row.Seqs, Phase: now.phase, Request: first.request}, begun
}

// chosen reports whether the rows that a sequence brings, of which this is the first, were generated.
func (t *sequenceTracker) chosen(s *sequence, now *turn, pos int32) bool {
	return t.read && pos > 0 && s.output && (now.rows == 1 || t.accepts && now.outputs == now.rows || now.redone)
}
