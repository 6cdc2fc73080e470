package resources

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/table"
)

// WriteText writes the layers with their hot experts, at most top of each, and the predictions for caches.
func (r *Experts) WriteText(w io.Writer, top int) error {
	out := &present.Text{W: w}
	out.Line("context %d: %s tokens in %s graphs; %s choices of experts, %s uses (experts of a layer that a graph "+
		"reads)",
		r.Ctx, present.Count(r.Tokens), present.Count(r.Graphs), present.Count(r.Choices), present.Count(r.Uses))
	if len(r.Others) > 0 {
		out.Line("other contexts chose experts too: --ctx takes one of %v", r.Others)
	}
	if r.Lost > 0 {
		out.Line("%s got lost: the figures are of the others", present.Plural(r.Lost, "choice"))
	}
	out.Line("")
	out.Columns(r.LayerRows(top))
	out.Line("\neach layer's newest experts")
	out.Columns(r.slotRows())
	if r.Caches == nil {
		out.Line("\nno prediction by size: %s", r.NoModel)
		return out.Err
	}
	out.Line("\nexperts of %s in %s", present.Bytes(r.Bytes), r.Model)
	out.Columns(r.CacheRows())
	return out.Err
}

// LayerRows are the layers with their hot experts, at most top of each, the head first.
func (r *Experts) LayerRows(top int) [][]string {
	rows := [][]string{{" layer", " experts", " never chosen", " entropy", " balance", "chosen most"}}
	for _, l := range r.Layers {
		rows = append(rows, l.cells(top))
	}
	return rows
}

// cells are the columns of a layer.
func (l *ExpertLayer) cells(top int) []string {
	never, experts, balance := 0, "", ""
	for _, n := range l.Chosen {
		if n == 0 {
			never++
		}
	}
	if l.Experts > 0 {
		experts, balance = strconv.Itoa(l.Experts), fmt.Sprintf("%.2f", *l.Balance)
	}
	var hot []string
	for _, x := range l.Hot()[:min(top, len(l.Chosen))] {
		if l.Chosen[x] > 0 {
			hot = append(hot, fmt.Sprintf("%d (%s)", x, present.Percent(l.Share(x))))
		}
	}
	return []string{strconv.Itoa(l.Layer), experts, strconv.Itoa(never), fmt.Sprintf("%.2f bits", l.Entropy), balance,
		strings.Join(hot, ", ")}
}

// slotRows are the hit rates of caches for each layer alone, the head first.
func (r *Experts) slotRows() [][]string {
	rows := [][]string{{" slots per layer", " hit rate"}}
	for _, s := range r.Slots {
		rows = append(rows, []string{strconv.Itoa(s.Slots), present.Percent(share(s.Hits, r.Uses))})
	}
	return rows
}

// CacheRows are the predictions by size, the head first.
func (r *Experts) CacheRows() [][]string {
	rows := [][]string{{" --moe-cache-mib", " of experts", " LRU hit rate", " llama.cpp hit rate", " slots", " hits",
		" misses",
		" uploaded", " past the cache"}}
	for _, c := range r.Caches {
		var slots []string
		for _, g := range c.Groups {
			slots = append(slots, strconv.Itoa(g.Slots))
		}
		rows = append(rows, []string{strconv.FormatInt(c.MiB, 10), present.Percent(share(c.MiB<<20, r.Bytes)),
			present.Percent(c.LRURate()), present.Percent(c.Rate()), strings.Join(slots, "+"),
			strconv.FormatInt(c.Small.Hits+c.Large.Hits, 10), strconv.FormatInt(c.Small.Misses+c.Large.Misses, 10),
			present.Bytes(c.Small.Bytes + c.Large.Bytes), strconv.FormatInt(c.Past, 10)})
	}
	return rows
}

// ExpertTables are the tables that a run can be written as.
var ExpertTables = []string{"expert", "size", "slots"}

