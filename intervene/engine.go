package intervene

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/runner"
)

// Options say how a model is loaded and run.
type Options struct {
	Model     string   // path of the GGUF file; "" is the embedded model
	GPULayers int      // layers that devices hold; negative: all
	Devices   []string // nil: all that there are
	RPC       []string // servers of llama.cpp's RPC backend, host:port, whose devices there are then
	Threads   int      // 0: one per core
	Trials    int      // that share a decode, beside the control; 0: 15
	// CacheType is the type of cached keys and values, f16 or f32; "" is f16.
	CacheType string
	// Plain holds the weights as the file does: the CPU does not repack them.
	Plain bool
	// Writable reads plain weights into memory, for a comparison that changes them.
	Writable bool
	// FlashAttention computes attention as one operation, which forms no scores. Their points do not exist then.
	FlashAttention bool
}

const (
	DefaultTrials = 15  // that share a decode
	maxTrials     = 254 // llama.cpp has 256 sequences: the prefix and the control are two
	maxThreads    = 512 // of ggml
	roomStep      = 256 // tokens that llama.cpp rounds the length of a sequence up to
)

// Engine runs prompts with edits. It belongs to one goroutine at a time.
type Engine struct {
	options Options
	model   *llama.Model
	title   string // what the model calls itself, or the name of its file
	heads   headCounts

	x        *llama.Context
	batch    *llama.Batch
	room     int // tokens of a prompt that the context is made for
	layouts  map[shape]map[ggmlhooks.PointRef]*place
	reasons  map[ggmlhooks.PointRef]string
	decoding struct { // of one Run
		tokens []llama.Token
		prefix int // tokens that sequence 0 holds
	}
}

// Open loads a model.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Trials == 0 {
		o.Trials = DefaultTrials
	}
	if o.Trials < 1 || o.Trials > maxTrials {
		return nil, fmt.Errorf("%d trials in one decode: use 1 to %d", o.Trials, maxTrials)
	}
	if o.Threads == 0 {
		o.Threads = runner.Cores()
	}
	if o.Threads < 1 || o.Threads > maxThreads {
		return nil, fmt.Errorf("%d threads: use 1 to %d, or 0 for one per core", o.Threads, maxThreads)
	}
	if err := runner.CheckModel(o.Model); err != nil {
		return nil, err
	}
	if err := llama.Init(); err != nil {
		return nil, err
	}
	for _, server := range o.RPC {
		if err := llama.AddRPC(server); err != nil {
			return nil, fmt.Errorf("--rpc: %w", err)
		}
	}
	params := llama.DefaultModelParams()
	params.GPULayers, params.Devices, params.Plain = o.GPULayers, o.Devices, o.Plain || o.Writable
	if o.Writable {
		params.Load = llama.LoadRead
	}
	e := &Engine{options: o}
	var file *gguf.File
	var err error
	if o.Model == "" {
		file, err = gguf.ReadBytes(llamatap.DefaultModel)
		if err == nil {
			e.model, err = llama.LoadModelBytes(ctx, llamatap.DefaultModelName, llamatap.DefaultModel, params)
		}
	} else if file, err = gguf.Open(o.Model); err == nil {
		e.model, err = llama.LoadModel(ctx, o.Model, params)
	}
	if err != nil {
		return nil, err
	}
	if e.model.HasEncoder() || !e.model.HasDecoder() {
		e.model.Close()
		return nil, fmt.Errorf("model %s has an encoder: interventions need a model that only generates", o.Model)
	}
	id := gguf.Identify(file, o.Model)
	e.title = id.Name
	arch := id.Architecture
	e.heads.query, _ = file.Metadata.Ints(arch + ".attention.head_count")
	if e.heads.kv, _ = file.Metadata.Ints(arch + ".attention.head_count_kv"); e.heads.kv == nil {
		e.heads.kv = e.heads.query
	}
	return e, nil
}

// Close frees the model and what it runs in.
func (e *Engine) Close() {
	e.free()
	e.model.Close()
}

func (e *Engine) free() {
	if e.x != nil {
		e.batch.Close()
		e.x.Close()
		e.x = nil
	}
}

// name is the name that recordings of the model have.
func (e *Engine) name() string { return cmp.Or(e.title, e.model.Description()) }

// Vocab is the model's vocabulary.
func (e *Engine) Vocab() *llama.Vocab { return e.model.Vocab() }

