package activations

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/internal/present"
)

// width is how many columns a note of a text takes.
const width = 100

// Table is one kind of result as rows of strings, integers and floats below a head. A nil cell is not known.
type Table struct {
	Name  string // for --by
	Title string
	Note  string // what the figures mean, in a sentence
	Head  []string
	Rows  [][]any

	missing string // why rows are not there; the end of Note
}

// Names are the tables that an analysis can have.
var Names = []string{"tensor", "layer", "token", "channel", "massive", "sink", "correlation", "lens"}

// tables are the results, in the order of Names. An empty table has a Note that says what was not found.
func (a *Analysis) tables() []*Table {
	tensors := &Table{Name: "tensor", Title: "Tensors",
		Note: "l2 is the norm of a token's row, sparsity the share of exact zeros.",
		Head: []string{"layer_name", "layer", "tokens", "channels", "l2_mean", "l2_max", "mean", "std", "min", "max",
			"sparsity"}}
	layers := &Table{Name: "layer", Title: "Similarity and rank",
		Note: "cosine: of a token's row to that of the captured layer before. rank: effective rank of the sampled " +
			"tokens. pc1, pc2: shares of the first principal components in their variance.",
		Head: []string{"layer_name", "layer", "before", "cosine", "cosine_min", "sampled", "rank", "pc1", "pc2"}}
	tokens := &Table{Name: "token", Title: "Tokens", Head: []string{"layer_name", "layer", "token_index", "token_text",
		"l2_norm", "mean", "std", "max", "min", "sparsity", "cosine", "pc1", "pc2"}}
	channels := &Table{Name: "channel", Title: "Outlier channels",
		Note: fmt.Sprintf("A channel whose magnitude is above %g × the token's root mean square in more than %s of "+
			"the tokens.", OutlierRMS, present.Percent(OutlierShare)),
		Head: []string{"layer_name", "layer", "channel", "share", "mean", "largest"}}
	if broken := a.notFinite(); broken != "" {
		tensors.Note += " Not finite, and left out of all figures: " + broken + "."
		layers.Note += " Tensors with values that are not finite have no rank: " + broken + "."
	}
	text := a.texts()
	for _, t := range a.Tensors {
		norms, most, known := 0.0, 0.0, 0
		for i := range t.Rows {
			r := &t.Rows[i]
			line := []any{t.Name, t.Layer, r.Token, text[r.Token], nil, nil, nil, nil, nil, r.Sparsity, nil, nil, nil}
			if m := r.Moments; m != nil {
				copy(line[4:], []any{m.L2, m.Mean, m.Std, m.Max, m.Min})
				norms, most, known = norms+m.L2, max(most, m.L2), known+1
			}
			if r.Cosine != nil {
				line[10] = *r.Cosine
			}
			for c, v := range r.Component {
				line[11+c] = v
			}
			tokens.Rows = append(tokens.Rows, line)
		}
		line := []any{t.Name, t.Layer, len(t.Rows), t.Width, nil, nil, nil, nil, nil, nil, t.Sparsity}
		if m := t.Moments; m != nil {
			copy(line[4:], []any{norms / float64(known), most, m.Mean, m.Std, m.Min, m.Max})
		}
		tensors.Rows = append(tensors.Rows, line)
		line = []any{t.Name, t.Layer, nil, nil, nil, nil, nil, nil, nil}
		if c := t.Cosine; c != nil && c.N > 0 {
			copy(line[2:], []any{c.Before, c.Mean, c.Min})
		}
		if t.Space != nil {
			line[5], line[6] = t.Space.Tokens, t.Space.EffectiveRank
			for i, share := range t.Space.Explained {
				line[7+i] = share
			}
		}
		layers.Rows = append(layers.Rows, line)
		for _, c := range t.Outliers {
			channels.Rows = append(channels.Rows, []any{t.Name, t.Layer, c.Channel, c.Share, c.Mean, c.Largest})
		}
	}
	massive := &Table{Name: "massive", Title: "Massive activations",
		Note: fmt.Sprintf("A value of at least %g and %g × the median magnitude of its token (Sun et al. 2024).",
			MassiveValue, MassiveRatio),
		Head: []string{"layer_name", "layer", "token_index", "token_text", "channel", "value", "median"}}
	for _, m := range a.Massive {
		massive.Rows = append(massive.Rows,
			[]any{m.Tensor, m.Layer, m.Token, text[m.Token], m.Channel, m.Value, m.Median})
	}
	if a.MassiveLeft > 0 {
		massive.Note += fmt.Sprintf(" %d more are not listed.", a.MassiveLeft)
	}
	sinks := &Table{Name: "sink", Title: "Attention sinks",
		Note: fmt.Sprintf("A token that later tokens, at least %d, give a mean weight above %g in at least one head. "+
			"mean: over all heads; heads: share of those above.", SinkLater, SinkWeight),
		Head: []string{"layer", "token_index", "token_text", "later_tokens", "mean", "heads"}}
	for _, s := range a.Sinks.Found {
		sinks.Rows = append(sinks.Rows, []any{s.Layer, s.Token, text[s.Token], s.Later, s.Mean, s.Heads})
	}
	sinks.noteMissing(a.Sinks.Why)
	pairs := &Table{Name: "correlation", Title: "Correlations of " + a.Metric + " between tensors, token by token",
		Note: "Pearson's r, which is not a cause: layers of the residual stream share what the layers before them " +
			"added. p takes tokens for independent, which tokens of one text are not: it is too small.",
		Head: []string{"layer_a", "layer_b", "correlation", "n", "p"}}
	if len(a.Tensors) > maxCorrelated {
		pairs.noteMissing(fmt.Sprintf("more than %d tensors: choose some with --tensor or --layer", maxCorrelated))
	}
	for _, c := range a.Correlations {
		pairs.Rows = append(pairs.Rows, []any{c.A, c.B, c.R, c.N, c.P})
	}
	tables := []*Table{tensors, layers, tokens, channels, massive, sinks, pairs}
	if a.Lens != nil {
		tables = append(tables, a.Lens.table(text))
	}
	return tables
}

