package autoencoder

import (
	"math"
	"slices"
)

// Hot path: a step allocates nothing once its lists have grown.

// maxPassValues bounds the pre-activations of the rows that are held at a time, and so the lists of what is active.
const maxPassValues = 1 << 23

// pass computes gradients of a batch, a bounded number of rows at a time: first by rows, what is active and the errors
// that it leaves; then by features, the gradients that follow. Each sum has one order.
type pass struct {
	*Trainer
	limit     int       // rows
	centred   []float32 // [limit][Width], rows less the decoder's bias
	errors    []float32 // [2 * limit][Width]: gradients of the loss by the outputs; then those of the auxiliary loss
	active    []list    // of each row
	revived   []list    // of each row, what the dead features do
	sums      []sums    // of each block
	encoders  []*encoder
	dead      []int32 // features
	deadPre   [][]float32
	gatherers []gatherer
	fired     []bool
	upTo      []int32 // 0, 1, 2 …
	minus     []float32
}

// list is what is active in a row, and the gradients of the loss by the pre-activations.
type list struct {
	activity
	delta []float32
}

// sums are what a block or a batch adds up to.
type sums struct {
	loss, squares, variance, operations float64
	active                              int
}

func (s *sums) add(o *sums) {
	s.loss, s.squares, s.variance = s.loss+o.loss, s.squares+o.squares, s.variance+o.variance
	s.operations, s.active = s.operations+o.operations, s.active+o.active
}

func newPass(t *Trainer) *pass {
	limit := max(maxPassValues/t.Features/blockRows, 1) * blockRows
	limit = min(limit, (t.Batch+blockRows-1)/blockRows*blockRows)
	p := &pass{Trainer: t, limit: limit, centred: make([]float32, limit*t.sae.Width),
		errors: make([]float32, 2*limit*t.sae.Width), active: make([]list, limit), revived: make([]list, limit),
		sums: make([]sums, limit/blockRows), gatherers: make([]gatherer, workers()), fired: make([]bool, t.Features),
		upTo: make([]int32, max(t.Features, limit)), minus: make([]float32, max(t.Features, limit))}
	for range workers() {
		p.encoders = append(p.encoders, t.sae.encoder(t.engine))
		p.deadPre = append(p.deadPre, make([]float32, t.Features))
	}
	for i := range p.upTo {
		p.upTo[i] = int32(i)
	}
	return p
}

// gradients adds the gradients of a batch to those of the trainer, which are 0.
func (p *pass) gradients(batch []float32) (total sums) {
	p.dead = p.dead[:0]
	for f, steps := range p.idle {
		if int(steps) > p.DeadSteps && p.Aux > 0 {
			p.dead = append(p.dead, int32(f))
		}
	}
	clear(p.fired)
	width := p.sae.Width
	for len(batch) > 0 {
		rows := min(p.limit, len(batch)/width)
		blocks := (rows + blockRows - 1) / blockRows
		parallel(len(p.encoders), blocks, func(worker, b int) {
			first := b * blockRows
			p.sums[b] = p.block(p.encoders[worker], p.deadPre[worker], batch, first, min(first+blockRows, rows))
		})
		for b := range blocks {
			total.add(&p.sums[b])
		}
		const parts = 64
		size := (p.Features + parts - 1) / parts
		parallel(len(p.encoders), parts, func(worker, i int) {
			first, end := min(i*size, p.Features), min((i+1)*size, p.Features)
			p.gatherers[worker].gather(p, rows, int32(first), int32(end))
		})
		for i := range rows {
			p.minus[i] = 1
		}
		p.engine.AddRows(p.gradient.DecoderBias, p.minus, p.upTo[:rows], p.errors)
		batch = batch[rows*width:]
	}
	for f, g := range p.gradient.EncoderBias { // the encoder sees rows less the decoder's bias
		p.minus[f] = -g
		if p.idle[f]++; p.fired[f] {
			p.idle[f] = 0
		}
	}
	p.engine.AddRows(p.gradient.DecoderBias, p.minus, p.upTo[:p.Features], p.sae.Encoder)
	return total
}

// block computes what rows from first to before end activate, the errors that remain, and the gradients by the
// pre-activations.
func (p *pass) block(c *encoder, deadPre, batch []float32, first, end int) (sum sums) {
	s, width := p.sae, p.sae.Width
	centred := p.centred[first*width : end*width]
	for i, v := range batch[first*width : end*width] {
		centred[i] = v - s.DecoderBias[i%width]
	}
	c.preactivate(centred)
	sum.operations = 2 * float64(end-first) * float64(s.Features) * float64(width)
	bandwidth := float32(0)
	if p.Arch == JumpReLU {
		bandwidth = float32(p.Bandwidth)
	}
	for r := first; r < end; r++ {
		row, out := batch[r*width:][:width], p.errors[r*width:][:width]
		a := &p.active[r]
		c.activate(&a.activity, c.row(r-first), bandwidth)
		c.decode(out, &a.activity)
		squares := 0.0
		for i, v := range row {
			out[i] -= v
			squares += float64(out[i]) * float64(out[i])
			away := float64(v) - p.stats.Mean[i]*float64(p.scale)
			sum.variance += away * away
		}
		sum.squares += squares
		sum.loss += squares
		if len(p.dead) > 0 {
			sum.loss += p.revive(c, deadPre, r, c.row(r-first), out)
			sum.operations += 8 * float64(len(p.revived[r].index)) * float64(width)
		}
		for i := range out {
			out[i] *= 2 / float32(p.Batch)
		}
		a.delta = slices.Grow(a.delta[:0], len(a.index))[:len(a.index)]
		p.engine.Dots(a.delta, a.index, s.Decoder, out)
		penalty, active := p.penalise(a)
		sum.loss += penalty
		sum.active += active
		sum.operations += 8 * float64(len(a.index)) * float64(width)
	}
	return sum
}

