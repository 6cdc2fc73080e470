package tensors

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/internal/present"
)

// DiffBy is what one line of a comparison stands for.
type DiffBy string

// What lines of a comparison can stand for.
const (
	DiffByLayer  DiffBy = "layer"
	DiffByTensor DiffBy = "tensor"
	DiffByToken  DiffBy = "token"
	DiffByRow    DiffBy = "row" // one tensor for one token
)

// DiffGroup is one line of a comparison: all rows of a layer, a tensor or a token.
type DiffGroup struct {
	Layer  *int    // of a layer or a tensor
	Tensor string  // of a tensor
	Ctx    uint32  // of a tensor or a token
	Token  *int64  // in the first run
	ID     int32   // of the token
	Text   *string // where the first run's tokens file has it
	Distance
	order int
}

// MarshalJSON writes what the line stands for, and its figures.
func (g DiffGroup) MarshalJSON() ([]byte, error) {
	var line struct {
		Layer  *int    `json:"layer,omitempty"`
		Tensor string  `json:"tensor,omitempty"`
		Ctx    uint32  `json:"ctx"`
		Token  *int64  `json:"token_index,omitempty"`
		ID     *int32  `json:"token_id,omitempty"`
		Text   *string `json:"token_text,omitempty"`
		distanceFigures
	}
	line.Layer, line.Tensor, line.Ctx, line.Token, line.Text, line.distanceFigures = g.Layer, g.Tensor, g.Ctx, g.Token,
		g.Text, g.figures()
	if g.Token != nil {
		line.ID = &g.ID
	}
	return json.Marshal(line)
}

// DiffGroups gathers the rows of a comparison into lines.
type DiffGroups struct {
	by    DiffBy
	texts *tokenTexts
	lines map[any]*DiffGroup
}

// NewDiffGroups makes lines of what by says; r is the first run.
func NewDiffGroups(r *Run, by DiffBy) (*DiffGroups, error) {
	g := &DiffGroups{by: by, lines: map[any]*DiffGroup{}}
	if by == DiffByToken {
		var err error
		if g.texts, err = r.tokenTexts(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Add takes a row.
func (g *DiffGroups) Add(row *RowDiff) error {
	var key any
	line := DiffGroup{order: len(g.lines)}
	switch g.by {
	case DiffByLayer:
		key, line.Layer = row.Layer, &row.Layer
	case DiffByTensor:
		key, line.Layer, line.Tensor, line.Ctx = tensorKey{row.Ctx, row.Tensor}, &row.Layer, row.Tensor, row.Ctx
	case DiffByToken:
		key, line.Token, line.ID, line.Ctx, line.Text = row.Token, &row.Token, row.ID, row.Ctx,
			g.texts.textOf(row.Token)
	default:
		return fmt.Errorf("lines of %q: use layer, tensor or token", g.by)
	}
	if known := g.lines[key]; known != nil {
		known.Merge(&row.Distance)
		return nil
	}
	line.Distance = row.Distance
	g.lines[key] = &line
	return nil
}

// Lines are the gathered lines: layers and tokens by number, tensors as they first came.
func (g *DiffGroups) Lines() []DiffGroup {
	lines := make([]DiffGroup, 0, len(g.lines))
	for _, line := range g.lines {
		lines = append(lines, *line)
	}
	slices.SortFunc(lines, func(a, b DiffGroup) int {
		switch g.by {
		case DiffByLayer:
			return cmp.Compare(*a.Layer, *b.Layer)
		case DiffByToken:
			return cmp.Compare(*a.Token, *b.Token)
		}
		return cmp.Compare(a.order, b.order)
	})
	return lines
}

// WriteDiff writes a comparison as a table.
func WriteDiff(w io.Writer, d *Diff, by DiffBy, lines []DiffGroup) error {
	fmt.Fprintf(w, "a         %s\nb         %s\n", d.A, d.B)
	fmt.Fprintf(w, "tokens    %d in common", d.Tokens)
	for _, n := range []struct {
		count int
		what  string
	}{{d.OtherID, "places with another token"}, {d.OnlyA, "in a only"}, {d.OnlyB, "in b only"}} {
		if n.count > 0 {
			fmt.Fprintf(w, ", %d %s", n.count, n.what)
		}
	}
	fmt.Fprintf(w, "\ntensors   %d compared%s%s\n", d.Tensors, someNames(", only in a: ", d.NamesOnlyA),
		someNames(", only in b: ", d.NamesOnlyB))
	for _, s := range d.Skipped {
		fmt.Fprintf(w, "left out  %s of %s: %s\n", present.Plural(s.Rows, "row"), s.Tensor, s.Reason)
	}
	fmt.Fprintln(w)
	titles := map[DiffBy][]string{
		DiffByLayer:  {" layer"},
		DiffByTensor: {" layer", "tensor"},
		DiffByToken:  {" token", "text"},
	}[by]
	rows := [][]string{slices.Concat(titles,
		[]string{" rows", " cosine", " lowest", " max |a-b|", " rms a-b", " rms/rms a",
			" NaN/Inf"})}
	for i := range lines {
		rows = append(rows, slices.Concat(lines[i].cells(by), distanceCells(&lines[i].Distance)))
	}
	all := make([]string, len(titles))
	all[0] = "all"
	rows = append(rows, slices.Concat(all, distanceCells(&d.Total)))
	if err := present.Fit(w, rows, Width); err != nil || d.Logits == nil {
		return err
	}
	d.Logits.write(w)
	return nil
}

func someNames(title string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	const most = 5
	text := title
	for i, name := range names[:min(most, len(names))] {
		if i > 0 {
			text += " "
		}
		text += name
	}
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}

func (g *DiffGroup) cells(by DiffBy) []string {
	switch by {
	case DiffByLayer:
		return []string{layerText(*g.Layer)}
	case DiffByTensor:
		return []string{layerText(*g.Layer), g.Tensor}
	}
	text := ""
	if g.Text != nil {
		text = strconv.Quote(*g.Text)
	}
	return []string{strconv.FormatInt(*g.Token, 10), text}
}

func distanceCells(d *Distance) []string {
	if d.Rows == 0 {
		return []string{"0", "-", "-", "-", "-", "-", "-"}
	}
	return []string{
		strconv.FormatInt(d.Rows, 10), strconv.FormatFloat(d.Cosine(), 'f', 6, 64),
		strconv.FormatFloat(d.CosineMin, 'f', 6, 64),
		strconv.FormatFloat(d.Max, 'g', 4, 64), strconv.FormatFloat(d.RMS(), 'g', 4, 64),
		strconv.FormatFloat(d.Relative(), 'g', 4, 64),
		strconv.FormatInt(d.NonFinite, 10),
	}
}
