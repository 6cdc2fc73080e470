package analyze

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/inspect/memory"
)

// Characterization is how the runs of experiments used memory, in a form that can be published: a row per run, part of
// the run and type of region, and how far samples agree with the ledger. Rows are in the order of the matrix.
type Characterization struct {
	rows       []characterRow
	agreements []agreementRow
	Runs       int
	NoLedger   []string // runs that have no ledger of rows, left out
}

// characterRow is one part of a run and one type of region.
type characterRow struct {
	run  *SealedRun
	part memory.Part
}

// agreementRow is how far one collector of samples agrees with the ledger of a run on one type of region.
type agreementRow struct {
	run                *SealedRun
	collector, kind    string
	compared           int64
	explained          int64
	found, inLedger    *int64 // pages found written, and of these those that the ledger says were
	ledger, foundAgain *int64 // pages that the ledger says were written, and of these those that were found
	tau                *float64
}

// Characterize reads the ledger of every run. progress, where it is not nil, is called with the runs that were read,
// of all.
func Characterize(ctx context.Context, f *Found, progress func(done, total int64)) (*Characterization, error) {
	c := &Characterization{NoLedger: []string{}}
	runs := slices.Clone(f.Runs)
	slices.SortFunc(runs, func(a, b SealedRun) int {
		return cmp.Or(cmp.Compare(a.Experiment.Name, b.Experiment.Name), cmp.Compare(a.Cell.Index, b.Cell.Index),
			cmp.Compare(a.Cell.Repetition, b.Cell.Repetition), cmp.Compare(a.RunID, b.RunID))
	})
	for i := range runs {
		run := &runs[i]
		parts, err := memory.Parts(ctx, run.Dir)
		switch {
		case errors.Is(err, memory.ErrNoTable) || err == nil && len(parts) == 0:
			c.NoLedger = append(c.NoLedger, run.RunID)
			continue
		case err != nil:
			return nil, err
		}
		c.Runs++
		for _, p := range parts {
			c.rows = append(c.rows, characterRow{run, p})
		}
		if slices.ContainsFunc(run.Collector.Used, func(used string) bool { return used != "graph" }) {
			report, err := memory.Analyze(ctx, run.Dir, memory.Options{})
			if err != nil {
				return nil, err
			}
			for k := range report.Agreement {
				c.addAgreement(run, &report.Agreement[k])
			}
		}
		if progress != nil {
			progress(int64(i)+1, int64(len(runs)))
		}
	}
	if c.Runs == 0 {
		return nil, fmt.Errorf("%w that has a ledger: %d contaminated ones and %d of no experiment are left out; take "+
			"contaminated ones with --contaminated, or run experiments with collector.graph_trace: rows", errNoRuns,
			len(f.Contaminated), f.Others)
	}
	return c, nil
}

// addAgreement adds how far a collector's samples agree with the ledger: by type of region, and as a whole.
func (c *Characterization) addAgreement(run *SealedRun, a *memory.Agreement) {
	all := agreementRow{run: run, collector: a.Collector, kind: ofRuns, compared: a.Compared, explained: a.Explained}
	if a.FirstTouch != nil {
		all.tau = a.FirstTouch.KendallTau
	}
	rows := []agreementRow{all}
	for _, t := range a.Types {
		rows = append(rows, agreementRow{run: run, collector: a.Collector, kind: t.Type, compared: t.Compared,
			explained: t.Explained})
	}
	for i := range a.Written {
		w := &a.Written[i]
		at := slices.IndexFunc(rows, func(r agreementRow) bool { return r.kind == w.Type })
		if at < 0 {
			at = len(rows)
			rows = append(rows, agreementRow{run: run, collector: a.Collector, kind: w.Type})
		}
		rows[at].found, rows[at].inLedger, rows[at].ledger, rows[at].foundAgain = &w.Pages, &w.InLedger, &w.Ledger,
			&w.Found
	}
	slices.SortStableFunc(rows[1:], func(a, b agreementRow) int { return cmp.Compare(a.kind, b.kind) })
	c.agreements = append(c.agreements, rows...)
}

// inSeconds turns nanoseconds, or nil, into seconds.
func inSeconds(ns any) any {
	if ns, ok := ns.(int64); ok {
		return float64(ns) / 1e9
	}
	return nil
}

// perUnit is a / b; nil where b is 0.
func perUnit(a uint64, b int64) any {
	if b == 0 {
		return nil
	}
	return float64(a) / float64(b)
}

// orNil returns v; nil where it is not known.
func orNil[T any](v T, ok bool) any {
	if !ok {
		return nil
	}
	return v
}