// penalise adds the penalty of what is active in a row to the gradients by the pre-activations, and returns it.
func (p *pass) penalise(a *list) (penalty float64, active int) {
	l1 := float32(0)
	if p.Arch == ReLU {
		l1 = float32(p.L1 * p.sparsity)
	}
	for i, v := range a.value {
		if v > 0 {
			active++
			penalty += float64(l1 * v)
			a.delta[i] += l1 / float32(p.Batch)
		}
	}
	if p.Arch == JumpReLU {
		penalty = p.L0 * p.sparsity * float64(active)
	}
	return penalty, active
}

// revive has the dead features whose pre-activations are largest explain what the others leave of a row, whose error is
// given (AuxK of Gao et al. 2024, with the weights of SAELens). It returns that loss.
func (p *pass) revive(c *encoder, pre []float32, r int, row, missed []float32) (loss float64) {
	width := p.sae.Width
	count := min(width/2+1, len(p.dead))
	weight := float32(p.Aux * min(1, float64(len(p.dead))/float64(width/2+1)))
	for i := range pre {
		pre[i] = float32(math.Inf(-1))
	}
	for _, f := range p.dead {
		pre[f] = row[f]
	}
	a, out := &p.revived[r], p.errors[(p.limit+r)*width:][:width]
	a.reset()
	a.index, _ = c.largest(a.index, pre, count, -math.MaxFloat32, -math.MaxFloat32)
	for _, f := range a.index {
		a.value = append(a.value, row[f])
	}
	copy(out, missed)
	p.engine.AddRows(out, a.value, a.index, p.sae.Decoder)
	for i, v := range out {
		loss += float64(v) * float64(v)
		out[i] = 2 * weight * v / float32(p.Batch)
	}
	a.delta = slices.Grow(a.delta[:0], len(a.index))[:len(a.index)]
	p.engine.Dots(a.delta, a.index, p.sae.Decoder, out)
	return float64(weight) * loss
}

// gatherer is the scratch memory of one goroutine that sums gradients of features: what is active, feature by feature.
type gatherer struct {
	starts        []int32
	rows, errors  []int32
	values, delta []float32
	slope         []float32 // of the threshold
}

// eachEntry calls do for the entries of rows that are of features from first to before end.
func (p *pass) eachEntry(rows int, first, end int32, do func(row, errorRow int, l *list, i int)) {
	for r := range rows {
		for aux, l := range [2]*list{&p.active[r], &p.revived[r]} {
			if aux == 1 && len(p.dead) == 0 {
				continue
			}
			i, _ := slices.BinarySearch(l.index, first)
			for ; i < len(l.index) && l.index[i] < end; i++ {
				do(r, r+aux*p.limit, l, i)
			}
		}
	}
}

// gather adds the gradients of features from first to before end.
func (g *gatherer) gather(p *pass, rows int, first, end int32) {
	count := int(end - first)
	g.starts = slices.Grow(g.starts[:0], count+1)[:count+1]
	clear(g.starts)
	p.eachEntry(rows, first, end, func(_, _ int, l *list, i int) { g.starts[l.index[i]-first]++ })
	total := int32(0)
	for f, n := range g.starts {
		g.starts[f], total = total, total+n
	}
	n := int(total)
	g.rows, g.errors = slices.Grow(g.rows[:0], n)[:n], slices.Grow(g.errors[:0], n)[:n]
	g.values, g.delta = slices.Grow(g.values[:0], n)[:n], slices.Grow(g.delta[:0], n)[:n]
	g.slope = slices.Grow(g.slope[:0], count)[:count]
	clear(g.slope)
	p.eachEntry(rows, first, end, func(row, errorRow int, l *list, i int) {
		f := l.index[i] - first
		at := g.starts[f]
		g.starts[f]++
		g.rows[at], g.errors[at], g.values[at], g.delta[at] = int32(row), int32(errorRow), l.value[i], l.delta[i]
		if p.Arch == JumpReLU && errorRow < p.limit {
			g.delta[at], g.slope[f] = p.jump(l, i, g.slope[f])
		}
		if l.value[i] > 0 && errorRow < p.limit {
			p.fired[first+f] = true
		}
	})
	to, width := p.gradient, p.sae.Width
	from := int32(0)
	for k, until := range g.starts[:count] {
		if from < until {
			f := int(first) + k
			p.engine.AddRows(to.Direction(f), g.values[from:until], g.errors[from:until], p.errors)
			p.engine.AddRows(to.Encoder[f*width:][:width], g.delta[from:until], g.rows[from:until], p.centred)
			for _, d := range g.delta[from:until] {
				to.EncoderBias[f] += d
			}
			if p.Arch == JumpReLU {
				to.Threshold[f] += g.slope[k]
			}
		}
		from = until
	}
}

// jump is the gradient by the pre-activation of an entry of JumpReLU, and adds that by its threshold to slope: within
// the bandwidth, a step counts as a slope (the straight-through estimator), for both.
func (p *pass) jump(l *list, i int, slope float32) (delta, sum float32) {
	delta = l.delta[i]
	by := delta
	if l.value[i] == 0 {
		delta = 0
	}
	if l.near[i] {
		threshold := p.sae.Threshold[l.index[i]]
		step := (threshold*by + float32(p.L0*p.sparsity)/float32(p.Batch)) / float32(p.Bandwidth)
		delta += step
		slope -= step
	}
	return delta, slope
}
