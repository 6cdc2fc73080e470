package tensors

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// By is what one line of statistics stands for.
type By string

// What statistics are taken of.
const (
	ByTensor By = "tensor" // all packets of one name in one context
	ByPacket By = "packet"
	ByToken  By = "token" // one row of a packet: one tensor for one token
)

// Measure is one line of statistics: the counterpart of one row of STRAP-LLM's packet table,
// with tokens as the index states them.
type Measure struct {
	Packet int    `json:"packet_index"` // the first of a tensor that was cut into pieces
	Name   string `json:"layer_name"`
	Layer  int    `json:"layer"`
	Ctx    uint32 `json:"ctx"`
	Phase  string `json:"phase,omitempty"`
	// first token of the packet, or the row's; absent where no index states
	TokenIndex *int64  `json:"token_index,omitempty"`
	TokenCount int64   `json:"token_count,omitempty"`
	TokenText  *string `json:"token_text,omitempty"` // for one token, where the tokens file has it
	Stored     int64   `json:"compressed_bytes,omitempty"`
	Raw        int64   `json:"uncompressed_bytes,omitempty"`
	Ratio      float64 `json:"compression_ratio,omitempty"`
	DType      string  `json:"dtype"`
	Stats
	Error string `json:"error,omitempty"` // why there are no statistics
}

// measureBatch is how many packets are decoded side by side before their results are handed on in order.
const measureBatch = 256

// EachMeasure reads the selected packets on all CPUs and calls fn in stream order, packet by packet or token by token.
// Memory is bounded by the packets in work, and the texts of the tokens. A packet that cannot be decoded has Error
// set; reading continues. By token, a packet that does not hold whole rows (a sample, a piece of a large tensor) is
// one line.
func EachMeasure(ctx context.Context, r *Run, f Filter, by By, fn func(*Measure) error) error {
	texts, err := r.tokenTexts()
	if err != nil {
		return err
	}
	return eachJob(ctx, r, f, by, func(j *job) error { return j.lines(texts, fn) })
}

// MeasureTensors puts statistics per tensor into a summary made with the same filter. Tensors of block-quantised
// type get none. progress, where it is not nil, is called with the packets that were read, of all.
func MeasureTensors(ctx context.Context, r *Run, f Filter, s *Summary, progress func(done, total int64)) error {
	done, total := int64(0), int64(s.Packets)
	totals := make(map[tensorKey]*Accumulator)
	err := eachJob(ctx, r, f, ByTensor, func(j *job) error {
		if done++; progress != nil {
			progress(done, total)
		}
		key := tensorKey{j.packet.Ctx, j.packet.Name}
		switch {
		case errors.Is(j.err, errors.ErrUnsupported):
			return nil
		case j.err != nil:
			return j.err
		case totals[key] == nil:
			totals[key] = new(Accumulator)
		}
		totals[key].Merge(&j.sums[0])
		return nil
	})
	if err != nil {
		return err
	}
	for i := range s.Layers {
		for j := range s.Layers[i].Tensors {
			t := &s.Layers[i].Tensors[j]
			if a := totals[t.key()]; a != nil {
				t.Stats = new(a.Stats())
			}
		}
	}
	return nil
}

// eachJob sums the selected packets up in batches, side by side, and calls fn in stream order.
func eachJob(ctx context.Context, r *Run, f Filter, by By, fn func(*job) error) error {
	if err := f.Check(); err != nil {
		return err
	}
	b := batch{stream: r.Stream, by: by, jobs: make([]job, 0, measureBatch)}
	flush := func() error {
		b.compute()
		for i := range b.jobs {
			if err := fn(&b.jobs[i]); err != nil {
				return err
			}
		}
		b.jobs = b.jobs[:0]
		return ctx.Err()
	}
	for i, p := range r.Stream.Packets() {
		if !f.Match(p) {
			continue
		}
		b.jobs = append(b.jobs, job{number: i, packet: *p})
		if len(b.jobs) == measureBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := r.Stream.Err(); err != nil {
		return err
	}
	return flush()
}

// job is one packet and what was computed of it: one Accumulator for all, or one per row.
type job struct {
	number int
	packet stream.Packet
	sums   []Accumulator
	err    error
}

// largePacket is the content in bytes above which packets are decoded one after the other, for what they take in
// memory.
const largePacket = 8 << 20

// batch is the packets that are decoded side by side.
type batch struct {
	stream *stream.Reader
	by     By
	jobs   []job
	large  []float32 // buffer of large packets
}

// compute decodes the packets and sums them up.
func (b *batch) compute() {
	workers := min(runtime.GOMAXPROCS(0), len(b.jobs))
	one := func(j *job, values []float32) []float32 {
		values, j.err = b.stream.Float32(&j.packet, values)
		if j.err == nil {
			j.sum(values, b.by)
		}
		return values
	}
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			var values []float32
			for i := w; i < len(b.jobs); i += workers {
				if b.jobs[i].packet.RawBytes <= largePacket {
					values = one(&b.jobs[i], values)
				}
			}
		})
	}
	wait.Wait()
	for i := range b.jobs {
		if b.jobs[i].packet.RawBytes > largePacket {
			b.large = one(&b.jobs[i], b.large)
		}
	}
}

// sum takes all values together, or row by row where the packet holds whole rows.
func (j *job) sum(values []float32, by By) {
	p := &j.packet
	dim := int(p.RowDim)
	if by != ByToken || p.Rows == label.RowsNone || p.SampleTotal > 0 || p.Blocks > 1 ||
		elements(p.NE) != int64(len(values)) {
		j.sums = make([]Accumulator, 1)
		j.sums[0].Add(values)
		return
	}
	rows := int(p.NE[dim])
	inner := 1
	for d := range dim {
		inner *= int(p.NE[d])
	}
	j.sums = make([]Accumulator, rows)
	for at := 0; at < len(values); at += inner {
		j.sums[at/inner%rows].Add(values[at : at+inner])
	}
}

// lines calls fn for the packet, or for each of its rows.
func (j *job) lines(texts *tokenTexts, fn func(*Measure) error) error {
	line := j.line()
	if j.err != nil {
		line.Error = j.err.Error()
		if errors.Is(j.err, errors.ErrUnsupported) {
			line.Error = "no statistics of type " + line.DType
		}
		return fn(&line)
	}
	first := j.packet.TokenFirst
	for row := range j.sums {
		if len(j.sums) > 1 {
			line.TokenIndex, line.TokenCount = new(first+int64(row)), 1
			line.Stored, line.Raw, line.Ratio = 0, 0, 0 // a row has no bytes of its own in a compressed packet
		}
		if line.TokenCount == 1 {
			line.TokenText = texts.textOf(*line.TokenIndex)
		}
		line.Stats = j.sums[row].Stats()
		if err := fn(&line); err != nil {
			return err
		}
	}
	return nil
}

// line returns what the index says of the packet.
func (j *job) line() Measure {
	p := &j.packet
	line := Measure{Packet: j.number, Name: p.Name, Layer: int(p.Layer), Ctx: p.Ctx, Stored: p.Stored, Raw: p.RawBytes,
		DType: p.DType.String()}
	if p.Stored > 0 {
		line.Ratio = float64(p.RawBytes) / float64(p.Stored)
	}
	if p.Phase != label.PhaseUnknown {
		line.Phase = p.Phase.String()
	}
	if first := p.TokenFirst; first >= 0 {
		line.TokenIndex, line.TokenCount = &first, int64(p.TokenCount)
	}
	return line
}
