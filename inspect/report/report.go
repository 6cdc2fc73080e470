package report

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/present"
)

// Report is the verdict on a run, and what it follows from.
type Report struct {
	Path    string          `json:"path"`
	State   resources.State `json:"state"`
	Model   string          `json:"model,omitempty"`
	Verdict string          `json:"verdict"` // one to three sentences
	// Findings are all causes that were considered: those that stand out, then the others, the largest shares first,
	// then those that could not be judged.
	Findings []*Finding `json:"findings"`
	Notes    []string   `json:"notes,omitempty"`
}

// Make reads a run directory and judges it. It returns early when ctx is done.
func Make(ctx context.Context, dir string, progress func(done, total int64)) (*Report, error) {
	run, err := Read(ctx, dir, progress)
	if err != nil {
		return nil, err
	}
	return run.Report(), nil
}

// Report judges the run.
func (r *Run) Report() *Report {
	report := &Report{Path: r.Path, State: r.State, Model: r.Model, Notes: r.Notes}
	for _, cause := range causes {
		report.Findings = append(report.Findings, cause(r))
	}
	rank := func(f *Finding) int {
		switch {
		case f.Share == nil:
			return 3
		case !f.StandsOut:
			return 2
		case f.Normal:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(report.Findings, func(a, b *Finding) int {
		if c := cmp.Compare(rank(a), rank(b)); c != 0 || a.Share == nil {
			return c
		}
		return cmp.Compare(*b.Share, *a.Share)
	})
	report.Verdict = verdict(report.Findings)
	return report
}

// verdict puts sorted findings into words: the principal cause, what would remove it, and the next one.
func verdict(findings []*Finding) string {
	var unknown []string
	var first, next *Finding
	for _, f := range findings {
		switch {
		case f.Share == nil:
			unknown = append(unknown, f.Cause)
		case f.StandsOut && first == nil:
			first = f
		case f.StandsOut && next == nil:
			next = f
		}
	}
	switch {
	case len(unknown) == len(findings):
		return "The run cannot be judged: nothing that can be read of it shows a cause."
	case first == nil:
		text := fmt.Sprintf("Nothing stands out among the %s that could be judged.",
			present.Plural(len(findings)-len(unknown), "cause"))
		if len(unknown) > 0 {
			text += " Not judged: " + strings.Join(unknown, ", ") + "."
		}
		return text
	case first.Normal:
		return fmt.Sprintf("Nothing stands out but the normal limit of %s: %s, %s of %s. %s would raise the speed.",
			first.Phase, first.Evidence, present.Percent(*first.Share), first.Of, upper(first.Remedy))
	}
	text := fmt.Sprintf("%s: %s, %s of %s. %s would reduce it.", upper(first.Cause), first.Evidence,
		present.Percent(*first.Share), first.Of, upper(first.Remedy))
	if next != nil {
		text += fmt.Sprintf(" Next is %s: %s, %s of %s.", next.Cause, next.Evidence,
			present.Percent(*next.Share), next.Of)
	}
	return text
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// head is the first line of the table of causes.
var head = []string{"cause", " share", " limit", "", "of"}

// cells are the columns of a finding that was judged.
func (f *Finding) cells() []string {
	state := "below"
	if *f.Share >= f.Threshold {
		state = "part of another"
	}
	switch {
	case f.StandsOut && f.Normal:
		state = "normal"
	case f.StandsOut:
		state = "stands out"
	}
	return []string{f.Cause, present.Percent(*f.Share), present.Percent(f.Threshold), state, f.Of}
}

// WriteText writes the verdict, the causes with their shares, and what could not be judged.
func (r *Report) WriteText(w io.Writer) error {
	t := &present.Text{W: w}
	t.Line("%s, %s\n\n%s\n", r.Path, r.State, r.Verdict)
	rows, unknown := [][]string{head}, [][]string{}
	for _, f := range r.Findings {
		if f.Share == nil {
			unknown = append(unknown, []string{f.Cause, f.NotJudged})
		} else {
			rows = append(rows, f.cells())
		}
	}
	t.Columns(rows)
	if len(unknown) > 0 {
		t.Line("\nnot judged")
		t.Columns(unknown)
	}
	for _, n := range r.Notes {
		t.Line("\nnote: %s", n)
	}
	return t.Err
}

// WriteMarkdown writes the same as a document, with the evidence for each cause.
func (r *Report) WriteMarkdown(w io.Writer) error {
	t := &present.Text{W: w}
	t.Line("# %s\n\n%s\n", present.Markdown(r.Path), present.Markdown(r.Verdict))
	for i, cells := range r.causeRows() {
		if t.Line("| %s |", present.Markdown(cells...)); i == 0 {
			t.Line("|---|---:|---:|---|---|---|")
		}
	}
	for _, n := range r.Notes {
		t.Line("\nNote: %s", present.Markdown(n))
	}
	return t.Err
}