// trainedContextBelow returns the length of the texts that the model was trained on, in tokens, where n are more; else
// 0.
func (e *Engine) trainedContextBelow(n int) int {
	if trained := e.model.TrainedContext(); n > trained && trained > 0 {
		return trained
	}
	return 0
}

// layers is the number of layers.
func (e *Engine) layers() int { return e.model.Layers() }

// Places are the points that can be changed, with the heads of each (0: none), and why others cannot.
func (e *Engine) Places(ctx context.Context, tokens []llama.Token) (heads map[ggmlhooks.PointRef]int,
	why map[ggmlhooks.PointRef]string, err error) {
	if err := e.Run(ctx, tokens, []Trial{nil}, RunOptions{}, func(*Result) error { return nil }); err != nil {
		return nil, nil, err
	}
	heads = map[ggmlhooks.PointRef]int{}
	for _, places := range e.layouts {
		for ref, p := range places {
			heads[ref] = p.heads
		}
	}
	return heads, e.reasons, nil
}

// prepare makes a context with room for prompts of n tokens.
func (e *Engine) prepare(n int) error {
	if e.x != nil && n <= e.room {
		return nil
	}
	e.free()
	n = (n + roomStep - 1) / roomStep * roomStep
	p := llama.DefaultContextParams()
	p.Sequences = e.options.Trials + 2
	p.Size, p.Batch = p.Sequences*n, 2*n // of a whole run: a trial and its control
	p.MicroBatch, p.Watch, p.NoPerf = p.Batch, true, true
	p.Threads, p.BatchThreads = e.options.Threads, e.options.Threads
	if p.FlashAttention = llama.FlashAttentionOff; e.options.FlashAttention {
		p.FlashAttention = llama.FlashAttentionOn
	}
	var err error
	if p.TypeK, err = llama.ParseCacheType(cmp.Or(e.options.CacheType, "f16")); err != nil {
		return err
	}
	p.TypeV = p.TypeK
	if e.x, err = e.model.NewContext(p); err != nil {
		return fmt.Errorf("make room for %d sequences of %d tokens: %w: run fewer in one decode, with --trials",
			p.Sequences, n, err)
	}
	if e.batch, err = llama.NewBatch(p.Batch, 1); err != nil {
		return err
	}
	e.room = n
	e.layouts = map[shape]map[ggmlhooks.PointRef]*place{}
	return nil
}

// RunOptions are what all trials of a Run have in common.
type RunOptions struct {
	Base    []Edit // in each trial and in the control, before the trial's own
	Observe []Site // rows that Result.Value has, as computed before they are edited
	Whole   bool   // compute every trial from the first token on
}

// Result is what one trial came to. It is valid until each returns.
type Result struct {
	Trial           int
	Logits, Control []float32 // of the last token: with the edits and without
	values          func(sequence int, s Site) []float32
	sequence        int
}

// Value is an observed row in the trial, nil where the graph computes no such row.
func (r *Result) Value(s Site) []float32 { return r.values(r.sequence, s) }

// ControlValue is an observed row in the control.
func (r *Result) ControlValue(s Site) []float32 { return r.values(0, s) }

// Run runs a prompt once with each trial and calls each with the results, in the order of the first tokens that trials
// edit. Trials share decodes, and tokens before the first edit are computed once. When ctx ends, the error wraps
// llama.ErrInterrupted.
func (e *Engine) Run(ctx context.Context, tokens []llama.Token, trials []Trial, o RunOptions,
	each func(*Result) error) error {
	if len(tokens) == 0 {
		return errors.New("run a prompt: it has no tokens: give it some text")
	}
	if err := e.prepare(len(tokens)); err != nil {
		return err
	}
	defer until(ctx, e.x)()
	e.x.Memory().Clear(false)
	e.decoding.tokens, e.decoding.prefix = tokens, 0
	byStart := map[int][]int{}
	for i, t := range trials {
		start := t.start(len(tokens) - 1)
		if o.Whole {
			start = 0
		}
		byStart[start] = append(byStart[start], i)
	}
	for _, start := range slices.Sorted(maps.Keys(byStart)) {
		if err := e.extend(start); err != nil {
			return err
		}
		length := len(tokens) - start
		most := max(min(e.options.Trials, e.x.MicroBatch()/length-1), 1)
		group := byStart[start]
		decodes := (len(group) + most - 1) / most
		size := (len(group) + decodes - 1) / decodes // all decodes have one shape
		for chunk := range slices.Chunk(group, size) {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%w: %w", llama.ErrInterrupted, err)
			}
			edits := make([]Trial, size)
			for i, t := range chunk {
				edits[i] = trials[t]
			}
			if err := e.decode(start, chunk, edits, &o, each); err != nil {
				return err
			}
		}
	}
	return nil
}

