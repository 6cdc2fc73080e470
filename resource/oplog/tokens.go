package oplog

import (
	"math"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// Hot path: no allocation per event.

// tokens records the tokens of executions, and samplers' choices. Its slices are used again.
type tokens struct {
	*writer
	spell                func(ctx uint32, token int32) (string, bool) // nil: texts are not known
	ids, positions, seqs []int32
	texts                []string
	numbers              []float32
}

// lastToken is the newest token of a sequence: when the graph began that has it, and whether it is a prompt's.
type lastToken struct {
	mono   int64
	prompt bool
}

// record records an execution's tokens: those of prompts together, each generated one by itself. Set-up has none.
func (t *tokens) record(ctx *context, x *execution) {
	if x.Phase == ggmlhooks.PhaseSetup {
		return
	}
	t.ids, t.positions, t.seqs, t.texts = t.ids[:0], t.positions[:0], t.seqs[:0], t.texts[:0]
	first := int64(-1)
	for i := range x.Rows {
		row := &x.Rows[i]
		number, known := seq(row)
		if !known {
			number = -1
		}
		if row.Phase == ggmlhooks.PhaseDecode {
			if !x.Drafts { // what a draft model proposes was not generated yet
				t.recordOutput(ctx, x, row)
			}
		} else {
			if first < 0 {
				first = row.Index
			}
			t.ids, t.positions, t.seqs = append(t.ids, row.Token), append(t.positions, row.Pos), append(t.seqs, number)
			if text, ok := t.text(x.Ctx, row.Token); ok {
				t.texts = append(t.texts, text)
			}
		}
		if known {
			ctx.last[number] = lastToken{x.MonoNS, row.Phase == ggmlhooks.PhasePrefill}
		}
	}
	if len(t.ids) == 0 {
		return
	}
	t.begin(resource.KindInputTokens, x.MonoNS, int64(x.Ctx))
	t.Uint("exec", x.Number)
	t.Int("token_first", first)
	t.Ints("token_ids", t.ids)
	if len(t.texts) == len(t.ids) {
		t.Key("token_texts")
		t.Append(func(dst []byte) []byte { return appendTexts(dst, t.texts) })
	}
	t.Ints("positions", t.positions)
	t.Ints("seq_ids", t.seqs)
	t.put(resource.Measured)
}

func (t *tokens) text(ctx uint32, token int32) (string, bool) {
	if t.spell == nil || token < 0 {
		return "", false
	}
	return t.spell(ctx, token)
}

// recordOutput records a generated token.
func (t *tokens) recordOutput(ctx *context, x *execution, row *ggmlhooks.Row) {
	t.begin(resource.KindOutputToken, x.MonoNS, int64(x.Ctx))
	t.Uint("exec", x.Number)
	describeRow(&t.Line, row)
	if text, ok := t.text(x.Ctx, row.Token); ok {
		t.String("token_text", text)
	}
	if number, ok := seq(row); ok {
		if before, ok := ctx.last[number]; ok && before.mono < x.MonoNS {
			t.Int("latency_ns", x.MonoNS-before.mono)
			if before.prompt {
				t.Bool("first", true)
			}
		}
	}
	t.put(resource.Measured)
}

// describeRow adds which token a row is.
func describeRow(l *rundir.Line, row *ggmlhooks.Row) {
	l.Int("token_index", row.Index)
	l.Int("token_id", int64(row.Token))
	l.Int("pos", int64(row.Pos))
	if number, ok := seq(row); ok {
		l.Int("seq_id", int64(number))
	}
}

// sample records a sampler's choice.
func (t *tokens) sample(c *ggmlhooks.Sample) {
	t.noteTime(c.MonoNS)
	if !t.level().Includes(resource.KindSampling) {
		return
	}
	l := &t.Line
	t.begin(resource.KindSampling, c.MonoNS, int64(c.Ctx))
	l.Open("sampling")
	l.Int("selected_token", int64(c.Token))
	if text, ok := t.text(c.Ctx, c.Token); ok {
		l.String("selected_token_text", text)
	}
	t.ids, t.texts, t.numbers = t.ids[:0], t.texts[:0], t.numbers[:0]
	probabilities := false
	for i := range c.Top {
		top := &c.Top[i]
		if math.IsInf(float64(top.Logit), -1) {
			continue // the chain ruled it out
		}
		t.ids, t.numbers = append(t.ids, top.Token), append(t.numbers, top.Logit)
		if text, ok := t.text(c.Ctx, top.Token); ok {
			t.texts = append(t.texts, text)
		}
		if probabilities = probabilities || top.P > 0; top.Token == c.Token && top.P > 0 {
			l.Float("selected_prob", float64(top.P))
		}
	}
	l.Ints("top_tokens", t.ids)
	l.Floats("logits_sample", t.numbers)
	if probabilities {
		t.numbers = t.numbers[:0]
		for i := range t.ids {
			t.numbers = append(t.numbers, c.Top[i].P) // highest logit first: what was ruled out comes after
		}
		l.Floats("top_probs", t.numbers)
	}
	if len(t.texts) == len(t.ids) && len(t.ids) > 0 {
		l.Key("top_token_texts")
		l.Append(func(dst []byte) []byte { return appendTexts(dst, t.texts) })
	}
	l.Int("candidates_before", int64(c.InSize))
	l.Int("candidates_after", int64(c.OutSize))
	l.Shut()
	t.put(resource.Measured)
}
