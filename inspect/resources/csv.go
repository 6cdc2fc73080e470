package resources

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/store/table"
)

// The tables that a report can be written as.
const (
	ByCell      = "cell" // phase, layer, component and op: what the other tables of costs add up
	ByPhase     = "phase"
	ByComponent = "component"
	ByLayer     = "layer"
	ByOp        = "op"
	ByTensor    = "tensor"
	ByToken     = "token"
)

// Tables lists them.
var Tables = []string{ByCell, ByPhase, ByComponent, ByLayer, ByOp, ByTensor, ByToken}

var figureColumns = []string{"events", "nodes", "ns", "share", "flops", "flops_unmasked", "bytes_read", "bytes_written",
	"gflops_per_s", "gb_per_s", "roofline_share",
	"events_without_time", "ops_without_flops", "ops_without_mask", "ops_without_bytes"}

// WriteCSV writes one table of the report, of [Tables]. A figure that is not known is an empty cell.
func (r *Report) WriteCSV(w io.Writer, by string) error {
	if by == ByToken {
		out := NewTokenCSV(w)
		for _, row := range r.Tokens {
			WriteToken(out, row)
		}
		return out.Close()
	}
	var out *table.CSV
	write := func(f *Figures, cells ...any) { out.Row(append(cells, f.cells()...)...) }
	head := func(names ...string) { out = table.NewCSV(w, append(names, figureColumns...)...) }
	switch by {
	case ByCell:
		head("phase", "layer", "component", "operation")
		for _, cell := range r.cells() {
			f := r.cellFigures(cell)
			write(&f, cell.Phase, layerCell(cell.Layer), cell.Component, cell.Op)
		}
	case ByPhase:
		head("phase", "graphs", "mixed_graphs", "mixed_ns", "tokens", "tokens_per_s")
		for i := range r.Phases {
			p := &r.Phases[i]
			write(&p.Figures, p.Phase, p.Graphs, p.Mixed, p.MixedNS, p.Tokens, p.TokensPerS)
		}
	case ByComponent:
		head("component")
		for i := range r.Components {
			write(&r.Components[i].Figures, r.Components[i].Component)
		}
	case ByLayer:
		head("layer", "attention_ns", "mlp_ns", "apportioned_j")
		for i := range r.Layers {
			l := &r.Layers[i]
			write(&l.Figures, layerCell(l.Layer), mapped(l.ByComponent, componentAttention),
				mapped(l.ByComponent, componentMLP), l.ApportionedJ)
		}
	case ByOp:
		head("operation")
		for i := range r.Ops {
			write(&r.Ops[i].Figures, r.Ops[i].Op)
		}
	case ByTensor:
		head("operation", "name")
		for i := range r.Top {
			write(&r.Top[i].Figures, r.Top[i].Op, r.Top[i].Name)
		}
	default:
		return noTable(by)
	}
	return out.Close()
}

func (r *Report) cells() []Cell {
	return slices.SortedFunc(maps.Keys(r.sum.Cells.By), func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Layer, b.Layer),
			cmp.Compare(a.Component, b.Component), cmp.Compare(a.Op, b.Op))
	})
}

// cellFigures has no share for set-up, which is not part of the time that shares are of.
func (r *Report) cellFigures(cell Cell) Figures {
	cost := r.scaled(cell.Phase, r.sum.Cells.By[cell])
	f := r.figures(&cost)
	if cell.Phase == PhaseSetup {
		f.Share = nil
	}
	return f
}

// NewTokenCSV begins a table of tokens.
func NewTokenCSV(w io.Writer) *table.CSV {
	return table.NewCSV(w, "token_index", "token_id", "token_text", "ctx", "seq_id", "pos", "exec", "latency_ns",
		"graph_exec", "graph_tokens", "graph_ns",
		"attention_ns", "mlp_ns", "flops", "bytes_read", "bytes_written", "apportioned_j")
}

// WriteToken writes a row of it.
func WriteToken(out *table.CSV, t *TokenRow) {
	out.Row(t.Index, t.Token, t.Text, t.Ctx, t.Seq, t.Pos, t.Exec, t.LatencyNS, t.GraphExec, t.GraphTokens, t.GraphNS,
		t.AttentionNS, t.MLPNS, t.FLOPs, t.BytesRead, t.Written, t.ApportionedJ)
}

func (f *Figures) cells() []any {
	return []any{f.Events, f.Nodes, f.NS, f.Share, f.FLOPs, f.Useful, f.Read, f.Written, f.GFLOPsPerS, f.GBPerS,
		f.Roofline, f.Untimed, f.NoFLOPs, f.NoMask, f.NoBytes}
}

// layerCell leaves the cell empty for what belongs to no layer.
func layerCell(layer int) string {
	if layer < 0 {
		return ""
	}
	return strconv.Itoa(layer)
}

func mapped(by map[string]int64, key string) any {
	if ns, ok := by[key]; ok {
		return ns
	}
	return nil
}

// CellRow is the costs of one phase, layer, component and op.
type CellRow struct {
	Phase     string `json:"phase"`
	Layer     int    `json:"layer"`
	Component string `json:"component"`
	Op        string `json:"operation"`
	Figures
}

// EachRow calls do with every row of one table, of [Tables].
func (r *Report) EachRow(by string, do func(row any) error) error {
	switch by {
	case ByCell:
		for _, c := range r.cells() {
			if err := do(CellRow{c.Phase, c.Layer, c.Component, c.Op, r.cellFigures(c)}); err != nil {
				return err
			}
		}
		return nil
	case ByPhase:
		return eachOf(r.Phases, do)
	case ByComponent:
		return eachOf(r.Components, do)
	case ByLayer:
		return eachOf(r.Layers, do)
	case ByOp:
		return eachOf(r.Ops, do)
	case ByTensor:
		return eachOf(r.Top, do)
	case ByToken:
		return eachOf(r.Tokens, do)
	}
	return noTable(by)
}

func eachOf[T any](rows []T, do func(row any) error) error {
	for _, row := range rows {
		if err := do(row); err != nil {
			return err
		}
	}
	return nil
}

func noTable(by string) error {
	return fmt.Errorf("there is no table by %.40q: use %s", by, strings.Join(Tables, ", "))
}