// until has what a context computes end when ctx does. The function that it returns ends that.
func until(ctx context.Context, x *llama.Context) func() {
	runtime.LockOSThread()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { x.Interrupt(); close(interrupted) })
	return func() {
		if !stop() {
			<-interrupted
			x.Resume()
		}
		runtime.UnlockOSThread()
	}
}

// extend computes the prefix, in sequence 0, up to a token.
func (e *Engine) extend(to int) error {
	d := &e.decoding
	for d.prefix < to {
		e.batch.Reset()
		for d.prefix < to && e.batch.Len() < e.x.MicroBatch() {
			if err := e.batch.Add(d.tokens[d.prefix], llama.Pos(d.prefix), false, 0); err != nil {
				return err
			}
			d.prefix++
		}
		if err := e.x.DecodeWatched(e.batch, nil); err != nil {
			return err
		}
	}
	return nil
}

// fill makes a batch of all sequences, from token start on.
func (e *Engine) fill(s shape, start int) error {
	e.batch.Reset()
	memory := e.x.Memory()
	for i := range s.sequences {
		seq := llama.Seq(i + 1)
		memory.Remove(seq, llama.AllPositions, llama.AllPositions)
		if start > 0 {
			memory.Copy(0, seq, llama.AllPositions, llama.AllPositions)
		}
		for at := start; at <= s.last; at++ {
			if err := e.batch.Add(e.decoding.tokens[at], llama.Pos(at), at == s.last, seq); err != nil {
				return err
			}
		}
	}
	return nil
}

// places are where a graph of some shape has its points.
func (e *Engine) places(s shape, start int) (map[ggmlhooks.PointRef]*place, error) {
	if known := e.layouts[s]; known != nil {
		return known, nil
	}
	whole := func(b *llama.Batch) error { return e.x.DecodeWatched(b, nil) }
	for _, decode := range []func(*llama.Batch) error{e.x.Plan, whole} { // a plan may lack what a device computes
		if err := e.fill(s, start); err != nil {
			return nil, err
		}
		if err := decode(e.batch); err != nil {
			return nil, err
		}
		g, err := e.x.Graph()
		if err != nil {
			return nil, err
		}
		e.layouts[s], e.reasons = layout(g, s, e.heads)
		if e.layouts[s][ggmlhooks.PointRef{Point: ggmlhooks.PointLMHead, Layer: ggmlhooks.NoLayer}] != nil {
			break
		}
	}
	return e.layouts[s], nil
}

// decode runs the control and some trials, from token start on. Numbers are those of the first trials, others are there
// to fill the shape.
func (e *Engine) decode(start int, numbers []int, trials []Trial, o *RunOptions, each func(*Result) error) error {
	tokens := e.decoding.tokens
	s := shape{len(trials) + 1, len(tokens) - start, len(tokens) - 1}
	places, err := e.places(s, start)
	if err != nil {
		return err
	}
	cut := cuts{s, places, map[int]*llama.WatchSite{}}
	for i := range s.sequences {
		edits := o.Base
		if i > 0 {
			edits = slices.Concat(edits, trials[i-1])
		}
		for k := range edits {
			if err := cut.edit(i, &edits[k]); err != nil {
				return err
			}
		}
	}
	for _, site := range o.Observe {
		if err := cut.observe(site); err != nil {
			return err
		}
	}
	if err := e.fill(s, start); err != nil {
		return err
	}
	if err := e.x.DecodeWatched(e.batch, cut.list()); err != nil {
		return err
	}
	logits := func(sequence int) []float32 {
		l, logitsErr := e.x.Logits(sequence*s.length + s.length - 1)
		err = errors.Join(err, logitsErr)
		return l
	}
	for i, number := range numbers {
		r := &Result{Trial: number, Logits: logits(i + 1), Control: logits(0), values: cut.value, sequence: i + 1}
		if err != nil {
			return err
		}
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}
