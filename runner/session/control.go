//go:build linux

package session

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/runner/session/control"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// errStopped ends the recording because a command asked for it.
var errStopped = errors.New("recording was stopped by a command")

// stopTime is how long a stop waits for the end of a graph that is being captured.
const stopTime = 10 * time.Second

// steering takes commands while a run is live. It is the sink between the reader and the session's, and follows
// which selection each execution goes by. It is for the goroutine that reads the tap.
type steering struct {
	ggmlhooks.Sink // the session's
	run            *run
	others         *recorders
	files          *files
	before         *before // nil: the run is new
	report         *report
	server         *control.Server
	tried          bool // to listen
	log            changeLog
	changes        []rundir.Change

	selections map[uint64]uint32   // of the graphs that may still be executed
	newest     map[uint32]uint64   // graph of each context
	capturing  map[uint64]struct{} // executions that have begun, not ended, and are captured
	shape      *ggmlhooks.Graph    // newest graph with tokens: what names there are
	applied    uint32              // newest selection that an execution went by
	executions uint64
	last       lastExec
	now        control.Status // what the newest selection is
	stopBy     time.Time      // a stop was asked for and happens by then
	wished     collect.Wish   // what the newest selection captures
	signals    chan os.Signal // SIGUSR1 and SIGUSR2; nil: not taken
	levels     levels
	vectors    vectors
}

func newSteering(s *sink, r *report, start collect.Wish) *steering {
	st := &steering{
		Sink: s, run: s.run, others: s.others, files: s.files, before: s.before, report: r,
		selections: map[uint64]uint32{}, newest: map[uint32]uint64{}, capturing: map[uint64]struct{}{},
	}
	st.now = control.Status{State: control.StateStart}
	if start.Off {
		st.now.State = control.StateOff
	}
	st.wished = start
	st.levels.now = s.run.o.Tap.ResourceLevel
	st.vectors.run = s.run
	return st
}

// Graph notes which selection a graph goes by.
func (st *steering) Graph(g *ggmlhooks.Graph) error {
	if old, ok := st.newest[g.Ctx]; ok {
		delete(st.selections, old)
	}
	st.newest[g.Ctx] = g.ID
	st.selections[g.ID] = g.Selection
	if g.Tokens > 0 {
		st.shape = g
	}
	return st.Sink.Graph(g)
}

// Exec notes the first execution of each selection, and that of which a tap command has had its tokens.
func (st *steering) Exec(e *ggmlhooks.Exec) error {
	st.executions++
	if applied := st.vectors.exec(e); applied != nil {
		for i := range applied {
			st.log.append(event{Event: "applied", Steering: &applied[i], FirstExec: e.Number, MonoNS: e.MonoNS,
				UnixNS: e.MonoNS + st.run.unixOffset()})
		}
		// a kill must not take away what tensors were computed by
		if st.run.dir != nil && st.report.counter.halted == nil {
			if err := st.run.dir.WriteJSON(rundir.MetadataName, st.run.beginning()); err != nil {
				return explain(err, st.run.o.Tap)
			}
		}
	}
	if e.Captured {
		st.capturing[e.Number] = struct{}{}
	}
	if number, known := st.selections[e.Graph]; known {
		st.levels.apply(number, func(l resource.Level) { st.others.events.SetLevel(l, e.MonoNS) })
	}
	if number, known := st.selections[e.Graph]; known && number > 0 && len(e.Tokens) > 0 {
		if number > st.applied {
			st.applied = number
			st.first(number, e)
		}
		if number >= st.wished.WindowOf && e.Left != ggmlhooks.NoWindow { // through each change of level since
			st.left(e)
		}
	}
	return st.Sink.Exec(e)
}

// ExecEnd notes that nothing more of an execution is captured.
func (st *steering) ExecEnd(e ggmlhooks.ExecEnd) error {
	delete(st.capturing, e.Number)
	if err := st.Sink.ExecEnd(e); err != nil {
		return err
	}
	if e.Number != st.last.number {
		return nil
	}
	// A tap command has its tokens: the last of their executions has ended.
	if st.last.selection == st.wished.WindowOf {
		st.now.State = control.StateDone
	}
	st.change(st.last.selection).DoneExec = &e.Number
	st.log.append(event{Event: "done", Selection: st.last.selection, DoneExec: e.Number, MonoNS: e.MonoNS,
		UnixNS: e.MonoNS + st.run.unixOffset()})
	st.last = lastExec{}
	return nil
}

// change finds the command that made a selection.
func (st *steering) change(number uint32) *rundir.Change {
	for i := range st.changes {
		if st.changes[i].Selection == number {
			return &st.changes[i]
		}
	}
	return &rundir.Change{}
}

