package mrm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/store/rundir"
	"golang.org/x/sys/unix"
)

// Run runs the cells of these numbers, nil for all, that have no sealed run yet. A cell that fails does not keep
// the others from being run; a full disk does. Whenever the process is killed, what was sealed is whole, and the
// next call resumes after it.
func (e *Experiment) Run(ctx context.Context, cells []int) (Outcome, error) {
	outcome := Outcome{Classes: map[memory.Class]int{}}
	plan, err := NewPlan(e.Config, ThisMachine(os.DirFS("/"), e.Config.Output.Dir))
	if err == nil {
		err = plan.Check()
	}
	if err != nil {
		return outcome, err
	}
	for _, s := range plan.Sources {
		if err := s.verify(); err != nil {
			return outcome, err
		}
		s.File = nil // what the plan needed is memory that the observer needs not have
	}
	debug.FreeOSMemory()
	r := &conductor{Experiment: e, plan: plan,
		folder: filepath.Join(e.Config.Output.Dir, workFolder, e.Config.Experiment.Name)}
	if r.tap = filepath.Join(filepath.Dir(e.Program), llama.TapLibrary); e.Program == "" {
		e.Program, err = llama.Self()
		if err == nil {
			r.tap, err = llama.Beside(llama.TapLibrary)
		}
		if err != nil {
			return outcome, err
		}
	}
	if err := os.MkdirAll(filepath.Join(r.folder, lockFolder), 0o700); err != nil {
		return outcome, fmt.Errorf("make a folder for what is under way: %w; give another output.dir", err)
	}
	chosen, err := plan.choose(cells)
	if err != nil {
		return outcome, err
	}
	return r.runCells(ctx, chosen, outcome)
}

// choose are the cells of these numbers.
func (p *Plan) choose(numbers []int) ([]*Cell, error) {
	if numbers == nil {
		return p.Cells, nil
	}
	var chosen []*Cell
	for _, n := range numbers {
		if n < 0 || n >= len(p.Cells) {
			return nil, fmt.Errorf("%w: %d; the matrix has cells 0 to %d ('llamatap mrm plan' shows it)", ErrCell, n,
				len(p.Cells)-1)
		}
		chosen = append(chosen, p.Cells[n])
	}
	return chosen, nil
}

