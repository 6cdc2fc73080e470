package export

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/table"
)

// A dataset has one row per token and one column per tensor. Every token gets a random key by the seed and its
// index, a bijection of the index, and the rows are sorted by their keys: a shard is a range of keys. So rows go to
// a file per range as they come, and each of those is sorted in memory. With Options.Window, so many tokens are
// shuffled together, and their shards written before those of the next.

// defaultDatasetMB is the size of a shard before compression.
const defaultDatasetMB = 256

// shuffleKey is the place of a token in the order of a seed (SplitMix64, Steele et al. 2014: the index-th number
// that follows the seed).
func shuffleKey(seed uint64, token int64) uint64 {
	return mix(mix(seed) + uint64(token)*0x9e3779b97f4a7c15)
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// The columns before those of tensors.
var datasetColumns = []table.Column{
	{Name: "token_index", Kind: table.Int64,
		Description: "number of the token in the run, as in activations_tokens.json"},
	{Name: "token_id", Kind: table.Int32, Null: true, Description: "id in the vocabulary"},
	{Name: "token_text", Kind: table.Text, Null: true, Description: "text of the token; null: the run has no texts"},
	{Name: "prompt_id", Kind: table.Text, Null: true,
		Description: "id of the prompt, as the results of run --prompts name it; null: unknown"},
	{Name: "seq_id", Kind: table.Int32, Null: true, Description: "sequence; null: unknown, or several"},
	{Name: "pos", Kind: table.Int32, Null: true, Description: "position in the sequence"},
	{Name: "request", Kind: table.Int32, Null: true, Description: "request that the token belongs to"},
	{Name: "phase", Kind: table.Text, Description: "prefill or decode"},
}

// datasetInfo is llamatap.json.
type datasetInfo struct {
	Provenance
	Seed    uint64     `json:"seed"`
	Rows    int64      `json:"rows"`
	LeftOut int64      `json:"rows_left_out"` // tokens that lack one of the tensors; only with Options.Complete
	Shards  int        `json:"shards"`
	Window  int64      `json:"window,omitempty"` // tokens that were shuffled together; absent: all
	Tensors []npyArray `json:"tensors"`
	*Captured
	Metadata any `json:"run,omitempty"` // metadata.json of the run; while it is recorded, absent
}

// dataset is a dataset under way.
type dataset struct {
	*exporter
	all     *arrays
	columns map[*array]int
	schema  table.Schema
	ranges  int // of keys, each a spill of a window
	windows map[int64]*window
	info    datasetInfo
	text    func(token int64, id int32) string
	prompts promptIDs
	kept    map[promptKey]int64 // rows that came into shards since they were counted; nil: nobody counts
	written []writtenShard      // of the window, which are published together
	record  []byte              // a row that does not fit into a buffer
	held    atomic.Int64        // bytes of spills and shards, with what is not in its file yet
	waiting atomic.Int64        // of them, those that are not in their file yet
}

func (e *exporter) newDataset(all *arrays, about Provenance) *dataset {
	return &dataset{exporter: e, all: all, columns: map[*array]int{}, windows: map[int64]*window{},
		info:   datasetInfo{Provenance: about, Seed: e.o.Seed, Window: e.o.Window},
		schema: table.Schema{Columns: slices.Clone(datasetColumns)}}
}

// dataset writes a folder of shards with a card.
func (e *exporter) dataset() error {
	all, err := plan(&e.source)
	if err != nil {
		return err
	}
	d := e.newDataset(all, e.provenance())
	if e.run.Metadata != nil {
		d.info.Metadata = e.run.Metadata
	}
	if err := errors.Join(d.settle(), d.label()); err != nil {
		return err
	}
	if err := d.spill(); err != nil {
		return err
	}
	switch {
	case d.info.Rows == 0:
		return fmt.Errorf("%s: no token has all of the %d chosen tensors: choose fewer with --tensor or --layer",
			e.run.Path, len(all.all))
	case d.info.LeftOut > 0 && !e.o.Complete:
		return d.incomplete(d.info.LeftOut)
	case d.info.LeftOut > 0:
		e.note("left out: %s without a row of each tensor (in the last layer only tokens with output have rows)",
			present.Plural(d.info.LeftOut, "token"))
	}
	if err := d.describe(); err != nil {
		return err
	}
	if err := os.Remove(e.draft.Path(spillFolder)); err != nil {
		return err
	}
	e.result.Rows, e.result.Tensors = d.info.Rows, len(all.all)
	e.measure()
	return e.draft.publishFolder()
}

// settle checks that every tensor is a column, and cuts the keys into shards.
func (d *dataset) settle() error {
	for _, a := range d.all.all {
		if first := d.all.all[0]; a.ctx != first.ctx {
			return fmt.Errorf("%s: tensors of contexts %d and %d are chosen: choose one with --ctx", d.run.Path,
				first.ctx, a.ctx)
		}
	}
	rowBytes, least, most := int64(0), d.all.all[0].count, int64(0)
	for _, a := range d.all.all {
		if err := d.addColumn(a); err != nil {
			return err
		}
		rowBytes += 4 * elementsOf(a.shape)
		least, most = min(least, a.count), max(most, a.count)
	}
	if least < most && !d.o.Complete {
		return d.incomplete(most - least)
	}
	d.ranges = windowRanges
	if d.o.Window > 0 {
		return d.attribute()
	}
	size := shardBytes(&d.o)
	shards := (most*rowBytes + size - 1) / size
	if most*4 < shards { // of rows as large as a shard, about one in each
		shards = most
	}
	d.ranges = int(max(shards, 1))
	return d.attribute()
}

// attribute says in every shard where it comes from.
func (d *dataset) attribute() error {
	about, err := json.Marshal(d.info.Provenance)
	d.schema.Metadata = [][2]string{{"llamatap", string(about)}}
	return err
}

// shardBytes is the size of a shard's elements as float32.
func shardBytes(o *Options) int64 { return cmp.Or(o.ShardMB, defaultDatasetMB) * 1_000_000 }

// addColumn makes the next column of a tensor.
func (d *dataset) addColumn(a *array) error {
	switch {
	case a.axis != tensors.AxisToken || a.sampled || a.dtype == codec.Raw:
		return fmt.Errorf(
			"%s: tensor %s has no row for every token: leave it out with --tensor or --component, or export it as npy",
			d.run.Path, a.label)
	case a.label != a.tensor:
		return fmt.Errorf(
			"%s: tensor %s has rows of several shapes or types: leave it out, or choose tokens of one with --token",
			d.run.Path, a.tensor)
	}
	d.columns[a] = len(d.info.Tensors)
	d.schema.Columns = append(d.schema.Columns,
		table.Column{Name: a.label, Kind: table.Float32List, Description: "tensor " + a.label + " of the token"})
	about := a.describe("", "")
	about.Shape[0] = -1
	d.info.Tensors = append(d.info.Tensors, about)
	return nil
}

// incomplete is the error for tokens that lack a tensor: which tensors have fewer rows than others, and what to do.
func (d *dataset) incomplete(tokens int64) error {
	most, few := int64(0), []string(nil)
	for _, a := range d.all.all {
		most = max(most, a.count)
	}
	for _, a := range d.all.all {
		if a.count < most {
			few = append(few, a.label)
		}
	}
	return fmt.Errorf(
		"%s: no row of a chosen tensor for %d of %s: %s (the last layer computes output rows only): leave "+
			"these out with --tensor or --layer, "+
			"choose tokens with --phase decode, or keep only the tokens that have all tensors with --complete",
		d.run.Path,
		tokens, present.Plural(most, "token"), listed(few))
}

// label reads what names the rows: texts of tokens, and ids of prompts where their results are given.
func (d *dataset) label() (err error) {
	texts := map[int64]string{}
	d.text = func(token int64, _ int32) string { return texts[token] }
	_, err = d.run.EachToken(func(t *tensors.Token) error {
		if t.Text != "" {
			texts[t.Index] = t.Text
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if d.o.Results == "" {
		return nil
	}
	file, err := os.Open(d.o.Results)
	if err != nil {
		return fmt.Errorf("--results: %w: give the file that 'llamatap run --prompts --results' wrote", err)
	}
	defer file.Close()
	d.prompts, err = readPromptIDs(file)
	return err
}

// row adds a token.
func (d *dataset) row(b *table.Batch, parts []spilled) (err error) {
	le, head := binary.LittleEndian, parts[0].data
	token := int64(le.Uint64(head))
	b.Int(0, token)
	var ids [4]int32 // token_id, seq, pos, request
	for i, column := range []int{1, 4, 5, 6} {
		if ids[i] = int32(le.Uint32(head[8+4*i:])); ids[i] != unknown {
			b.Int(column, int64(ids[i]))
		}
	}
	if text := d.text(token, ids[0]); text != "" {
		b.Text(2, text)
	}
	if id := d.prompts[promptKey{ids[1], ids[3]}].id; id != "" {
		b.Text(3, id)
	}
	b.Text(7, label.Phase(head[24]).String())
	var values []float32
	for _, part := range parts {
		a := d.all.all[part.column]
		var p piece
		p.Name, p.DType = a.tensor, a.dtype
		if values, err = d.appendFloats(values[:0], part.data[spillHead:], &p); err != nil {
			return err
		}
		b.Floats(len(datasetColumns)+part.column, values)
	}
	return b.EndRow()
}

// describe writes the card that load_dataset reads, and llamatap.json.
func (d *dataset) describe() error {
	text, err := json.MarshalIndent(d.info, "", "  ")
	if err != nil {
		return err
	}
	among := ""
	if d.o.Window > 0 {
		among = fmt.Sprintf("among %d tokens at a time ", d.o.Window)
	}
	var card strings.Builder
	card.WriteString(
		"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: " +
			"data/train-*.parquet\n---\n\n")
	fmt.Fprintf(&card,
		"Activations of %s, one row per token, shuffled %swith seed %d: %d rows in %d files.\n\n| column | shape "+
			"|\n|---|---|\n",
		cmp.Or(d.info.Model, "a model"), among, d.o.Seed, d.info.Rows, d.info.Shards)
	for _, a := range d.all.all {
		fmt.Fprintf(&card, "| `%s` | %s |\n", a.label, shapeText(a.shape))
	}
	card.WriteString("\nWritten by llamatap; `llamatap.json` says from which capture.\n")
	for name, data := range map[string][]byte{"README.md": []byte(card.String()), "llamatap.json": append(text, '\n')} {
		if err := errors.Join(os.RemoveAll(d.draft.Path(name+partSuffix)), d.writeFile(name+partSuffix, data),
			d.draft.publish(name)); err != nil {
			return err
		}
	}
	return nil
}
