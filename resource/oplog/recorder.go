package oplog

import (
	"cmp"
	"fmt"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// Recorder writes resource events. It is for one goroutine; Stats may be called from others.
type Recorder struct {
	// Energy is what devices used in each phase, in the windows that are divided: Sampled and Close set it.
	Energy []resource.EnergyUse

	w       *writer
	now     func() int64
	plans   ggmlhooks.Plans[*plan]
	ctxs    contexts
	x       execution // that is recorded, used again
	memory  *memory
	steps   steps
	tokens  tokens
	routing routing
	compute compute
	cells   cells
	devices devices
	*running
	rejections
	totals totals
	ended  bool
}

// context is what is known of a llama_context.
type context struct {
	phase   ggmlhooks.Phase
	last    map[int32]lastToken // by sequence
	price   int64               // of looking, as last measured
	tensors map[tensorKey]bool
}

// NewRecorder makes the first file and begins the session in it.
func NewRecorder(o Options) (*Recorder, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	w, err := newWriter(&o)
	if err != nil {
		return nil, err
	}
	begun := &running{map[uint64]begun{}}
	m := &memory{writer: w, buffers: map[uint64]*buffer{}, weights: map[ggmlhooks.Place]bool{}}
	r := &Recorder{
		w: w, now: o.Now, ctxs: contexts{}, memory: m, steps: steps{w, m},
		tokens: tokens{writer: w, spell: o.Text}, routing: routing{writer: w},
		compute: compute{w, m.device, o.Roofline, o.Pressure}, devices: devices{writer: w, take: o.Devices,
			running: begun}, running: begun, rejections: rejections{},
		cells: cells{w, map[cacheID]string{}, map[cacheLayer]string{}},
		totals: totals{writer: w, start: cmp.Or(o.StartNS, o.Now()),
			phases: map[ggmlhooks.Phase]*resource.PhaseTotals{}},
	}
	r.totals.open(&o)
	return r, nil
}

// contexts are those that were used so far.
type contexts map[uint32]*context

func (all contexts) findOrAdd(number uint32) *context {
	c := all[number]
	if c == nil {
		c = &context{last: map[int32]lastToken{}}
		all[number] = c
	}
	return c
}

// SetLevel changes what is recorded of executions that begin from now on. resource.Off records nothing more; totals
// are still counted.
func (r *Recorder) SetLevel(level resource.Level, mono int64) {
	if level == r.Level() {
		return
	}
	r.memory.settle()
	w := r.w
	w.noteTime(mono)
	w.begin(resource.KindLevel, mono, noCtx)
	w.String("level", level.String())
	w.String("previous", w.level().String())
	w.put(resource.Measured)
	w.levels = append(w.levels, levelFrom{mono, level})
}

// Level is the level that holds now.
func (r *Recorder) Level() resource.Level { return r.w.level() }

// Stats returns what was written, and what was lost by cause.
func (r *Recorder) Stats() rundir.LineStats { return r.w.out.Stats() }

// Flush writes what is buffered.
func (r *Recorder) Flush() error {
	r.memory.settle()
	r.devices.record()
	return r.w.out.Flush()
}

// Sampled records the samples of devices that were taken since the last execution, and what they say of executions.
// All that was reported has been handed to the recorder.
func (r *Recorder) Sampled() {
	if r.devices.settle() {
		r.Energy = r.devices.energy.rows()
	}
	r.devices.record()
}

// Context records a context's model.
func (r *Recorder) Context(c *ggmlhooks.Context) error {
	r.memory.settle()
	r.steps.model(c)
	return nil
}

// Graph plans the events of a graph.
func (r *Recorder) Graph(g *ggmlhooks.Graph) error {
	r.memory.settle()
	r.cells.noteDevices(g, r.memory.device)
	r.memory.recordWeights(g)
	r.plans.Put(g, newPlan(g, r.memory.device, r.w.legacy))
	return nil
}

// Buffer notes an allocation. It is recorded when something else is reported: its purpose follows right after it.
func (r *Recorder) Buffer(b *ggmlhooks.Buffer) error {
	r.memory.allocate(b)
	return nil
}

// BufferEnd records memory that was freed.
func (r *Recorder) BufferEnd(e ggmlhooks.BufferEnd) error {
	r.memory.settle()
	r.memory.free(e)
	return nil
}

// KV records what happened to cells, one event per layer. kvcache/track calls it for each operation.
func (r *Recorder) KV(op *kvcache.Operation) error {
	r.cells.record(op)
	return nil
}

// Sample records a sampler's choice.
func (r *Recorder) Sample(c *ggmlhooks.Sample) error {
	r.tokens.sample(c)
	return nil
}

// Record writes the events of an execution. Of one whose end was lost there are none.
func (r *Recorder) Record(of *ggmlhooks.Execution) error {
	p := r.plans.Of(of)
	r.forget(of)
	if !of.Ended {
		return nil
	}
	r.memory.settle()
	r.w.noteTime(max(of.End.MonoNS, of.UntilNS))
	r.devices.record()
	ctx, x := r.ctxs.findOrAdd(of.Ctx), &r.x
	if of.Phase == ggmlhooks.PhaseSetup {
		clear(ctx.last)
	}
	x.begin(of, p, r.w.levelAt(of.MonoNS))
	if price := x.price(); price > 0 {
		ctx.price = price
	}
	r.totals.count(x)
	r.devices.execution(x)
	if x.level == resource.Off {
		return nil
	}
	r.steps.start(ctx, x)
	if !x.Failed() {
		r.tokens.record(ctx, x)
		r.routing.record(x)
		if len(x.spans) > 0 {
			r.compute.runs(ctx, x)
		} else {
			r.compute.recordWholeGraph(x)
		}
	}
	r.compute.graph(ctx, x, r.rejections.popCount(x.Ctx))
	r.steps.end(x)
	return nil
}

// SeqChange notes drafts that the program takes back, and whose tokens a copied sequence continues behind.
func (r *Recorder) SeqChange(c *ggmlhooks.SeqChange) error {
	if c.Kind == ggmlhooks.SeqCopy {
		last := r.ctxs.findOrAdd(c.Ctx).last
		if before, ok := last[c.Seq]; ok {
			last[c.To] = before
		} else {
			delete(last, c.To)
		}
	}
	return r.rejections.SeqChange(c)
}

// Retract reports that executions first to last, which were recorded, were set-up.
func (r *Recorder) Retract(ctx uint32, first, last uint64) error {
	clear(r.ctxs.findOrAdd(ctx).last)
	if w := r.w; w.level() != resource.Off {
		w.begin(resource.KindPhase, w.newest.Load(), int64(ctx))
		w.String("phase", ggmlhooks.PhaseSetup.String())
		w.Uint("exec", first)
		w.Uint("last_exec", last)
		w.put(resource.Measured)
	}
	return nil
}

// Close writes the totals and ends the file. It may be called twice.
func (r *Recorder) Close() error {
	if r.ended {
		return nil
	}
	r.ended = true
	r.memory.settle()
	r.devices.record()
	r.Energy = r.devices.close(r.now())
	r.totals.close(r.now(), r.memory, r.rejections.total())
	if err := r.w.out.Close(); err != nil {
		return fmt.Errorf("record resource events: %w", err)
	}
	return nil
}
