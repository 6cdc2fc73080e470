package ggmlhooks

import (
	"errors"
	"fmt"
)

// Hot path: no copy of a tensor and no allocation in steady state.

// SlotHold hands tensors to their recorder. Those of undecided executions it holds back in the slots of the tap's pool:
// a pool that is full of them would hold the model up forever.
type SlotHold struct {
	// Bound is the most bytes of slots that are held back; beyond it the executions are started. 0 = no bound.
	Bound int64
	Size  int64 // of a slot, in bytes; 0: tensors take what they have

	to      Tensors // nil: nobody wants them
	held    int64   // bytes of slots
	decided bool    // something was, or was settled, since the last commit
}

// full reports whether more is held back than may be.
func (t *SlotHold) full() bool { return t.Bound != 0 && t.held > t.Bound }

// start begins an execution with the tensors that were held back.
func (t *SlotHold) start(x *Execution) error {
	if t.to == nil {
		return nil
	}
	x.started = true
	return errors.Join(t.to.Start(x), t.handOn(x))
}

// passOrHold passes a tensor to the recorders, or holds it back.
func (t *SlotHold) passOrHold(x *Execution, c *Capture) error {
	switch {
	case x == nil:
		c.Release()
		return fmt.Errorf("%w: a tensor of execution %d, which is not open", ErrDesync, c.Exec)
	case !x.Graph.captures(c.Node):
		c.Release()
		return fmt.Errorf("%w: a tensor of node %d of graph %d, which is not captured", ErrDesync, c.Node, x.Graph.ID)
	case x.started || !x.Undecided:
		return t.to.Tensor(x, c)
	}
	x.held = append(x.held, *c)
	t.held += t.takes(c)
	return nil
}

// takes is how many bytes of slots a tensor takes: whole slots, so that when too much is held does not depend on how
// fast anybody is.
func (t *SlotHold) takes(c *Capture) int64 {
	slot := max(t.Size, 1)
	return (int64(len(c.Data)) + slot - 1) / slot * slot
}

// handOn hands the tensors that were held back to their recorder.
func (t *SlotHold) handOn(x *Execution) (first error) {
	for i := range x.held {
		c := &x.held[i]
		t.held -= t.takes(c)
		if err := t.to.Tensor(x, c); err != nil && first == nil {
			first = err
		}
	}
	clear(x.held)
	x.held = x.held[:0]
	return first
}

func (t *SlotHold) settle(x *Execution) error {
	if t.to == nil {
		return nil
	}
	t.decided = true
	return errors.Join(t.handOn(x), t.to.Settle(x))
}

func (t *SlotHold) commit(before int64) error {
	if t.to == nil {
		return nil
	}
	t.decided = false
	return t.to.Commit(before)
}