// maxBroken is how many tensors with values that are not finite a note names.
const maxBroken = 8

// notFinite says how many values of which tensors are NaN or infinite; "" where all are finite.
func (a *Analysis) notFinite() string {
	var list []string
	more := uint64(0)
	for _, t := range a.Tensors {
		switch n := t.NaN + t.Inf; {
		case n > 0 && len(list) < maxBroken:
			list = append(list, fmt.Sprintf("%s: %d NaN, %d infinite of %d", t.Name, t.NaN, t.Inf, t.Elements))
		case n > 0:
			more += uint64(n)
		}
	}
	if more > 0 {
		list = append(list, fmt.Sprintf("%d values of other tensors", more))
	}
	return strings.Join(list, "; ")
}

// table is the lens as a table.
func (l *Lens) table(text map[int64]any) *Table {
	t := &Table{Name: "lens", Title: "Logit lens",
		Note: "The most probable next tokens, by the model's final norm and output head on the residual stream after " +
			"each layer.",
		Head: []string{"token_index", "token_text", "layer", "next_1", "p_1", "next_2", "p_2", "next_3", "p_3"}}
	for _, r := range l.Rows {
		row := []any{r.Token, text[r.Token], r.Layer, nil, nil, nil, nil, nil, nil}
		for i, token := range r.Top[:min(len(r.Top), 3)] {
			row[3+2*i], row[4+2*i] = tokenText(token.Text), token.Probability
		}
		t.Rows = append(t.Rows, row)
	}
	if c := l.Check; c != nil {
		t.Note += fmt.Sprintf(" The last layer's logits differ from the captured ones by %.2g of their root mean "+
			"square; the most probable token is the same in %d of %d.", c.NRMSE, c.Same, c.Tokens)
	}
	t.noteMissing(l.Why)
	return t
}

// noteMissing notes why rows are not there; "" is no reason.
func (t *Table) noteMissing(why string) {
	if why != "" {
		t.missing, t.Note = why, t.Note+" Missing: "+why+"."
	}
}

// tokenText is the text of a token, which is quoted except in CSV.
type tokenText string

// texts returns the tokens' texts; nil where the run has none.
func (a *Analysis) texts() map[int64]any {
	texts := map[int64]any{}
	if a.TokenMetadata != nil {
		for _, t := range a.TokenMetadata.Tokens {
			texts[t.Index] = tokenText(t.Text)
		}
	}
	return texts
}

