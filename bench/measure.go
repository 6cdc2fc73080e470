package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/cgo/llama"
)

// Measure measures and writes JSON lines to out, each repetition after it has ended. It returns within a token when ctx
// ends. Without llama.cpp in this build the error wraps errors.ErrUnsupported.
func Measure(ctx context.Context, spec Spec, out io.Writer) error {
	if err := spec.check(); err != nil {
		return err
	}
	runtime.LockOSThread() // one thread, so that OpenMP keeps one team
	defer runtime.UnlockOSThread()
	r := &measurement{Spec: spec, ctx: ctx}
	defer r.close()
	begin := time.Now()
	if err := r.load(); err != nil {
		return err
	}
	defer interrupt(ctx, r.llama)()
	lines := json.NewEncoder(out)
	if err := lines.Encode(measureLine{Subject: r.subject(time.Since(begin))}); err != nil {
		return err
	}
	if !spec.NoWarmUp {
		if err := r.warmUp(); err != nil {
			return err
		}
	}
	for range spec.Repetitions {
		repetition, err := r.repeat()
		if err != nil {
			return err
		}
		if err := lines.Encode(measureLine{Repetition: repetition}); err != nil {
			return err
		}
	}
	return nil
}

// interrupt ends what a context decodes when ctx ends. stop ends the watching, and must come before the context is
// closed.
func interrupt(ctx context.Context, x *llama.Context) (stop func()) {
	interrupted := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		x.Interrupt()
		close(interrupted)
	})
	return func() {
		if !unwatch() {
			<-interrupted
		}
	}
}

// measurement is the state of one Measure.
type measurement struct {
	Spec
	ctx    context.Context
	model  *llama.Model
	llama  *llama.Context
	batch  *llama.Batch
	source tokenSource
	pos    llama.Pos     // of every sequence
	tokens []llama.Token // that are generated, of one step after the other
	at     []int64       // when each step was done
}

// load loads the model and makes a context as large as llama-bench's.
func (r *measurement) load() (err error) {
	if r.model, err = loadModel(r.ctx, &r.Spec); err != nil {
		return err
	}
	if err = r.source.open(r.model.Vocab(), &r.Spec); err != nil {
		return err
	}
	if r.Text != "" {
		r.Prompt = len(r.source.text)
	}
	params := llama.DefaultContextParams()
	params.Sequences = r.sequences()
	params.Size = params.Sequences * (r.Prompt + r.Gen + r.Depth)
	params.Batch, params.MicroBatch = r.Batch, r.MicroBatch
	params.Threads, params.BatchThreads = r.Threads, r.Threads
	params.SlidingFull = false
	if params.FlashAttention, err = llama.ParseFlashAttention(r.FlashAttention); err != nil {
		return err
	}
	if params.TypeK, err = llama.ParseCacheType(r.TypeK); err != nil {
		return err
	}
	if params.TypeV, err = llama.ParseCacheType(r.TypeV); err != nil {
		return err
	}
	if r.llama, err = r.model.NewContext(params); err != nil {
		return err
	}
	r.tokens, r.at = make([]llama.Token, params.Sequences*r.Gen), make([]int64, r.Gen+1)
	r.batch, err = llama.NewBatch(min(r.Batch, params.Size), 1)
	return err
}

func loadModel(ctx context.Context, spec *Spec) (*llama.Model, error) {
	params := llama.DefaultModelParams()
	params.GPULayers = spec.GPULayers
	if spec.Model == "" {
		return llama.LoadModelBytes(ctx, llamatap.DefaultModelName, llamatap.DefaultModel, params)
	}
	model, err := llama.LoadModel(ctx, spec.Model, params)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", spec.Model, err)
	}
	if model.HasEncoder() || !model.HasDecoder() {
		model.Close()
		return nil, fmt.Errorf("model %s has an encoder: take llama-bench for it", spec.Model)
	}
	return model, nil
}

func (r *measurement) close() {
	if r.batch != nil {
		r.batch.Close()
	}
	if r.llama != nil {
		r.llama.Close()
	}
	r.source.close()
	if r.model != nil {
		r.model.Close()
	}
}

func (r *measurement) subject(load time.Duration) *Subject {
	var cpus, gpus []string
	for _, d := range llama.Devices() {
		switch d.Kind {
		case llama.DeviceCPU, llama.DeviceAccel:
			cpus = append(cpus, d.Description)
		case llama.DeviceGPU, llama.DeviceIGPU:
			gpus = append(gpus, d.Description)
		}
	}
	return &Subject{
		Type: r.model.Description(), SizeBytes: r.model.Size(), Parameters: r.model.Parameters(), Prompt: r.Prompt,
		CPU: strings.Join(cpus, ", "), GPU: strings.Join(gpus, ", "), Backends: backends(llama.Backends()),
		LoadNS: load.Nanoseconds(),
	}
}

// backends names backends as llama-bench does: the CPU's only where there is no other.
func backends(names []string) string {
	var others []string
	for _, name := range names {
		if name != "CPU" {
			others = append(others, name)
		}
	}
	if len(others) == 0 {
		return "CPU"
	}
	return strings.Join(others, ",")
}
