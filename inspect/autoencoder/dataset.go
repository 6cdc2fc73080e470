package autoencoder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// dataset is a folder of 'llamatap export --to dataset': shards of Parquet, whose columns of lists are tensors. Rows
// are shuffled: a token's neighbours are elsewhere, so it has no texts.
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
	Run struct { // of a dataset that was written while the model ran
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
		return about, fmt.Errorf("%w: give a dataset of 'llamatap export --to dataset'", err)
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
		return about, fmt.Errorf("%s: %d tensors are selected of %s: name one with --tensor, or --layer", folder, selected,
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

func (d *dataset) eachToken(func(*tensors.Token) error) error { return nil }

func (d *dataset) close() {}
