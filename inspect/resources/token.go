package resources

import (
	"github.com/llamatap/llamatap/resource"
)

// TokenRow is a generated token that was computed on, and the execution that did. A figure that is not known is absent.
type TokenRow struct {
	Index     int64   `json:"token_index"`
	Token     int32   `json:"token_id"`
	Text      *string `json:"token_text,omitempty"`
	Ctx       *uint32 `json:"ctx,omitempty"`
	Seq       *int32  `json:"seq_id,omitempty"`
	Pos       int32   `json:"pos"`
	Exec      uint64  `json:"exec"`
	LatencyNS *int64  `json:"latency_ns,omitempty"` // since the sequence's token before, from graph entry to graph entry
	// Of the execution, which may have computed several tokens:
	GraphTokens *int   `json:"graph_tokens,omitempty"`
	GraphNS     *int64 `json:"graph_ns,omitempty"`
	AttentionNS *int64 `json:"attention_ns,omitempty"`
	MLPNS       *int64 `json:"mlp_ns,omitempty"`
	FLOPs       *int64 `json:"flops,omitempty"`
	BytesRead   *int64 `json:"bytes_read,omitempty"`
	Written     *int64 `json:"bytes_written,omitempty"`
}

// execCost is what is known of an execution so far.
type execCost struct {
	attention, mlp *int64 // time in these components; nil where none was timed
	graph          *resource.Graph
	rows           []*TokenRow // that wait for its end
}

// tokens joins tokens with their executions, whichever is told of first. The newest executions are kept.
type tokens struct {
	execs map[uint64]*execCost
	order []uint64 // ring of their numbers
	next  int
}

// of returns what is known of an execution.
func (t *tokens) of(s *Sum, exec uint64) *execCost {
	if c := t.execs[exec]; c != nil {
		return c
	}
	c := &execCost{}
	t.execs[exec] = c
	if len(t.order) < maxExecs {
		t.order = append(t.order, exec)
		return c
	}
	oldest := t.order[t.next]
	t.order[t.next] = exec
	t.next = (t.next + 1) % maxExecs
	t.give(s, t.execs[oldest])
	delete(t.execs, oldest)
	return c
}

// inside adds the time of nodes to their execution.
func (t *tokens) inside(s *Sum, e *work) {
	if e.DurationNS < 0 {
		return
	}
	c := t.of(s, e.Exec)
	var to **int64
	switch e.ComponentType {
	case componentAttention:
		to = &c.attention
	case componentMLP:
		to = &c.mlp
	default:
		return
	}
	if *to == nil {
		*to = new(int64)
	}
	**to += e.DurationNS
}

// The components that attention against MLP is about.
const (
	componentAttention = "attention"
	componentMLP       = "mlp"
)

// end gives out the tokens of an execution that has ended.
func (t *tokens) end(s *Sum, e *resource.Graph) {
	c := t.of(s, e.Exec)
	c.graph = e
	t.give(s, c)
}

// output takes a generated token.
func (s *Sum) output(e *resource.OutputToken) {
	row := &TokenRow{
		Index: e.TokenIndex, Token: e.TokenID, Text: e.TokenText, Ctx: e.Ctx, Seq: e.SeqID, Pos: e.Pos, Exec: e.Exec, LatencyNS: e.LatencyNS,
	}
	if e.LatencyNS != nil {
		s.Latency.add(*e.LatencyNS)
	}
	c := s.tokens.of(s, e.Exec)
	c.rows = append(c.rows, row)
	if c.graph != nil {
		s.tokens.give(s, c)
	}
}

// give gives out the tokens that wait for an execution, with what is known of it.
func (t *tokens) give(s *Sum, c *execCost) {
	for _, row := range c.rows {
		row.AttentionNS, row.MLPNS = c.attention, c.mlp
		if g := c.graph; g != nil {
			row.GraphTokens, row.GraphNS, row.FLOPs, row.BytesRead, row.Written = &g.Tokens, g.DurationNS, g.FLOPs, g.BytesRead, g.BytesWritten
			if g.OpsWithoutFLOPs > 0 {
				row.FLOPs = nil // of a part of its ops
			}
		}
		switch {
		case s.Token != nil:
			s.Token(row)
		case len(s.Tokens) < maxTokens:
			s.Tokens = append(s.Tokens, row)
		default:
			s.TokensMore++
		}
	}
	c.rows = nil
}

// Finish gives out the tokens whose execution was not told of to its end. Call it when no more lines come.
func (s *Sum) Finish() {
	for i := range s.tokens.order {
		exec := s.tokens.order[(s.tokens.next+i)%len(s.tokens.order)]
		s.tokens.give(s, s.tokens.execs[exec])
	}
}
