package analyze

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/store/rundir"
)

// cellGroup is the repetitions of one cell of an experiment.
type cellGroup struct {
	Experiment string     `json:"experiment"`
	Cell       matrixCell `json:"cell"`
	Runs       []string   `json:"runs"` // their ids
	Marginal   int        `json:"marginal"`
	// Contaminated counts those that are, where they are taken too.
	Contaminated int            `json:"contaminated,omitempty"`
	Rows         []statisticRow `json:"rows"`
}

// matrixCell is a cell without its repetition.
type matrixCell struct {
	Key         string `json:"key"`
	ModelID     string `json:"model_id"`
	Prompt      string `json:"prompt"`
	NCtx        int    `json:"n_ctx"`
	KVType      string `json:"kv_type"`
	MaxTokens   int    `json:"max_tokens"`
	Concurrency int    `json:"concurrency"`
}

// statisticRow is one figure of a cell.
type statisticRow struct {
	// Type is the type of region, or run for figures of runs as a whole.
	Type   string `json:"region_type"`
	Metric string `json:"metric"` // a column of metrics.csv; label=L is the share of runs that have it
	Statistic
}

// Aggregated is what was aggregated.
type Aggregated struct {
	Confidence   float64     `json:"confidence"`
	Runs         int         `json:"runs"`
	Contaminated []string    `json:"contaminated"` // left out
	Others       int         `json:"runs_of_no_experiment"`
	Unsealed     int         `json:"unsealed"`
	Groups       []cellGroup `json:"cells"`

	runs []runValues
}

// runValues is a run with its figures, which are not summarised.
type runValues struct {
	run     *SealedRun
	figures []metric
}

// ofRuns is the type that figures of whole runs stand under.
const ofRuns = "run"

// Aggregate puts runs together by cell. progress, where it is not nil, is called with the runs that were read, of all.
func Aggregate(ctx context.Context, f *Found, progress func(done, total int64)) (*Aggregated, error) {
	if len(f.Runs) == 0 {
		return nil, fmt.Errorf("%w: %d contaminated ones, %d of no experiment and %d that are not sealed are left "+
			"out; make some with 'llamatap mrm run', or take contaminated ones with --contaminated", errNoRuns,
			len(f.Contaminated), f.Others, f.Unsealed)
	}
	r := &Aggregated{Confidence: confidence, Runs: len(f.Runs), Contaminated: []string{}, Others: f.Others,
		Unsealed: f.Unsealed}
	for i := range f.Contaminated {
		r.Contaminated = append(r.Contaminated, f.Contaminated[i].RunID)
	}
	gathered := map[[2]string]*gathering{}
	for i := range f.Runs {
		run := &f.Runs[i]
		figures, err := metricsOf(ctx, run)
		if err != nil {
			return nil, err
		}
		figures = append(figures, figuresOfRun(run)...)
		r.runs = append(r.runs, runValues{run, figures})
		if progress != nil {
			progress(int64(i)+1, int64(len(f.Runs)))
		}
		key := [2]string{run.Experiment.Name, run.Cell.Key}
		g := gathered[key]
		if g == nil {
			g = &gathering{group: cellGroup{Experiment: run.Experiment.Name, Cell: matrixCell{
				run.Cell.Key, run.Cell.ModelID, run.Cell.Prompt, run.Cell.NCtx, run.Cell.KVType, run.Cell.MaxTokens,
				run.Cell.Concurrency}},
				values: map[figureName][]float64{}, having: map[figureName]int{}, of: map[string]int{}}
			gathered[key] = g
		}
		g.add(run, figures)
	}
	for _, g := range gathered {
		r.Groups = append(r.Groups, g.settle())
	}
	slices.SortFunc(r.Groups, func(a, b cellGroup) int {
		return cmp.Or(cmp.Compare(a.Experiment, b.Experiment), cmp.Compare(a.Cell.ModelID, b.Cell.ModelID),
			cmp.Compare(a.Cell.Prompt, b.Cell.Prompt),
			cmp.Compare(a.Cell.NCtx, b.Cell.NCtx), cmp.Compare(a.Cell.KVType, b.Cell.KVType),
			cmp.Compare(a.Cell.Key, b.Cell.Key))
	})
	return r, nil
}

// figureName is a figure's name.
type figureName struct{ kind, metric string }

