package resources

import (
	"github.com/llamatap/llamatap/resource"
)

// TokenRow is a generated token, the time since the token before it, and the execution that produced it: that of
// the sequence's token before. A figure that is not known is absent.
type TokenRow struct {
	Index int64   `json:"token_index"`
	Token int32   `json:"token_id"`
	Text  *string `json:"token_text,omitempty"`
	Ctx   *uint32 `json:"ctx,omitempty"`
	Seq   *int32  `json:"seq_id,omitempty"`
	Pos   int32   `json:"pos"`
	Exec  uint64  `json:"exec"` // the execution that takes the token as input
	// since the sequence's token before, from graph entry to graph entry
	LatencyNS *int64 `json:"latency_ns,omitempty"`
	First     bool   `json:"first,omitempty"` // the one before is a prompt's
	// Of the execution that produced the token, which may have computed several tokens:
	GraphExec   *uint64 `json:"graph_exec,omitempty"`
	GraphTokens *int    `json:"graph_tokens,omitempty"`
	GraphNS     *int64  `json:"graph_ns,omitempty"`
	AttentionNS *int64  `json:"attention_ns,omitempty"`
	MLPNS       *int64  `json:"mlp_ns,omitempty"`
	FLOPs       *int64  `json:"flops,omitempty"`
	BytesRead   *int64  `json:"bytes_read,omitempty"`
	Written     *int64  `json:"bytes_written,omitempty"`
	// ApportionedJ is what all devices used for it as one of GraphTokens; absent where that is not known of one.
	ApportionedJ *float64 `json:"apportioned_j,omitempty"`
	unknownJ     bool
}

// maxWaiting is the newest tokens whose energy may still be read: it is reported a second after them.
const maxWaiting = 1 << 13

// waitingTokens are the newest tokens, by the execution that produced them.
type waitingTokens struct {
	ring []*TokenRow
	next int
	by   map[uint64][]*TokenRow
}

// add adds a token, and hands on the oldest one where there are too many.
func (t *waitingTokens) add(row *TokenRow, to func(*TokenRow)) {
	if row.GraphExec != nil {
		if t.by == nil {
			t.by = map[uint64][]*TokenRow{}
		}
		t.by[*row.GraphExec] = append(t.by[*row.GraphExec], row)
	}
	if len(t.ring) < maxWaiting {
		t.ring = append(t.ring, row)
		return
	}
	row, t.ring[t.next] = t.ring[t.next], row
	t.next = (t.next + 1) % maxWaiting
	if row.GraphExec != nil {
		delete(t.by, *row.GraphExec)
	}
	if to != nil {
		to(row)
	}
}

// flush hands on all of them.
func (t *waitingTokens) flush(to func(*TokenRow)) {
	for i := range t.ring {
		to(t.ring[(t.next+i)%len(t.ring)])
	}
	*t = waitingTokens{}
}

// energy adds what a device used for an execution to the tokens that it produced.
func (t *waitingTokens) energy(e *resource.GraphEnergy) {
	for _, row := range t.by[e.Exec] {
		switch {
		case row.unknownJ || e.JoulesPerToken == nil:
			row.unknownJ, row.ApportionedJ = true, nil
		case row.ApportionedJ == nil:
			row.ApportionedJ = new(*e.JoulesPerToken)
		default:
			*row.ApportionedJ += *e.JoulesPerToken
		}
	}
}

// execCost is what is known of an execution so far.
type execCost struct {
	attention, mlp *int64 // time in these components; nil where none was timed
	graph          *resource.Graph
}

// graphEntry names an execution by the time of its graph entry, from which a token's latency is measured.
type graphEntry struct {
	ctx  uint32
	mono int64
}

// executions are the newest of them: the costs of the nodes of each, then its graph, then the tokens that it produced.
type executions struct {
	byNumber map[uint64]*execCost
	byEntry  map[graphEntry]*execCost
	order    []uint64 // ring of their numbers
	next     int
}

// costOf returns what is known of an execution.
func (t *executions) costOf(exec uint64) *execCost {
	if c := t.byNumber[exec]; c != nil {
		return c
	}
	c := &execCost{}
	t.byNumber[exec] = c
	if len(t.order) < maxExecs {
		t.order = append(t.order, exec)
		return c
	}
	oldest := t.order[t.next]
	t.order[t.next] = exec
	t.next = (t.next + 1) % maxExecs
	if g := t.byNumber[oldest].graph; g != nil {
		delete(t.byEntry, entryOf(&g.Header, g.MonoNS))
	}
	delete(t.byNumber, oldest)
	return c
}

// entryOf is the execution of an event's context that began at a time.
func entryOf(h *resource.Header, mono int64) graphEntry {
	return graphEntry{ContextOf(h.Ctx), mono}
}

// inside adds the time of nodes to their execution.
func (t *executions) inside(e *work) {
	if e.DurationNS < 0 {
		return
	}
	var to **int64
	switch c := t.costOf(e.Exec); e.ComponentType {
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

// end notes the graph of an execution.
func (t *executions) end(e *resource.Graph) {
	c := t.costOf(e.Exec)
	c.graph = e
	t.byEntry[entryOf(&e.Header, e.MonoNS)] = c
}

// The components that attention against MLP is about.
const (
	componentAttention = "attention"
	componentMLP       = "mlp"
)

// produced adds the figures of the execution that produced the token.
func (row *TokenRow) produced(c *execCost) {
	g := c.graph
	row.GraphExec, row.GraphTokens, row.GraphNS, row.AttentionNS, row.MLPNS = &g.Exec, &g.Tokens, g.DurationNS,
		c.attention, c.mlp
	if row.BytesRead, row.Written = g.BytesRead, g.BytesWritten; g.OpsWithoutFLOPs == 0 {
		row.FLOPs = g.FLOPs // else of a part of its ops
	}
}
