package analyze

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

const (
	// runValuesName is the folder of the figures of each run.
	runValuesName = "run_values"
	// hiveNull is how Hive names the partition of rows that lack a value.
	hiveNull = "__HIVE_DEFAULT_PARTITION__"
)

// runValueColumns are those of run_values, one row per run and figure, without the columns of its partition.
var runValueColumns = []table.Column{
	{Name: "experiment", Kind: table.Text, Description: "name of the experiment"},
	{Name: "cell", Kind: table.Text, Description: "key of the cell of the matrix"},
	{Name: "prompt", Kind: table.Text, Description: "id of the prompt"},
	{Name: "max_tokens", Kind: table.Int64, Unit: "tokens", Description: "most tokens generated per prompt"},
	{Name: "run_id", Kind: table.Text, Description: "run that the figure is of"},
	{Name: "repetition", Kind: table.Int64, Description: "number of the repetition, from 0"},
	{Name: "validity", Kind: table.Text, Description: "clean, marginal or contaminated"},
	{Name: "region_type", Kind: table.Text, Description: "type of region; run: of the run as a whole"},
	{Name: "metric", Kind: table.Text, Description: "column of metrics.csv, or figure of the run"},
	{Name: "value", Kind: table.Float64, Null: true, Description: "the figure; null: it is a label"},
	{Name: "label", Kind: table.Text, Null: true, Description: "the label; null: the figure is a number"},
}

// WriteRuns writes the figures of each run that was aggregated below a folder, partitioned as Hive does it:
//
//	<dir>/run_values/model_id=…/n_ctx=…/kv_type=…/concurrency=…/values.parquet
//
// It replaces a run_values that is there.
func (r *Aggregated) WriteRuns(dir string) error {
	draft, err := rundir.NewDraft(filepath.Join(dir, runValuesName))
	if err != nil {
		return fmt.Errorf("make %s: %w", runValuesName, err)
	}
	defer draft.Discard()
	partitions := map[string][]runValues{}
	for _, run := range r.runs {
		path := run.partition()
		partitions[path] = append(partitions[path], run)
	}
	for _, path := range slices.Sorted(maps.Keys(partitions)) {
		if err := os.MkdirAll(draft.Path(path), 0o700); err != nil {
			return fmt.Errorf("make a partition of %s: %w", runValuesName, err)
		}
		var rows [][]any
		for _, run := range partitions[path] {
			rows = append(rows, run.rows()...)
		}
		err := saveFile(draft.Path(filepath.Join(path, "values.parquet")), func(w io.Writer) error {
			return writeRows(w, table.Schema{Columns: runValueColumns}, rows)
		})
		if err != nil {
			return err
		}
	}
	return draft.Publish(true)
}

// hiveEscapes are characters that a URL's path keeps, and the names of partitions do not.
var hiveEscapes = strings.NewReplacer("=", "%3D", "+", "%2B", ":", "%3A")

// partition is the folder of a run.
func (f *runValues) partition() string {
	c := &f.run.Cell
	part := func(name, value string) string {
		return name + "=" + cmp.Or(hiveEscapes.Replace(url.PathEscape(value)), hiveNull)
	}
	return filepath.Join(part("model_id", c.ModelID), part("n_ctx", strconv.Itoa(c.NCtx)), part("kv_type", c.KVType),
		part("concurrency", strconv.Itoa(c.Concurrency)))
}

// rows are a value per column for each figure.
func (f *runValues) rows() (all [][]any) {
	r := f.run
	for _, m := range f.figures {
		var value *float64
		if m.text == "" {
			value = &m.value
		}
		all = append(all, []any{r.Experiment.Name, r.Cell.Key, r.Cell.Prompt, r.Cell.MaxTokens, r.RunID,
			r.Cell.Repetition, string(r.Validity.Class), m.kind, m.name, value, m.text})
	}
	return all
}
