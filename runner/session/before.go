//go:build linux

package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/kvcache/track"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// Start is where the program of a resumed run begins.
type Start struct {
	// Tokens is how many tokens of the recording come before. The zero value is the beginning.
	Tokens int64
	// Idle is true if every sequence is empty there, as at the beginning.
	Idle bool
}

// before is what there is of a resumed run, and where its program begins. A nil one is of a new run.
type before struct {
	kept  *stream.Kept
	start Start
	done  bool // what comes before the start was taken in
	// prompt and generated are the tokens of that, which this process does not compute.
	prompt, generated int64
	use               capture.Use // what the recorder made of that
	replay            *replay     // of what is kept; nil until the run is open
}

// caughtUp reports whether the run has come as far as it was, if it was resumed.
func (b *before) caughtUp() bool { return b == nil || b.replay == nil || !b.replay.waiting }

// examine looks at what there is of the resumed run.
func examine(o *Options) (*before, error) {
	if o.Resume == nil {
		return nil, nil
	}
	if err := rundir.Resumable(o.Resume.Run.Dir); err != nil { // before the model is loaded
		return nil, fmt.Errorf("resume %s: %w", o.Resume.Run.Dir, err)
	}
	var mark stream.Mark
	if err := json.Unmarshal(o.Resume.Run.Synced, &mark); err != nil {
		return nil, fmt.Errorf("resume %s: the checkpoint does not say how far it is: %w", o.Resume.Run.Dir, err)
	}
	kept, err := stream.Examine(filepath.Join(o.Resume.Run.Dir, StreamName), &mark)
	if err != nil {
		return nil, err
	}
	b := &before{kept: kept}
	if o.Begin == nil {
		return b, nil
	}
	if b.start, err = o.Begin(kept); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// close gives up what was looked at.
func (b *before) close() {
	if b != nil {
		b.kept.Close()
	}
}

// selection is what the tap is to capture. The tap numbers tokens from where its program begins.
func (b *before) selection(t *config.Tap) ggmlhooks.Selection {
	s := t.Selection()
	if b == nil || b.start.Tokens == 0 || s.Tokens.Kind != ggmlhooks.TokenRange {
		return s
	}
	s.Tokens.First -= b.start.Tokens
	if s.Tokens.End >= 0 {
		s.Tokens.End = max(s.Tokens.End-b.start.Tokens, 0)
	}
	return s
}

// Step is of what the tokens must be a multiple behind which a program may begin, of a run with these settings:
// where they are selected by a step, the tap can count on from some alone.
func Step(t *config.Tap) int64 {
	if rule := t.Selection().Tokens; rule.Kind == ggmlhooks.TokenEvery {
		return rule.Step
	}
	return 1
}

// renumber wraps a sink for the reports of a program that does not begin at the beginning.
func (b *before) renumber(to ggmlhooks.Sink) ggmlhooks.Sink {
	if b == nil || b.start.Tokens == 0 {
		return to
	}
	r := &renumbered{Sink: to, tokens: b.start.Tokens}
	for it := range b.kept.Items() {
		if e := it.Execution; e != nil && !setup(it) {
			if len(e.Rows) > 0 && e.Rows[0].Index >= r.tokens {
				break
			}
			r.lastExec, r.lastGraph = e.Exec, max(r.lastGraph, e.Graph)
		}
	}
	return r
}

// reopen opens the run's directory and makes way for what is recorded anew.
func (b *before) reopen(r *run) (err error) {
	c := r.o.Resume
	if r.dir, err = rundir.Reopen(c.Run.Dir); err != nil {
		return err
	}
	rundir.RemoveStateFolders(filepath.Dir(filepath.Dir(r.dir.Path())))
	if err := putBesideAside(r.dir.Path()); err != nil {
		return err
	}
	// A resume that recorded nothing new has made no checkpoint.
	if m, err := rundir.ReadMetadata(c.Run.Dir); err == nil && m.Resumed != nil {
		c.Metadata.ResumeCount = max(c.Metadata.ResumeCount, m.Resumed.Count)
	}
	r.resumed = &rundir.Resumed{At: r.started.UTC(), Count: c.Metadata.ResumeCount + 1, NotComputed: b.start.Tokens}
	return r.dir.WriteJSON(rundir.MetadataName, r.beginning())
}

// open opens the files of the run, and the stream that compares with what they hold.
func (b *before) open(f *files, to *output) (err error) {
	if err := f.resume(b.kept); err != nil {
		return err
	}
	f.run.resumed.Packets, f.run.resumed.CutPackets = b.kept.Packets, b.kept.Cut.Packets
	b.replay = newReplay(to, b.kept)
	f.reserve, err = newReserve(f.run.dir, reserveFor(f.sealBytes()))
	return err
}

// catchUp takes in what comes before the start: the recorder of tensors gets every execution as if it came again,
// without its tensors, so that it is where it was after them, and so is who joins rows. Other recorders begin at the
// start.
func (b *before) catchUp(recorder *capture.Recorder, joiner *ggmlhooks.RowJoiner) error {
	if b == nil || b.start.Tokens == 0 || b.done {
		return nil
	}
	b.done = true
	c := catcher{to: ggmlhooks.NewAssembler(0, recorder), replay: b.replay, graphs: map[uint64]bool{}}
	c.to.Joiner = joiner
	for it := range b.kept.Items() {
		if c.count == b.start.Tokens && it.Packet == nil && !it.Commit {
			break
		}
		if err := c.replayItem(it); err != nil {
			return err
		}
	}
	if c.count != b.start.Tokens {
		return fmt.Errorf("%w: it begins behind token %d, and %d are recorded up to there", ErrRepeat, b.start.Tokens,
			c.count)
	}
	b.use = recorder.Use()
	b.use.AloneRows, b.use.AloneNS = maps.Clone(b.use.AloneRows), maps.Clone(b.use.AloneNS)
	rows := b.use.Rows
	b.prompt, b.generated = rows[ggmlhooks.PhasePrefill], rows[ggmlhooks.PhaseDecode]
	if b.start.Idle {
		return c.forget(-1)
	}
	return nil
}

// catcher lets the recorder catch up.
type catcher struct {
	to     *ggmlhooks.Assembler
	replay *replay
	count  int64
	call   uint64
	graphs map[uint64]bool
	callOf ggmlhooks.Call
	exec   ggmlhooks.Exec
}

func (c *catcher) replayItem(it stream.Item) error {
	switch {
	case it.Err != nil:
		return it.Err
	case setup(it):
	case it.Packet != nil:
		c.replay.pass()
	case it.Execution != nil:
		for _, b := range it.Begun {
			if b.Cause == ggmlhooks.RequestMemory {
				if err := c.forget(b.Seq); err != nil {
					return err
				}
			}
		}
		return c.replayExecution(it.Execution)
	}
	return nil
}

// forget takes a sequence's cells back, or those of all of them, as the program had done.
func (c *catcher) forget(seq int32) error {
	return c.to.SeqChange(&ggmlhooks.SeqChange{Kind: ggmlhooks.SeqRemove, Seq: seq, First: -1, End: -1})
}

// callBit keeps the numbers of calls that are made up apart from those of the program.
const callBit = 1 << 63

// replayExecution gives the recorder an execution as the tap had reported it, without times: another process computed
// it.
func (c *catcher) replayExecution(e *stream.Execution) error {
	r := c.to
	if !c.graphs[e.Graph] {
		clear(c.graphs) // the recorder keeps the newest
		c.graphs[e.Graph] = true
		if err := r.Graph(&ggmlhooks.Graph{ID: e.Graph, Ctx: e.Ctx, Tokens: len(e.Rows)}); err != nil {
			return err
		}
	}
	c.exec = ggmlhooks.Exec{
		Number: e.Exec, Graph: e.Graph, Ctx: e.Ctx, TokenFirst: -1, Left: ggmlhooks.NoWindow,
		Tokens: c.exec.Tokens[:0], Pos: c.exec.Pos[:0], Outputs: c.exec.Outputs[:0],
	}
	if len(e.Rows) > 0 {
		c.call++
		c.callOf = ggmlhooks.Call{Number: c.call | callBit, Ctx: e.Ctx, Read: true, Rows: c.callOf.Rows[:0]}
		c.exec.Call, c.exec.TokenFirst = c.callOf.Number, e.Rows[0].Index
		for i, row := range e.Rows {
			c.callOf.Rows = append(c.callOf.Rows,
				ggmlhooks.CallRow{Token: row.Token, Pos: row.Pos, Seqs: row.Seqs, Output: row.Output})
			c.exec.Tokens, c.exec.Pos = append(c.exec.Tokens, row.Token), append(c.exec.Pos, row.Pos)
			if row.Output {
				c.exec.Outputs = append(c.exec.Outputs, int32(i))
			}
		}
		if err := r.Call(&c.callOf); err != nil {
			return err
		}
	}
	if err := r.Exec(&c.exec); err != nil {
		return err
	}
	c.count += int64(len(e.Rows))
	return r.ExecEnd(ggmlhooks.ExecEnd{Number: e.Exec})
}

// renumbered gives the reports of a program that begins in the middle the numbers that it would have if it had begun at
// the beginning. Numbers of graphs continue behind those that were there: a program that was not interrupted may have
// had fewer.
type renumbered struct {
	ggmlhooks.Sink
	tokens              int64  // before the start
	lastExec, lastGraph uint64 // the same
	execs, graphs       uint64 // added to the program's numbers; modulo 2⁶⁴
	begun, described    bool   // they are known
	called              bool
	capture             ggmlhooks.Capture
}

// Graph renumbers a description.
func (r *renumbered) Graph(g *ggmlhooks.Graph) error {
	if !r.described {
		r.described, r.graphs = true, r.lastGraph+1-g.ID
	}
	again := *g
	again.ID += r.graphs
	return r.Sink.Graph(&again)
}

// Call notes that the program computes.
func (r *renumbered) Call(c *ggmlhooks.Call) error {
	r.called = true
	return r.Sink.Call(c)
}

// SeqChange leaves out how the program got its memory back.
func (r *renumbered) SeqChange(c *ggmlhooks.SeqChange) error {
	if !r.called {
		return nil
	}
	return r.Sink.SeqChange(c)
}

// Exec renumbers an execution and its tokens.
func (r *renumbered) Exec(e *ggmlhooks.Exec) error {
	if !r.begun {
		r.begun, r.execs = true, r.lastExec+1-e.Number
	}
	again := *e
	again.Number, again.Graph = e.Number+r.execs, e.Graph+r.graphs
	if e.TokenFirst >= 0 {
		again.TokenFirst += r.tokens
	}
	return r.Sink.Exec(&again)
}

// ExecEnd renumbers an execution's end.
func (r *renumbered) ExecEnd(e ggmlhooks.ExecEnd) error {
	e.Number += r.execs
	return r.Sink.ExecEnd(e)
}

// Resolve renumbers a decision.
func (r *renumbered) Resolve(e ggmlhooks.Resolve) error {
	e.Exec += r.execs
	return r.Sink.Resolve(e)
}

// Capture renumbers a captured piece.
func (r *renumbered) Capture(c *ggmlhooks.Capture) error {
	r.capture = *c
	r.capture.Exec, r.capture.Graph = c.Exec+r.execs, c.Graph+r.graphs
	return r.Sink.Capture(&r.capture)
}

// Times renumbers what was timed.
func (r *renumbered) Times(t *ggmlhooks.Times) error {
	again := *t
	again.Exec, again.Graph = t.Exec+r.execs, t.Graph+r.graphs
	return r.Sink.Times(&again)
}

// Sync renumbers what is done.
func (r *renumbered) Sync(e ggmlhooks.Sync) error {
	e.Exec += r.execs
	return r.Sink.Sync(e)
}

// Input renumbers an input.
func (r *renumbered) Input(in *ggmlhooks.Input) error {
	again := *in
	again.Exec, again.Graph = in.Exec+r.execs, in.Graph+r.graphs
	return r.Sink.Input(&again)
}

// A resumed run begins anew, and what is recorded beside its stream is recorded anew with it, from the
// beginning, so that no event is there twice. What there was stays aside until the run has come as far as it was.

// asideFiles calls do with the names of what is recorded beside the stream of a run, there or not, up to the last
// part that is.
func asideFiles(folder string, do func(name string) error) error {
	names := append(slices.Collect(maps.Values(hostFiles)), track.FileName, rundir.WaitsName, rundir.FaultsName)
	for part := 0; ; part++ {
		name := rundir.PartName(rundir.EventsName, part)
		if !exists(filepath.Join(folder, name)) && !exists(filepath.Join(folder, name+stream.OrigSuffix)) {
			break
		}
		names = append(names, name)
	}
	for _, name := range names {
		if err := do(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// putBesideAside makes way for what is recorded anew. What was put aside by a run that was interrupted before it
// had come as far is more.
func putBesideAside(folder string) error {
	return asideFiles(folder, func(path string) error {
		if exists(path + stream.OrigSuffix) {
			return os.Remove(path)
		}
		return os.Rename(path, path+stream.OrigSuffix)
	})
}

// dropAside removes what was put aside.
func dropAside(folder string) error {
	return asideFiles(folder, func(path string) error { return os.Remove(path + stream.OrigSuffix) })
}
