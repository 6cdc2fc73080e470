package oplog

import (
	"encoding/binary"
	"math"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// emitTokens records an execution's tokens: those of prompts together, each generated one by itself. Set-up has none.
func (r *Recorder) emitTokens(ctx *context, x *execution) {
	if x.Phase == ggmlhooks.PhaseSetup {
		return
	}
	s := &r.scratch
	s.ids, s.positions, s.seqs, s.texts = s.ids[:0], s.positions[:0], s.seqs[:0], s.texts[:0]
	first := int64(-1)
	for i := range x.Rows {
		row := &x.Rows[i]
		number, known := seq(row)
		if !known {
			number = -1
		}
		if row.Phase == ggmlhooks.PhaseDecode {
			r.emitOutput(ctx, x, row)
		} else {
			if first < 0 {
				first = row.Index
			}
			s.ids, s.positions, s.seqs = append(s.ids, row.Token), append(s.positions, row.Pos), append(s.seqs, number)
			if text, ok := r.text(x.Ctx, row.Token); ok {
				s.texts = append(s.texts, text)
			}
		}
		if known {
			ctx.last[number] = x.MonoNS
		}
	}
	if len(s.ids) > 0 {
		r.emitInput(x, first)
	}
}

func (r *Recorder) text(ctx uint32, token int32) (string, bool) {
	if r.o.Text == nil || token < 0 {
		return "", false
	}
	return r.o.Text(ctx, token)
}

// emitInput records the prompt's tokens in the scratch memory.
func (r *Recorder) emitInput(x *execution, first int64) {
	s, l := &r.scratch, &r.line
	r.begin(resource.KindInputTokens, x.MonoNS, int64(x.Ctx))
	l.Uint("exec", x.Number)
	l.Int("token_first", first)
	l.Ints("token_ids", s.ids)
	if len(s.texts) == len(s.ids) {
		l.Key("token_texts")
		l.Append(func(dst []byte) []byte { return appendTexts(dst, s.texts) })
	}
	l.Ints("positions", s.positions)
	l.Ints("seq_ids", s.seqs)
	r.put(resource.KindInputTokens, resource.Measured)
}

// emitOutput records a generated token.
func (r *Recorder) emitOutput(ctx *context, x *execution, row *ggmlhooks.Row) {
	l := &r.line
	r.begin(resource.KindOutputToken, x.MonoNS, int64(x.Ctx))
	l.Uint("exec", x.Number)
	r.rowFields(row)
	if text, ok := r.text(x.Ctx, row.Token); ok {
		l.String("token_text", text)
	}
	if number, ok := seq(row); ok {
		if before, ok := ctx.last[number]; ok && before < x.MonoNS {
			l.Int("latency_ns", x.MonoNS-before)
		}
	}
	r.put(resource.KindOutputToken, resource.Measured)
}

// rowFields adds which token a row is.
func (r *Recorder) rowFields(row *ggmlhooks.Row) {
	l := &r.line
	l.Int("token_index", row.Index)
	l.Int("token_id", int64(row.Token))
	l.Int("pos", int64(row.Pos))
	if number, ok := seq(row); ok {
		l.Int("seq_id", int64(number))
	}
}

// chooseExperts works out the bytes of nodes that depend on the experts that were chosen.
func (r *Recorder) chooseExperts(x *execution) {
	for i := range x.plan.experts {
		e := &x.plan.experts[i]
		ids := x.routed4(e.ids)
		if ids == nil {
			continue
		}
		clear(r.scratch.chosen)
		for ; len(ids) >= 4; ids = ids[4:] {
			r.scratch.chosen[int32(binary.LittleEndian.Uint32(ids))] = true
		}
		o := e.op
		o.Experts = int64(len(r.scratch.chosen))
		if read, written, ok := o.Bytes(); ok {
			x.found = append(x.found, expertBytes{e.node, read, written})
		}
	}
}

// routed4 is the data of a captured tensor of 4-byte elements, nil where it was not captured whole, or the level does
// not report it.
func (x *execution) routed4(node int) []byte {
	if !x.level.Includes(resource.KindRouting) {
		return nil
	}
	for i := range x.Routing {
		if c := &x.Routing[i]; c.Node == node && int64(len(c.Data)) == 4*c.NE[0]*c.NE[1]*c.NE[2]*c.NE[3] {
			return c.Data
		}
	}
	return nil
}

// emitRouting records for each token and layer which experts were chosen.
func (r *Recorder) emitRouting(x *execution) {
	for _, pair := range x.plan.routing {
		ids := x.routed4(pair.ids)
		node := &x.plan.graph.Nodes[pair.ids]
		used := int(node.NE[0])
		if ids == nil || used <= 0 {
			continue
		}
		rows := len(ids) / 4 / used
		var weights []byte
		if pair.weights >= 0 {
			if weights = x.routed4(pair.weights); len(weights) != len(ids) {
				weights = nil
			}
		}
		for i := range rows {
			row := x.rowAt(node.Rows, i, rows)
			if row == nil {
				continue
			}
			at := 4 * used * i
			r.emitChoice(x, pair.layer, row, ids[at:at+4*used], weights, at)
		}
	}
}

// rowAt is the token row that row i of n of a tensor stands for; nil where that is not known.
func (x *execution) rowAt(kind ggmlhooks.RowKind, i, n int) *ggmlhooks.Row {
	if kind == ggmlhooks.RowsOutputs && n == len(x.Outputs) {
		i = int(x.Outputs[i])
	} else if n != len(x.Rows) {
		return nil
	}
	if i < 0 || i >= len(x.Rows) {
		return nil
	}
	return &x.Rows[i]
}

func (r *Recorder) emitChoice(x *execution, layer int, row *ggmlhooks.Row, ids, weights []byte, at int) {
	s, l := &r.scratch, &r.line
	s.ids, s.numbers = s.ids[:0], s.numbers[:0]
	for k := 0; k < len(ids); k += 4 {
		s.ids = append(s.ids, int32(binary.LittleEndian.Uint32(ids[k:])))
		if weights != nil {
			s.numbers = append(s.numbers, math.Float32frombits(binary.LittleEndian.Uint32(weights[at+k:])))
		}
	}
	r.begin(resource.KindRouting, x.MonoNS, int64(x.Ctx))
	l.Uint("exec", x.Number)
	l.Int("layer_id", int64(layer))
	r.rowFields(row)
	l.Ints("experts", s.ids)
	if weights != nil {
		l.Floats("weights", s.numbers)
	}
	r.put(resource.KindRouting, resource.Measured)
}

// Sample records a sampler's choice.
func (r *Recorder) Sample(c *ggmlhooks.Sample) error {
	r.head.see(c.MonoNS)
	if !r.Level().Includes(resource.KindSampling) {
		return nil
	}
	s, l := &r.scratch, &r.line
	r.begin(resource.KindSampling, c.MonoNS, int64(c.Ctx))
	l.Open("sampling")
	l.Int("selected_token", int64(c.Token))
	if text, ok := r.text(c.Ctx, c.Token); ok {
		l.String("selected_token_text", text)
	}
	s.ids, s.texts, s.numbers = s.ids[:0], s.texts[:0], s.numbers[:0]
	probabilities := false
	for i := range c.Top {
		top := &c.Top[i]
		if math.IsInf(float64(top.Logit), -1) {
			continue // the chain ruled it out
		}
		s.ids, s.numbers = append(s.ids, top.Token), append(s.numbers, top.Logit)
		if text, ok := r.text(c.Ctx, top.Token); ok {
			s.texts = append(s.texts, text)
		}
		if probabilities = probabilities || top.P > 0; top.Token == c.Token && top.P > 0 {
			l.Float("selected_prob", float64(top.P))
		}
	}
	l.Ints("top_tokens", s.ids)
	l.Floats("logits_sample", s.numbers)
	if probabilities {
		s.numbers = s.numbers[:0]
		for i := range s.ids {
			s.numbers = append(s.numbers, c.Top[i].P) // highest logit first: what was ruled out comes behind
		}
		l.Floats("top_probs", s.numbers)
	}
	if len(s.texts) == len(s.ids) && len(s.ids) > 0 {
		l.Key("top_token_texts")
		l.Append(func(dst []byte) []byte { return appendTexts(dst, s.texts) })
	}
	l.Int("candidates_before", int64(c.InSize))
	l.Int("candidates_after", int64(c.OutSize))
	l.Shut()
	r.put(resource.KindSampling, resource.Measured)
	return nil
}