// gathering is a group that is being gathered.
type gathering struct {
	group  cellGroup
	values map[figureName][]float64
	having map[figureName]int // runs, by a text that they have: label=L
	of     map[string]int     // runs, by type of region
	order  []figureName       // as they were seen first
}

// add takes a run in.
func (g *gathering) add(run *SealedRun, figures []metric) {
	g.group.Runs = append(g.group.Runs, run.RunID)
	switch run.Validity.Class {
	case memory.Marginal:
		g.group.Marginal++
	case memory.Contaminated:
		g.group.Contaminated++
	}
	kinds := map[string]bool{}
	for _, m := range figures {
		if !kinds[m.kind] {
			kinds[m.kind] = true
			g.of[m.kind]++
		}
		f := figureName{m.kind, m.name}
		if m.text != "" {
			f.metric += "=" + m.text
		}
		if len(g.values[f]) == 0 && g.having[f] == 0 {
			g.order = append(g.order, f)
		}
		if m.text == "" {
			g.values[f] = append(g.values[f], m.value)
		} else {
			g.having[f]++
		}
	}
}

// figuresOfRun are the figures of a run as a whole: its speed, and what recording cost.
func figuresOfRun(run *SealedRun) (metrics []metric) {
	prefill, decode := run.Observer.Tapped.Rates()
	for _, v := range []struct {
		name  string
		value *float64
	}{
		{"prefill_tokens_per_s", positive(prefill)}, {"decode_tokens_per_s", positive(decode)},
		{"decode_ratio", run.Observer.DecodeRatio},
		{"prefill_ratio", run.Observer.PrefillRatio}, {"wall_ratio", run.Observer.WallRatio},
		{"observer_cpu_pct", run.Observer.CPUPct}, {"observer_cpu_peak_pct", run.Observer.CPUPeakPct},
		{"observer_memory_pct", run.Observer.MemoryPct},
	} {
		if v.value != nil {
			metrics = append(metrics, metric{kind: ofRuns, name: v.name, value: *v.value})
		}
	}
	return metrics
}

func positive(v float64) *float64 {
	if v > 0 {
		return &v
	}
	return nil
}

// settle computes the statistics. A text is counted in all runs that report its type of region: a run without it
// does not have it.
func (g *gathering) settle() cellGroup {
	for _, f := range g.order {
		row := statisticRow{Type: f.kind, Metric: f.metric}
		if k := g.having[f]; k > 0 {
			row.Statistic = shareOfRuns(k, g.of[f.kind])
		} else {
			row.Statistic = meanOf(g.values[f], upper(f.metric))
		}
		g.group.Rows = append(g.group.Rows, row)
	}
	slices.SortStableFunc(g.group.Rows, func(a, b statisticRow) int { return cmp.Compare(a.Type, b.Type) })
	return g.group
}

// metric is one figure of a run.
type metric struct {
	kind, name string
	value      float64
	text       string // a label; "": the metric is a number
}

// metricsOf reads a run's metrics.csv, or computes it where the run has none.
func metricsOf(ctx context.Context, run *SealedRun) ([]metric, error) {
	path := filepath.Join(run.Dir, metricsName)
	if run.has(metricsName) {
		file, err := rundir.OpenFile(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return parseMetrics(file, path)
	}
	s, err := readSurvey(ctx, run.Dir)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	write, err := s.measure(ctx, memory.Options{})
	if err == nil {
		err = write(&text)
	}
	if err != nil {
		return nil, err
	}
	return parseMetrics(strings.NewReader(text.String()), path)
}

// parseMetrics reads metrics.csv; empty cells are left out.
func parseMetrics(r io.Reader, name string) (metrics []metric, err error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil || len(rows) == 0 || len(rows[0]) == 0 || rows[0][0] != "region_type" {
		return nil, fmt.Errorf("%s: %w: it does not begin with region_type: it was not written by llamatap", name,
			cmp.Or(err, errors.New("no metrics")))
	}
	for _, row := range rows[1:] {
		for i, text := range row[1:] {
			column := rows[0][i+1]
			if text == "" {
				continue
			}
			if v, err := strconv.ParseFloat(text, 64); err == nil {
				metrics = append(metrics, metric{kind: row[0], name: column, value: v})
			} else {
				metrics = append(metrics, metric{kind: row[0], name: column, text: text})
			}
		}
	}
	return metrics, nil
}
