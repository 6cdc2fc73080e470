package oplog

import (
	"fmt"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/jsonl"
)

// Recorder writes resource events. It is for one goroutine; Stats may be called from others.
type Recorder struct {
	o       Options
	head    *header
	out     *jsonl.Writer
	line    jsonl.Line
	marks   []mark
	levels  []levelFrom // the last one holds now; those before it, of executions that are not recorded yet
	plans   ggmlhooks.Plans[*plan]
	ctxs    map[uint32]*context
	x       execution // that is recorded, used again
	memory  memory
	caches  cacheIDs
	totals  totals
	ended   bool
	scratch scratch
	gpus    []GPUReading // that are being recorded
}

// levelFrom is a level and when it began to hold.
type levelFrom struct {
	ns    int64
	level resource.Level
}

// scratch is memory that events are made in.
type scratch struct {
	ids, positions, seqs []int32
	texts                []string
	numbers              []float32
	chosen               map[int32]bool
}

// context is what is known of a llama_context.
type context struct {
	phase   ggmlhooks.Phase
	last    map[int32]int64 // graph entry of a sequence's newest token
	price   int64           // of looking, as last measured
	tensors map[tensorKey]bool
}

// NewRecorder makes the first file and begins the session in it.
func NewRecorder(o Options) (*Recorder, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	r := &Recorder{
		o: o, head: newHeader(o.SessionID, o.UnixOffset), levels: []levelFrom{{level: o.Level}},
		ctxs: map[uint32]*context{}, memory: memory{buffers: map[uint64]*buffer{}, weights: map[ggmlhooks.Place]bool{}}, caches: cacheIDs{map[cacheID]string{}, map[cacheLayer]string{}},
		scratch: scratch{chosen: map[int32]bool{}}, totals: totals{start: o.Now(), phases: map[ggmlhooks.Phase]*resource.PhaseTotals{}},
	}
	lines := o.Lines
	lines.Kinds, lines.Limits, lines.Loss = resource.Kinds(), limits(o.PerSecond), r.head.loss
	var err error
	if r.out, err = jsonl.NewWriter(lines); err != nil {
		return nil, fmt.Errorf("record resource events: %w", err)
	}
	r.startSession()
	return r, nil
}

func (r *Recorder) context(number uint32) *context {
	c := r.ctxs[number]
	if c == nil {
		c = &context{last: map[int32]int64{}}
		r.ctxs[number] = c
	}
	return c
}

// SetLevel changes what is recorded of executions that begin from now on. resource.Off records nothing more; totals go on.
func (r *Recorder) SetLevel(level resource.Level, mono int64) {
	if level == r.Level() {
		return
	}
	r.settleBuffers()
	r.head.see(mono)
	r.begin(resource.KindLevel, mono, noCtx)
	r.line.String("level", level.String())
	r.line.String("previous", r.Level().String())
	r.put(resource.KindLevel, resource.Measured)
	r.levels = append(r.levels, levelFrom{mono, level})
}

// Level is the level that holds now.
func (r *Recorder) Level() resource.Level { return r.levels[len(r.levels)-1].level }

// Stats returns what was written, and what was lost by cause.
func (r *Recorder) Stats() jsonl.Stats { return r.out.Stats() }

// Flush writes what is buffered.
func (r *Recorder) Flush() error {
	r.settleBuffers()
	r.emitGPUs()
	return r.out.Flush()
}

// Context reports a context's model.
func (r *Recorder) Context(c *ggmlhooks.Context) error {
	r.settleBuffers()
	r.emitModel(c)
	return nil
}

// Graph works a graph out.
func (r *Recorder) Graph(g *ggmlhooks.Graph) error {
	r.settleBuffers()
	device := ""
	if n := len(g.Nodes); n > 0 {
		device = r.memory.device(g.Nodes[n-1].Buffer)
	}
	r.caches.place(g, r.memory.device)
	r.emitWeights(g)
	p := newPlan(g, device, r.o.Legacy)
	p.remote = r.remote(g)
	r.plans.Put(g, p)
	return nil
}

// Record writes the events of an execution. Of one whose end was lost there are none.
func (r *Recorder) Record(of *ggmlhooks.Execution) error {
	p := r.plans.Of(of)
	if !of.Ended {
		return nil
	}
	r.settleBuffers()
	r.head.see(max(of.End.MonoNS, of.UntilNS))
	r.emitGPUs()
	ctx := r.context(of.Ctx)
	if of.Phase == ggmlhooks.PhaseSetup {
		clear(ctx.last)
	}
	r.x.begin(of, p, r.levelAt(of.MonoNS))
	r.emit(ctx, &r.x)
	return nil
}

// levelAt is the level that held at a time.
func (r *Recorder) levelAt(ns int64) resource.Level {
	for i := len(r.levels) - 1; i > 0; i-- {
		if r.levels[i].ns <= ns {
			return r.levels[i].level
		}
	}
	return r.levels[0].level
}

// Close writes the totals and ends the file. It may be called twice.
func (r *Recorder) Close() error {
	if r.ended {
		return nil
	}
	r.ended = true
	r.settleBuffers()
	r.emitGPUs()
	r.endSession(r.o.Now())
	if err := r.out.Close(); err != nil {
		return fmt.Errorf("record resource events: %w", err)
	}
	return nil
}