// WriteCSV writes one of [ExpertTables]. A figure that is not known is an empty cell.
func (r *Experts) WriteCSV(w io.Writer, by string) error {
	switch by {
	case "size":
		out := table.NewCSV(w, "mib", "uses", "lru_hits", "hits_up_to_8", "misses_up_to_8", "hits_over_8",
			"misses_over_8", "uploaded_bytes", "past")
		for _, c := range r.Caches {
			out.Row(c.MiB, c.Of, c.LRU, c.Small.Hits, c.Small.Misses, c.Large.Hits, c.Large.Misses,
				c.Small.Bytes+c.Large.Bytes, c.Past)
		}
		return out.Close()
	case "slots":
		out := table.NewCSV(w, "slots", "uses", "hits")
		for _, s := range r.Slots {
			out.Row(int64(s.Slots), r.Uses, s.Hits)
		}
		return out.Close()
	}
	out := table.NewCSV(w, "layer", "expert", "chosen", "share", "weight")
	for _, l := range r.Layers {
		for _, x := range l.Hot() {
			weight := any(nil)
			if x < len(l.Weights) {
				weight = l.Weights[x]
			}
			out.Row(int64(l.Layer), int64(x), l.Chosen[x], l.Share(x), weight)
		}
	}
	return out.Close()
}

// routingColumns are the columns of the table of choices.
var routingColumns = []table.Column{
	{Name: "ctx", Kind: table.Uint32, Description: "context"},
	{Name: "exec", Kind: table.Uint64, Encoding: table.Delta, Description: "number of the micro-batch"},
	{Name: "token_index", Kind: table.Int64, Encoding: table.Delta, Description: "number of the token in the run"},
	{Name: "token_id", Kind: table.Int32, Description: "id in the vocabulary"},
	{Name: "pos", Kind: table.Int32, Encoding: table.Delta, Description: "position in the sequence"},
	{Name: "layer", Kind: table.Int32, Description: "layer"},
	{Name: "rank", Kind: table.Int32, Description: "place of the expert among those of the token, 0 first"},
	{Name: "expert", Kind: table.Int32, Description: "expert"},
	{Name: "seq_id", Kind: table.Int32, Null: true, Description: "sequence; null: unknown, or several"},
	{Name: "weight", Kind: table.Float64, Null: true,
		Description: "what the expert's output is multiplied by; null: not recorded"},
}

// The columns that may be null.
const (
	columnSeq    = 8
	columnWeight = 9
)

// routingBatchRows is how many rows a group of the table has.
const routingBatchRows = 1 << 18

// WriteRouting writes a row per token, layer and chosen expert, of all contexts, in the order in which they were
// computed.
func WriteRouting(ctx context.Context, w io.Writer, path string) error {
	schema := table.Schema{Columns: routingColumns}
	out, err := table.NewParquet(w, schema)
	if err != nil {
		return err
	}
	rows := table.NewBatch(schema)
	if _, err = EachRouting(ctx, path, func(e *resource.Routing) error {
		for i, x := range e.Experts {
			for column, v := range [...]int64{int64(ContextOf(e.Ctx)), int64(e.Exec), e.TokenIndex, int64(e.TokenID),
				int64(e.Pos), int64(e.LayerID), int64(i), int64(x)} {
				rows.Int(column, v)
			}
			if e.SeqID != nil {
				rows.Int(columnSeq, int64(*e.SeqID))
			}
			if len(e.Weights) == len(e.Experts) {
				rows.Int(columnWeight, int64(math.Float64bits(float64(e.Weights[i]))))
			}
			if err := rows.EndRow(); err != nil {
				return err
			}
		}
		if rows.Rows() < routingBatchRows {
			return nil
		}
		err := out.Write(rows)
		rows.Reset()
		return err
	}); err != nil {
		return err
	}
	if err := out.Write(rows); err != nil {
		return err
	}
	return out.Close()
}