// first notes the first execution of a selection.
func (st *steering) first(number uint32, e *ggmlhooks.Exec) {
	exec := e.Number
	st.change(number).FirstExec = &exec
	if number == st.now.Selection {
		st.now.FirstExec = &exec
	}
	st.log.append(event{Event: "applied", Selection: number, FirstExec: exec, MonoNS: e.MonoNS,
		UnixNS: e.MonoNS + st.run.unixOffset()})
}

// left notes how many tokens a tap command has left. A warm-up that is thrown away gives its tokens back, so it
// ends nothing.
func (st *steering) left(e *ggmlhooks.Exec) {
	left := e.Left
	st.now.Left = &left
	if left == 0 && !e.Provisional && st.now.State == control.StateTap {
		st.last = lastExec{e.Number, st.wished.WindowOf}
	}
}

// lastExec is the execution with which a tap command has its tokens, until that ends.
type lastExec struct {
	number    uint64 // 0: none
	selection uint32
}

// serve answers what clients have asked. It returns errStopped when recording is to end. A run that cannot have a
// socket continues without.
func (st *steering) serve() error {
	if st.server == nil && !st.tried && st.run.dir != nil {
		st.tried = true
		var err error
		if st.server, err = control.Listen(st.run.dir.Path()); err != nil {
			fmt.Fprintf(present.Err, "llamatap: %v; the run continues and takes no commands\n", err)
		}
	}
	if st.server != nil {
		st.server.Serve(st.answer)
	}
	st.obeySignals()
	if !st.stopBy.IsZero() && (len(st.capturing) == 0 || time.Now().After(st.stopBy)) {
		return errStopped
	}
	return nil
}

// close takes the socket away.
func (st *steering) close() {
	if st.signals != nil {
		signal.Stop(st.signals)
	}
	if st.server != nil {
		st.server.Close()
	}
}

func (st *steering) answer(r control.Request) control.Answer {
	if err := st.execute(r); err != nil {
		return control.Answer{Error: err.Error()}
	}
	status := st.status()
	return control.Answer{OK: true, Status: &status}
}

// execute executes a request and records it.
func (st *steering) execute(r control.Request) error {
	if !st.stopBy.IsZero() && r.Command != control.CommandStatus {
		return errors.New("the recording is being stopped: nothing can be changed any more")
	}
	change := rundir.Change{Command: r.Command, Tensors: r.Tensors, Points: r.Points, Layers: r.Layers,
		Tokens: r.Tokens, MonoNS: stream.MonoNS(), UnixNS: time.Now().UnixNano()}
	switch r.Command {
	case control.CommandStatus:
		return nil
	case control.CommandMark:
		return errors.New("this run takes no markers: its phases follow from the model's graphs; markers are for " +
			"llamatap memory record")
	case control.CommandFlush:
		err := st.files.current.stream.Flush()
		if st.others.events != nil {
			err = errors.Join(err, st.others.events.Flush())
		}
		if st.others.requests != nil {
			err = errors.Join(err, st.others.requests.table.Flush())
		}
		if err != nil {
			return fmt.Errorf("flush: %w", explain(err, st.run.o.Tap))
		}
	case control.CommandSteer:
		var err error
		if change.Steering, err = st.vectors.exchange(r); err != nil {
			return err
		}
	case control.CommandLevel, control.CommandEnable, control.CommandDisable:
		var err error
		if change.Selection, change.Level, err = st.relevel(r); err != nil {
			return err
		}
	default:
		wish, state, err := st.wish(r)
		if err != nil {
			return err
		}
		wish.Machine = st.wished.Machine
		if change.Selection, err = st.run.choose(wish); err != nil {
			return err
		}
		wish.WindowOf = change.Selection
		st.wished = wish
		st.now = control.Status{State: state, Selection: change.Selection, Tensors: r.Tensors, Points: r.Points,
			Layers: r.Layers, Tokens: r.Tokens}
		if r.Command == control.CommandStop {
			st.stopBy = time.Now().Add(stopTime)
		}
	}
	st.changes = append(st.changes, change)
	if err := st.log.open(st.run.dir); err != nil {
		return fmt.Errorf("%s is obeyed, and cannot be written down: %w", r.Command, explain(err, st.run.o.Tap))
	}
	st.log.append(event{Event: "command", Command: r.Command, Tensors: r.Tensors, Points: r.Points, Layers: r.Layers,
		Tokens: r.Tokens, Level: change.Level, Selection: change.Selection, Steering: st.vectors.named(change.Steering),
		MonoNS: change.MonoNS, UnixNS: change.UnixNS})
	return nil
}

