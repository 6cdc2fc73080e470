package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Conductor runs a plan.
type Conductor struct {
	Plan *Plan
	Dir  string // folder for what is recorded meanwhile; it is removed again after each visit
	// Log, if not nil, gets each visit when it has ended, and Tokens a line per token.
	Log    *Log
	Tokens io.Writer
	// Progress is called before each visit with how many of all have ended and what comes.
	Progress func(done, all int, next string)
	// visit measures one item; nil: in a process of this binary.
	visit func(ctx context.Context, item *Item, seed uint64, dir string) (Visit, error)
}

// Run visits what done does not hold yet and returns all visits. An item that fails is left out from then on. When
// ctx ends, what was visited until then is returned with the cause.
func (c *Conductor) Run(ctx context.Context, done []Visit) (visits []Visit, failures []error, err error) {
	if c.visit == nil {
		c.visit = visit
	}
	visited := map[[2]int]bool{}
	for _, v := range done {
		visited[[2]int{v.Item, v.Round}] = true
	}
	visits = done
	failed := map[int]bool{}
	all := len(c.Plan.Items) * c.Plan.Rounds
	ended, first := 0, true
	for round := range c.Plan.Rounds {
		for _, i := range c.Plan.order(round) {
			ended++
			if visited[[2]int{i, round}] || failed[i] {
				continue
			}
			c.Progress(ended-1, all, c.Plan.Items[i].label())
			if !first && c.Plan.CoolDown > 0 {
				select {
				case <-time.After(c.Plan.CoolDown):
				case <-ctx.Done():
				}
			}
			first = false
			v, err := c.visit(ctx, &c.Plan.Items[i], c.Plan.Seed+uint64(round), c.Dir)
			if ctx.Err() != nil {
				return visits, failures, context.Cause(ctx)
			}
			if err != nil {
				failed[i] = true
				failures = append(failures, fmt.Errorf("%s: %w", c.Plan.Items[i].label(), err))
				continue
			}
			v.Item, v.Round = i, round
			if err := c.keep(&v); err != nil {
				return visits, failures, err
			}
			visits = append(visits, v)
		}
	}
	c.Progress(all, all, "")
	return visits, failures, nil
}

// keep writes a visit to the files that there are.
func (c *Conductor) keep(v *Visit) error {
	if c.Tokens != nil {
		lines := json.NewEncoder(c.Tokens)
		for _, row := range tokenRows(c.Plan, v) {
			if err := lines.Encode(row); err != nil {
				return fmt.Errorf("write the rows per token: %w", err)
			}
		}
	}
	for i := range v.Repetitions {
		v.Repetitions[i].Steps = nil // they have a file of their own
	}
	if c.Log == nil {
		return nil
	}
	return c.Log.add(v)
}
