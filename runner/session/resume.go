//go:build linux

package session

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/stream"
)

// ErrRepeat occurs when a resumed program does not do again what was recorded of it.
var ErrRepeat = errors.New("the program does not do what was recorded of it")

// replay wraps the stream of a resumed run. The program begins anew and does all that it did before; what the stream
// holds already is compared and not written again, and from there on everything is written. It is a capture.Stream.
type replay struct {
	*output
	kept    *stream.Kept
	next    func() (stream.Item, bool)
	stop    func()
	ahead   stream.Item              // that is kept and has not come again
	waiting bool                     // ahead is one
	begun   []ggmlhooks.RequestBegin // that come with the next execution
	seen    uint64                   // kept packets that have come again
}

// valuesEvery is how many packets that come again go to one whose values are compared; those of the last so many
// are as well.
const valuesEvery = 64

func newReplay(to *output, kept *stream.Kept) *replay {
	r := &replay{output: to, kept: kept}
	r.next, r.stop = iter.Pull(kept.Items())
	r.advance()
	return r
}

func (r *replay) advance() {
	if r.ahead, r.waiting = r.next(); !r.waiting {
		r.stop()
	}
}

// repeated returns what is done with something that may be kept already: compared, where same says whether it is what
// comes next. It reports whether it was. Where a commit stood depends on time; and so does whether something of a
// warm-up was written.
func (r *replay) repeated(what string, same func(stream.Item) bool) (bool, error) {
	for r.waiting {
		if r.ahead.Err != nil {
			return false, fmt.Errorf("compare %s with what is recorded: %w", what, r.ahead.Err)
		}
		if same(r.ahead) {
			r.advance()
			return true, nil
		}
		if !r.ahead.Commit && !setup(r.ahead) {
			return false,
				fmt.Errorf(
					"%w: it comes with %s, and %s is recorded: give it the model, the text on its standard input and "+
						"the machine that it had, or begin anew", ErrRepeat, what, described(r.ahead))
		}
		r.advance()
	}
	return false, nil
}

func setup(it stream.Item) bool {
	return it.Execution != nil && it.Execution.Phase == ggmlhooks.PhaseSetup || it.Packet != nil &&
		it.Packet.Phase == ggmlhooks.PhaseSetup ||
		it.Resolution != nil
}

func described(it stream.Item) string {
	switch {
	case it.Packet != nil:
		return packetName(it.Packet)
	case it.Execution != nil:
		return executionName(it.Execution)
	}
	return "something else"
}

func packetName(p *stream.Packet) string {
	return fmt.Sprintf("tensor %s of execution %d", p.Name, p.Exec)
}

func executionName(e *stream.Execution) string {
	text := fmt.Sprintf("execution %d of %d tokens", e.Exec, len(e.Rows))
	if len(e.Rows) > 0 {
		text += fmt.Sprintf(", token %d first", e.Rows[0].Token)
	}
	return text
}

// pass passes over a packet that does not come again.
func (r *replay) pass() {
	for r.waiting && (r.ahead.Commit || setup(r.ahead)) {
		r.advance()
	}
	if r.waiting && r.ahead.Packet != nil {
		r.advance()
		r.seen++
	}
}

// Append passes a packet on unless it is kept.
func (r *replay) Append(p *stream.Packet, data []byte, release func()) error {
	there, err := false, error(nil)
	if r.waiting {
		var kept stream.Packet
		there, err = r.repeated(packetName(p), func(it stream.Item) bool {
			k := it.Packet
			if k != nil {
				kept = *k
			}
			return k != nil && k.Name == p.Name && k.Exec == p.Exec && k.Ctx == p.Ctx && k.Block == p.Block &&
				k.Blocks == p.Blocks &&
				k.TokenFirst == p.TokenFirst && k.TokenCount == p.TokenCount && k.NE == p.NE &&
				k.SrcBytes == int64(len(data))
		})
		if there {
			err = r.compare(&kept, p, data)
		}
	}
	if there || err != nil {
		release()
		return err
	}
	return r.output.Append(p, data, release)
}

// compare looks at the values of some of the packets that come again: other numbers would make two halves that do
// not belong together.
func (r *replay) compare(kept, p *stream.Packet, data []byte) error {
	r.seen++
	if r.seen%valuesEvery != 1 && r.seen+valuesEvery <= r.kept.Packets {
		return nil
	}
	same, err := r.kept.SameValues(kept, p, data)
	if err != nil || same {
		return err
	}
	return fmt.Errorf(
		"%w: %s has other values than are recorded; give it the machine, the libraries and the threads that it had, "+
			"or begin anew", ErrRepeat, packetName(p))
}

// AppendExecution passes an execution on, behind the requests that begin with it, unless it is kept.
func (r *replay) AppendExecution(e *stream.Execution) error {
	begun := r.begun
	r.begun = r.begun[:0]
	if r.waiting {
		there, err := r.repeated(executionName(e), func(it stream.Item) bool {
			k := it.Execution
			return k != nil && k.Exec == e.Exec && k.Ctx == e.Ctx && slices.Equal(it.Begun, begun) &&
				slices.EqualFunc(k.Rows, e.Rows, func(a, b ggmlhooks.Row) bool {
					return a.Index == b.Index && a.Token == b.Token && a.Pos == b.Pos && a.Output == b.Output &&
						slices.Equal(a.Seqs, b.Seqs)
				})
		})
		if err != nil {
			return err
		}
		if there {
			for _, b := range begun {
				r.requests[requestKey{b.Ctx, b.Seq}] = b
			}
			return nil
		}
	}
	for _, b := range begun {
		if err := r.output.AppendRequest(b); err != nil {
			return err
		}
	}
	return r.output.AppendExecution(e)
}

// AppendRequest keeps the beginning of a request until the execution comes with which it begins.
func (r *replay) AppendRequest(b ggmlhooks.RequestBegin) error {
	r.begun = append(r.begun, b)
	return nil
}

// AppendResolution passes a resolution on unless it is kept.
func (r *replay) AppendResolution(d stream.Resolution) error {
	if r.waiting {
		there, err := r.repeated("a resolution", func(it stream.Item) bool {
			return it.Resolution != nil &&
				*it.Resolution == d
		})
		if there || err != nil {
			return err
		}
	}
	return r.output.AppendResolution(d)
}

// AppendStateLoad passes the load of a saved state on. What is kept has its own.
func (r *replay) AppendStateLoad(l stream.StateLoad) error {
	if r.waiting {
		return nil
	}
	return r.output.AppendStateLoad(l)
}

// Commit passes a commit on unless it is kept, or stands among what is.
func (r *replay) Commit() error {
	if r.waiting {
		if r.ahead.Commit {
			r.advance()
		}
		return nil
	}
	return r.output.Commit()
}
