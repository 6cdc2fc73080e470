package autoencoder

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// dataset is a folder of 'llamatap export --to dataset': shards of Parquet, whose columns of lists are tensors. Rows
// are shuffled: a token's neighbours are elsewhere.
type dataset struct {
	shards []string
	column string
}

// datasetAbout is what is read of a dataset's llamatap.json.
type datasetAbout struct {
	Model   string `json:"model"`
	Tensors []struct {
		Name  string `json:"name"`
		Layer *int   `json:"layer"`
	} `json:"tensors"`
	Run struct { // metadata.json
		Extra struct {
			Points []ggmlhooks.PointRecord `json:"points"`
		} `json:"extra"`
	} `json:"run"`
}

// isPoint reports whether a tensor is a point, and whether that is known.
func (a *datasetAbout) isPoint(tensor string, ref *ggmlhooks.PointRef) (is, known bool) {
	for _, p := range a.Run.Extra.Points {
		is = is || p.Tensor == tensor && p.Point == ref.Point && p.How == ggmlhooks.PointServed &&
			(ref.Layer == ggmlhooks.NoLayer || p.LayerNumber() == ref.Layer)
	}
	return is, len(a.Run.Extra.Points) > 0
}

// shards are the files of a dataset.
func shards(folder string) []string {
	names, _ := filepath.Glob(filepath.Join(folder, "data", "train-*.parquet")) // the pattern is valid
	return names
}

func isDataset(path string) bool { return len(shards(path)) > 0 }

func (d *dataset) open(folder string, what Selection) (about About, err error) {
	d.shards = shards(folder)
	text, err := os.ReadFile(filepath.Join(folder, "llamatap.json"))
	if err != nil {
		return about, fmt.Errorf("%w: a dataset without it was cut off, or is another program's: export or record it "+
			"again",
			err)
	}
	var info datasetAbout
	if err := json.Unmarshal(text, &info); err != nil {
		return about, fmt.Errorf("%s: llamatap.json is damaged: %w: export the dataset again", folder, err)
	}
	var all []string
	selected := 0
	for _, t := range info.Tensors {
		all = append(all, t.Name)
		if what.Layer != nil && (t.Layer == nil || *t.Layer != *what.Layer) {
			continue
		}
		whole, _ := path.Match(what.Tensor, t.Name)
		layered, _ := path.Match(what.Tensor, ggmlhooks.WithoutLayer(t.Name))
		if what.Point != nil {
			is, known := info.isPoint(t.Name, what.Point)
			if !known && what.Point.Point != ggmlhooks.PointResidPost { // which is asked for by default
				return about, fmt.Errorf("%s does not say which of its tensors is %s: name one with --tensor", folder,
					what.Point.Point)
			}
			whole = is || !known
			if is {
				about.Point = what.Point.Point.String()
			}
		}
		if whole || layered {
			d.column, about.Layer = t.Name, t.Layer
			selected++
		}
	}
	if selected != 1 {
		return about, fmt.Errorf("%s: %d tensors are selected of %s: name one with --tensor, or --layer", folder,
			selected,
			strings.Join(all, ", "))
	}
	about.Model, about.Tensor = info.Model, d.column
	return about, nil
}

func (d *dataset) each(ctx context.Context, fn func([]float32, int64) error) error {
	for _, name := range d.shards {
		if err := d.eachOf(ctx, name, fn); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// eachOf reads a shard, a row group at a time. Rows have equally many values.
func (d *dataset) eachOf(ctx context.Context, name string, fn func([]float32, int64) error) error {
	file, err := rundir.OpenFile(name)
	if err != nil {
		return err
	}
	defer file.Close()
	shard, err := table.NewReader(file)
	if err != nil {
		return err
	}
	for group := range shard.Groups() {
		values, err := shard.Floats(group, d.column)
		if err != nil {
			return err
		}
		tokens, err := shard.Column(group, "token_index")
		if err != nil {
			return err
		}
		width := len(values) / max(len(tokens.Ints), 1)
		if width == 0 || width*len(tokens.Ints) != len(values) {
			return errors.New("its rows have different numbers of values: export the dataset again")
		}
		for i, token := range tokens.Ints {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := fn(values[i*width:][:width], token); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *dataset) missing() []string { return nil }

// gap is the text in the place of tokens that a dataset lacks.
const gap = "…"

// eachToken calls fn with the tokens that are near, and once with a gap where tokens of a sequence are missing between
// two of them.
func (d *dataset) eachToken(near func(int64) bool, fn func(*tensors.Token) error) error {
	var tokens []tensors.Token
	for _, name := range d.shards {
		var err error
		if tokens, err = appendTokens(tokens, name, near); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	slices.SortFunc(tokens, func(a, b tensors.Token) int { return cmp.Compare(a.Index, b.Index) })
	next := map[sequence]int32{} // position
	for i := range tokens {
		t := &tokens[i]
		key, pos := sequenceOf(t), value(t.Pos)
		if expected, known := next[key]; known && pos != expected {
			missing := *t
			missing.Index, missing.Text = -1, gap
			if err := fn(&missing); err != nil {
				return err
			}
		}
		next[key] = pos + 1
		if err := fn(t); err != nil {
			return err
		}
	}
	return nil
}

// appendTokens appends the tokens of a shard that are near.
func appendTokens(tokens []tensors.Token, name string, near func(int64) bool) ([]tensors.Token, error) {
	file, err := rundir.OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	shard, err := table.NewReader(file)
	if err != nil {
		return nil, err
	}
	for group := range shard.Groups() {
		var columns [5]table.Values
		for i, column := range []string{"token_index", "token_text", "seq_id", "pos", "request"} {
			if columns[i], err = shard.Column(group, column); err != nil {
				return nil, err
			}
		}
		number := func(column, row int) *int32 {
			if !columns[column].Valid[row] {
				return nil
			}
			return new(int32(columns[column].Ints[row]))
		}
		for row, index := range columns[0].Ints {
			if near(index) {
				tokens = append(tokens, tensors.Token{Index: index, Text: columns[1].Texts[row], Seq: number(2, row),
					Pos: number(3, row), Request: number(4, row)})
			}
		}
	}
	return tokens, nil
}

func (d *dataset) close() {}