// wish is what a command wants captured. A tap command's tensors are all that it wants: of every layer that it does
// not leave out, and every token. A share of each, which sampled_slices keeps, stays a share.
func (st *steering) wish(r control.Request) (collect.Wish, control.State, error) {
	tap := st.run.o.Tap
	wish := collect.Wish{Selection: st.before.selection(tap), MapsAlone: tap.AttentionAlone()}
	switch r.Command {
	case control.CommandOn:
		if !tap.Records(config.Activations) {
			wish.Off = true
			return wish, control.StateOff, nil
		}
		return wish, control.StateStart, nil
	case control.CommandTap:
		if tap.Dataset.Dir != "" {
			return wish, "", errors.New("this run writes a dataset, whose rows have the same tensors throughout: " +
				"'llamatap ctl RUN off' and 'on' interrupt it")
		}
	default:
		wish.Off = true
		return wish, control.StateOff, nil
	}
	chosen := ggmlhooks.Selection{Tensors: r.Tensors, Window: r.Tokens, SamplingRate: tap.SamplingRate, Seed: tap.Seed}
	if tap.Granularity == ggmlhooks.SampledSlices {
		chosen.Granularity = tap.Granularity
	}
	for _, name := range r.Points {
		ref, err := config.ParsePoint(name)
		if err != nil {
			return wish, "", err
		}
		chosen.Points = append(chosen.Points, ref)
	}
	if r.Layers != "" {
		var err error
		if chosen.Layers, err = ggmlhooks.ParseLayerSet(r.Layers); err != nil {
			return wish, "", err
		}
	}
	if ref := chosen.OutsideLayers(); ref != nil {
		return wish, "", fmt.Errorf("the layers leave out that of %s: name the point without a layer, "+
			"or leave out the layers", ref)
	}
	return collect.Wish{Selection: chosen}, control.StateTap, checkNames(&chosen, st.shape, st.run)
}

// checkNames refuses tensors, points and layers that the model does not have, as far as a graph has shown it; nil: none
// has.
func checkNames(chosen *ggmlhooks.Selection, g *ggmlhooks.Graph, r *run) error {
	if g == nil {
		return nil
	}
	computed := r.computed(g)
	if last := chosen.Layers.Max(); last >= layers(g) {
		return fmt.Errorf("layer %d is asked for, and the model has layers 0 to %d", last, layers(g)-1)
	}
	if err := checkPoints(chosen, g, computed); err != nil {
		return err
	}
	for _, glob := range chosen.Tensors {
		found := false
		for i := range computed {
			found = found || g.MatchTensor(glob, i)
		}
		if !found {
			return fmt.Errorf("%q matches no node of this model; these names exist: %s", glob,
				globNames(g, computed, anyNode))
		}
	}
	return nil
}

// checkPoints refuses a point that the model has in none of the layers, with the reason.
func checkPoints(chosen *ggmlhooks.Selection, g *ggmlhooks.Graph, computed int) error {
	for _, ref := range chosen.Points {
		selection := ggmlhooks.Selection{Points: []ggmlhooks.PointRef{ref}, Layers: chosen.Layers}
		found, why := false, "it has no such layer"
		for _, site := range g.Points() {
			if selection.WantsPoint(site.Point, site.Layer) {
				found, why = found || site.Node >= 0 && site.Node < computed, cmp.Or(site.Why, why)
			}
		}
		if !found {
			return fmt.Errorf("this model has no %s: %s", ref.Point, why)
		}
	}
	return nil
}

// status is how the run is.
func (st *steering) status() control.Status {
	now := st.now
	now.Level = st.levels.now
	now.Steering, now.Sequences = st.vectors.newest()
	if st.others.kv != nil {
		snapshot := st.others.kv.Snapshot()
		now.KV = &snapshot
	}
	now.Requests = st.others.requests.now()
	if st.others.events != nil {
		now.Energy = resource.Joules(st.others.events.Energy)
	}
	now.Run, now.PID, now.Executions = st.run.path(), st.run.pid, st.executions
	if now.State == control.StateStart {
		now.Tensors = st.run.o.Tap.Tensors
		now.Layers = strings.TrimSpace(st.run.o.Tap.Layers.String())
	}
	now.Pool, now.PoolUsed = st.run.region.Pool()
	now.Goroutines = runtime.NumGoroutine()
	now.Account = st.report.account()
	now.Packets, now.Stored = now.Account.Recorded().Packets, st.files.written().Stored
	now.Lost = now.Account.LostTotal().Packets
	for _, l := range now.Account.Lost {
		if now.Losses == nil {
			now.Losses = map[string]uint64{}
		}
		now.Losses[l.Cause] = l.Packets
	}
	return now
}
