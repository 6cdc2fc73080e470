//go:build linux

package session

import (
	"errors"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// output is where the recorder's packets and tokens go: the segment that is written now.
type output struct {
	files    *files
	requests map[requestKey]ggmlhooks.RequestBegin // newest of every sequence
}

// Append passes a packet on, if the disk may take it.
func (o *output) Append(p *stream.Packet, data []byte, release func()) error {
	g := o.files.current
	if g.live != nil {
		defer release()
		return g.live.append(p, data)
	}
	raw := int64(len(data))
	if codec.DTypeOf(p.SrcType) == codec.F32 {
		raw = raw / 4 * g.elementBytes
	}
	if err := o.files.room.reserve(packetBytes(raw, 1, int64(len(p.Name)))); err != nil {
		release()
		return err
	}
	if err := g.stream.Append(p, data, release); err != nil {
		return err
	}
	g.appended.packets++
	g.appended.source += int64(len(data))
	g.appended.raw += raw
	g.appended.names += int64(len(p.Name))
	return nil
}

// AppendExecution passes an execution on.
func (o *output) AppendExecution(e *stream.Execution) error {
	if o.files.live != nil {
		if err := o.files.live.Execution(e); err != nil {
			return err
		}
	}
	o.files.current.appended.rows += int64(len(e.Rows)) + 1
	if err := o.files.room.reserve((int64(len(e.Rows)) + 1) * (rowBytes + tokenBytes)); err != nil {
		return err
	}
	if err := o.texts(e); err != nil {
		return err
	}
	return o.files.current.stream.AppendExecution(e)
}

// texts records what the tokens of an execution read as, each the first time that it comes in a stream.
func (o *output) texts(e *stream.Execution) error {
	vocab, g := o.files.run.speller.vocabs[e.Ctx], o.files.current
	if vocab == nil || o.files.run.speller.mute {
		return nil
	}
	for i := range e.Rows {
		token := e.Rows[i].Token
		if token < 0 || token > maxVocab || !g.spelled.add(e.Ctx, token) {
			continue
		}
		if err := g.stream.AppendText(stream.Text{Ctx: e.Ctx, Token: token, Piece: vocab.Piece(token)}); err != nil {
			return err
		}
	}
	return nil
}

// maxVocab bounds the number of a token whose text is recorded, and so the size of a tokenSet.
const maxVocab = 1 << 24

// tokenSet is a set of the tokens of each context: a bit for each.
type tokenSet map[uint32][]uint64

// add adds a token, and reports whether it is new.
func (s tokenSet) add(ctx uint32, token int32) bool {
	word, bit := int(token/64), uint64(1)<<(token%64)
	bits := s[ctx]
	if word >= len(bits) {
		bits = append(bits, make([]uint64, word+1-len(bits))...)
		s[ctx] = bits
	}
	if bits[word]&bit != 0 {
		return false
	}
	bits[word] |= bit
	return true
}

// tokenBytes is the most that a token of ordinary length takes in the tokens file and its spool.
const tokenBytes = 512

// AppendRequest passes the beginning of a request on, and keeps it for the segments that follow.
func (o *output) AppendRequest(b ggmlhooks.RequestBegin) error {
	o.requests[requestKey{b.Ctx, b.Seq}] = b
	o.files.current.appended.rows++
	return o.files.current.stream.AppendRequest(b)
}

// repeatRequests passes the requests that are continuing to a segment that begins.
func (o *output) repeatRequests(g *segment) error {
	for _, b := range o.requests {
		if err := g.stream.AppendRequest(b); err != nil {
			return err
		}
	}
	return nil
}

// requestKey names a sequence.
type requestKey struct {
	ctx uint32
	seq int32
}

// AppendResolution passes a resolution on.
func (o *output) AppendResolution(r stream.Resolution) error {
	if o.files.live != nil && !o.files.live.Retract(r.FirstExec, r.LastExec) {
		return errors.New("--tap-dataset: rows of a batch that failed, or of a warm-up that was taken for the run, " +
			"cannot be taken out of the shards: give --no-warmup, and see above whether llama.cpp reports a failure")
	}
	return o.files.current.stream.AppendResolution(r)
}

// AppendStateLoad passes the load of a saved state on.
func (o *output) AppendStateLoad(l stream.StateLoad) error {
	return o.files.current.stream.AppendStateLoad(l)
}

// Commit passes a commit on.
func (o *output) Commit() error { return o.files.current.stream.Commit() }

// tokenOutput writes token rows into activations_tokens.json.
type tokenOutput struct {
	files       *files
	checkpoints *checkpoints
	before      *before
}

// Append adds a token, with the text that the vocabulary gives it.
func (o tokenOutput) Append(ctx uint32, row *ggmlhooks.Row) error {
	o.files.current.note(row.Index)
	record := o.files.run.speller.record(ctx, row)
	o.checkpoints.note(record, o.before.caughtUp())
	return o.files.current.tokens.Append(record)
}

// speller makes the records of tokens.
type speller struct {
	vocabs map[uint32]*gguf.Vocab // by context
	mute   bool                   // no text
}

// text returns the text of a token, where the run may hold it.
func (s speller) text(ctx uint32, token int32) (string, bool) {
	vocab := s.vocabs[ctx]
	if vocab == nil || s.mute || token < 0 {
		return "", false
	}
	return string(vocab.Piece(token)), true
}

// record is a token as the file shows it.
func (s speller) record(ctx uint32, row *ggmlhooks.Row) rundir.TokenRecord {
	record := rundir.TokenRecord{Index: row.Index, ID: row.Token, Phase: rundir.Phase(row.Phase.String()), Pos: row.Pos,
		Ctx: ctx}
	if vocab := s.vocabs[ctx]; vocab != nil && !s.mute {
		record.SetPiece(vocab.Piece(row.Token))
	}
	record.SetSeqs(row.Seqs)
	if row.Request != ggmlhooks.RequestUnknown {
		record.Request = &row.Request
	}
	return record
}