// verify makes sure that the file is the one that the configuration names.
func (s *Source) verify() error {
	if s.SHA256 == "" {
		return nil
	}
	file, err := os.Open(s.Path)
	if err != nil {
		return fmt.Errorf("the model: %w", err)
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return fmt.Errorf("the model: %w", err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != s.SHA256 {
		return fmt.Errorf("the model %s has the SHA-256 %s, not that of the configuration; give the right file, or "+
			"correct model.sha256", s.Path, got)
	}
	return nil
}

// lockFolder holds a file per cell, which whoever runs it has locked.
const lockFolder = "locks"

// A conductor runs cells, one after the other.
type conductor struct {
	*Experiment
	plan   *Plan
	folder string // of what is under way
	tap    string // its object, which programs are watched with
	sealed []found
}

// runCells runs the chosen cells.
func (r *conductor) runCells(ctx context.Context, cells []*Cell, outcome Outcome) (Outcome, error) {
	r.sealed = runs(r.Config.Output.Dir)
	journal, err := readJournal(r.Config.Output.Dir, r.Config.Experiment.Name)
	if err != nil {
		return outcome, err
	}
	each, ran := took(journal), []float64{}
	for i, cell := range cells {
		if r.enough() || ctx.Err() != nil {
			outcome.Left = len(cells) - i
			break
		}
		event := Event{Cell: cell, Number: i + 1, Of: len(cells), Steps: cellSteps}
		if len(ran) > 0 {
			each = middle(ran)
		}
		if each == 0 {
			each = r.plan.Needs[cell.Index].Time.Value
		}
		event.Left = time.Duration(each * float64(len(cells)-i) * float64(time.Second))
		err := r.runCell(ctx, cell, event, &outcome, &ran)
		switch {
		case ctx.Err() != nil:
			outcome.Left = len(cells) - i
			return outcome, context.Cause(ctx)
		case r.full(cell, err):
			outcome.Left = len(cells) - i
			return outcome, fmt.Errorf("%w: the disk of %s is full, and %d cells are left; free room and run it "+
				"again: what is sealed stays (%w)",
				ErrNoRoom, r.Config.Output.Dir, outcome.Left, err)
		case errors.Is(err, ErrDamaged), errors.Is(err, memory.ErrVersion):
			return outcome, err
		case err != nil:
			outcome.Failed++
			event.Kind, event.Err = CellFailed, err
			r.report(event)
		}
	}
	if outcome.Failed > 0 {
		return outcome, fmt.Errorf("%d of %d %w, for the reasons above; run it again to try them again",
			outcome.Failed, len(cells), ErrFailed)
	}
	return outcome, nil
}

// full reports whether a cell failed because there is no room: for us, or for the recorder, of which only its words
// are known.
func (r *conductor) full(cell *Cell, err error) bool {
	if err == nil || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return err != nil
	}
	free := freeDisk(r.Config.Output.Dir)
	return free > 0 && float64(free) < leastRoom+r.plan.Needs[cell.Index].Disk.Value
}

// leastRoom is what a recorder needs beside what it leaves.
const leastRoom = 1 << 20

// runCell runs a cell, unless it was sealed before or another process runs it.
func (r *conductor) runCell(ctx context.Context, cell *Cell, event Event, outcome *Outcome, ran *[]float64) error {
	if isDone, err := r.isDone(cell, event, outcome); isDone || err != nil {
		return err
	}
	w, err := r.claimCell(cell)
	if errors.Is(err, rundir.ErrInUse) {
		outcome.Busy++
		event.Kind = CellBusy
		r.report(event)
		return nil
	}
	if err != nil {
		return err
	}
	defer w.release()
	r.sealed = newer(r.Config.Output.Dir, r.sealed) // another process may have sealed it until it was ours
	if isDone, err := r.isDone(cell, event, outcome); isDone || err != nil {
		return err
	}
	if w.left {
		event.Kind = CellRemoved
		r.report(event)
		if err := note(r.folder, cell, entry{Event: "removed"}); err != nil {
			return err
		}
	}
	began := time.Now()
	event.Kind = CellBegun
	r.report(event)
	if err := note(r.folder, cell, entry{Event: "begun"}); err != nil {
		return err
	}
	dir, verdicts, err := w.run(ctx, event)
	if err != nil {
		kind := "failed"
		if ctx.Err() != nil {
			kind = "interrupted"
		}
		return errors.Join(err, w.clear(), note(r.folder, cell, entry{Event: kind, Why: firstLine(err)}))
	}
	event.Kind, event.Dir, event.Class, event.Why, event.Took = CellSealed, dir, verdicts.Class, verdicts.Why(),
		time.Since(began)
	*ran = append(*ran, event.Took.Seconds())
	outcome.Sealed = append(outcome.Sealed, dir)
	outcome.Classes[verdicts.Class]++
	r.report(event)
	return note(r.folder, cell, entry{Event: "sealed", Run: dir, Class: verdicts.Class, TookS: event.Took.Seconds()})
}

// isDone reports whether a cell has a sealed run that is what was sealed.
func (r *conductor) isDone(cell *Cell, event Event, outcome *Outcome) (bool, error) {
	for i := range r.sealed {
		if errors.Is(r.sealed[i].err, memory.ErrVersion) {
			return false, fmt.Errorf("%w; or give another output.dir", r.sealed[i].err)
		}
	}
	run := doneBy(cell, r.Config.Experiment.Name, r.sealed)
	if run == nil || r.Retry && run.meta.Validity.Class == memory.Contaminated {
		return false, nil
	}
	report, err := rundir.Verify(run.dir)
	if err != nil {
		return false, fmt.Errorf("%w: %w; move it away, and its cell is run again", ErrDamaged, err)
	}
	if bad := append(report.Missing, report.Changed...); len(bad) > 0 {
		return false, fmt.Errorf("%w: %s of %s is not what was sealed; move the directory away, and its cell is run "+
			"again", ErrDamaged, bad[0], run.dir)
	}
	outcome.Done++
	event.Kind, event.Dir, event.Class = CellDone, run.dir, run.meta.Validity.Class
	r.report(event)
	return true, nil
}

// work is a cell under way, and the folder that it has to itself meanwhile.
type work struct {
	*conductor
	cell  *Cell
	dir   string
	lock  *os.File
	left  bool // an earlier process left something there
	steps int  // that were reported
}

// claimCell gives a cell its folder. rundir.ErrInUse: another process has it.
func (r *conductor) claimCell(cell *Cell) (*work, error) {
	name := fmt.Sprintf("cell-%06d-%s-r%d", cell.Index, cell.Key, cell.Repetition)
	w := &work{conductor: r, cell: cell, dir: filepath.Join(r.folder, name)}
	var err error
	// Locks stay: one that is removed can be held by one process while another makes it anew.
	if w.lock, err = os.OpenFile(filepath.Join(r.folder, lockFolder, name), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("take the cell: %w", err)
	}
	switch err := unix.Flock(int(w.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
	case nil, unix.ENOLCK, unix.EOPNOTSUPP: // a file system without locks
	case unix.EWOULDBLOCK:
		w.lock.Close()
		return nil, rundir.ErrInUse
	default:
		w.lock.Close()
		return nil, fmt.Errorf("take the cell: %w", err)
	}
	_, err = os.Stat(w.dir)
	w.left = err == nil
	if err := w.clear(); err != nil {
		w.lock.Close()
		return nil, err
	}
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		w.release()
		return nil, fmt.Errorf("take the cell: %w", err)
	}
	return w, nil
}