// Cells are the table as text, its head first, floats with four digits.
func (t *Table) Cells() [][]string {
	rows := [][]string{t.Head}
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, v := range row {
			switch v := v.(type) {
			case nil:
				cells[i] = "-"
			case float64:
				cells[i] = strconv.FormatFloat(v, 'g', 4, 64)
			case tokenText:
				cells[i] = strconv.Quote(string(v))
			default:
				cells[i] = fmt.Sprint(v)
			}
		}
		rows = append(rows, cells)
	}
	return rows
}

// documentRows is how many rows of a table a document has that holds several tables.
const documentRows = 40

// Document are the tables of a document: all but tokens, the first rows of each.
func (a *Analysis) Document() []*Table {
	tables := slices.DeleteFunc(a.tables(), func(t *Table) bool { return t.Name == "token" })
	for _, t := range tables {
		if more := len(t.Rows) - documentRows; more > 0 && t.Name != "tensor" && t.Name != "layer" && t.Name != "lens" {
			t.Rows = t.Rows[:documentRows]
			t.Note += fmt.Sprintf(" %d more: llamatap analyze --by %s.", more, t.Name)
		}
	}
	return tables
}

// shown are the tables of a document where by is "", else that one.
func (a *Analysis) shown(by string) []*Table {
	if by == "" {
		return a.Document()
	}
	return slices.DeleteFunc(a.tables(), func(t *Table) bool { return t.Name != by })
}

// subject is a line on what was analysed.
func (a *Analysis) subject() string {
	text := present.Plural(len(a.Tensors), "tensor")
	if a.TokenMetadata != nil {
		text += ", " + present.Plural(a.TokenMetadata.Total, "token")
	}
	if left := a.left(); left != "" {
		text += "; left out, without whole rows of the chosen tokens: " + left
	}
	return text
}

// WriteText writes the tables, or the one named by, as text.
func (a *Analysis) WriteText(w io.Writer, by string) error {
	out := &present.Text{W: w}
	out.Line("run    %s\nmodel  %s\n       %s", a.Path, a.Model,
		strings.ReplaceAll(sheet.Wrap(a.subject(), width-7), "\n", "\n       "))
	for _, t := range a.shown(by) {
		if out.Line("\n%s", t.Title); len(t.Rows) == 0 {
			out.Line("none\n%s", sheet.Wrap(t.Note, width))
			continue
		}
		cells := t.Cells()
		for i := range cells[0] {
			if !slices.ContainsFunc(t.Rows, func(row []any) bool {
				switch row[i].(type) {
				case string, tokenText:
					return true
				}
				return false
			}) {
				cells[0][i] = " " + cells[0][i]
			}
		}
		if out.Columns(cells); t.Note != "" {
			out.Line("%s", sheet.Wrap(t.Note, width))
		}
	}
	return out.Err
}

// WriteMarkdown writes the same as a document.
func (a *Analysis) WriteMarkdown(w io.Writer, by string) error {
	out := &present.Text{W: w}
	out.Line("# %s\n\n%s: %s.", present.Markdown(a.Path), present.Markdown(a.Model), present.Markdown(a.subject()))
	for _, t := range a.shown(by) {
		if out.Line("\n## %s\n", present.Markdown(t.Title)); len(t.Rows) == 0 {
			out.Line("None. %s", present.Markdown(t.Note))
			continue
		}
		for i, cells := range t.Cells() {
			if out.Line("| %s |", present.Markdown(cells...)); i == 0 {
				out.Line("|%s", strings.Repeat("---|", len(cells)))
			}
		}
		if t.Note != "" {
			out.Line("\n%s", present.Markdown(t.Note))
		}
	}
	return out.Err
}

// WriteCSV writes one table, with all digits; what is not known is empty. A table that could not be made is an error,
// since CSV has no place for the reason.
func (a *Analysis) WriteCSV(w io.Writer, by string) error {
	out := csv.NewWriter(w)
	for _, t := range a.shown(by) {
		if len(t.Rows) == 0 && t.missing != "" {
			return fmt.Errorf("no rows of %s: %s", t.Name, t.missing)
		}
		out.Write(t.Head)
		for _, row := range t.Rows {
			cells := make([]string, len(row))
			for i, v := range row {
				if v != nil {
					cells[i] = fmt.Sprint(v)
				}
			}
			out.Write(cells)
		}
	}
	out.Flush()
	return out.Error()
}
