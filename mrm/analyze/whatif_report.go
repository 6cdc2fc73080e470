package analyze

import "github.com/llamatap/llamatap/memtrace"

// formulas are what figures of a report were computed with, by their keys.
var formulas = map[string]string{
	"bytes_refreshed_per_day": "lives that ended: sum of their bytes * (ceil(needed/retention_s) - 1) * " +
		"86400/run_s, where times are not exact with the shortest (low) and longest (high) need; censored lives: " +
		"low the same, at most high; high their bytes * (ceil(86400/retention_s) - 1); refresh 'all': all bytes * " +
		"86400/retention_s",
	"refreshes_per_day":  "bytes_refreshed_per_day / bytes",
	"bytes_read_per_day": "bytes read in the run * 86400/run_s; bytes_written_per_day likewise",
	"writes_per_cell_per_day": "(bytes_written_per_day + bytes_refreshed_per_day) / bytes, wear levelled over all " +
		"bytes of the row",
	"lifetime_years": "endurance_writes / writes_per_cell_per_day / 365.25",
	"read_j":         "8 * bytes_read_per_day * read_pj_per_bit * 1e-12",
	"write_j":        "8 * bytes_written_per_day * write_pj_per_bit * 1e-12",
	"refresh_j": "8 * bytes_refreshed_per_day * (refresh_pj_per_bit, else read_pj_per_bit + " +
		"write_pj_per_bit) * 1e-12",
	"energy_per_token_j": "total_j * run_s / 86400 / tokens, set-up included in both",
	"mrm_label": "high_mrm: write-once >= 0.8 and retention p99 >= 10 s; medium_mrm: write-once >= 0.5 and " +
		"p50 >= 1 s; else low_mrm (thresholds can be set)",
	"mrm_label_censored": "the same by Kaplan-Meier; a percentile that censoring hides is at least the longest life " +
		"seen; insufficient where that leaves it open whether a region is better than low",
}

// Labels are how well regions of a type suit a memory of limited retention.
type Labels struct {
	Type    string `json:"region_type"`
	Regions int    `json:"regions"`
	Bytes   uint64 `json:"bytes"`
	// Lives is how many bytes were written, each as often as it was.
	Lives int64 `json:"bytes_lived"`
	// Of what was written; nil where nothing was.
	WriteOnce     *float64 `json:"write_once_ratio,omitempty"`
	CensoredShare *float64 `json:"censored_share,omitempty"`
	// Plain percentiles of the retention in seconds, and those of Kaplan and Meier, which are at least so long
	// where they are not Known.
	Plain       Percents `json:"retention_s"`
	KaplanMeier Percents `json:"retention_km_s"`
	Resolution  float64  `json:"time_resolution_s,omitempty"` // by which times may be wrong
	IsKnown50   bool     `json:"retention_km_p50_known"`
	IsKnown99   bool     `json:"retention_km_p99_known"`
	Label       string   `json:"mrm_label,omitempty"`
	LabelCensor string   `json:"mrm_label_censored,omitempty"`
}

// Percents are percentiles in seconds.
type Percents struct {
	P50 *float64 `json:"p50,omitempty"`
	P99 *float64 `json:"p99,omitempty"`
}

// Report is what a run's regions would ask of memories.
type Report struct {
	Seconds     float64           `json:"run_s"`
	Tokens      int64             `json:"tokens,omitempty"`
	Years       float64           `json:"years_asked"`
	Formulas    map[string]string `json:"formulas"`
	Sources     map[string]Source `json:"sources"`
	Classes     []Class           `json:"classes"`
	Labels      []Labels          `json:"labels"`
	Types       []Row             `json:"by_type"`
	Regions     []Row             `json:"by_region"`
	Sensitivity []Sensitivity     `json:"sensitivity"`
}

// whatIf works everything out for the regions of a run, in some classes of memory.
func whatIf(subjects []subject, all *Classes, classes []Class, o demandOptions) *Report {
	r := &Report{Tokens: o.Tokens, Years: o.years(), Formulas: formulas, Classes: classes,
		Sources: sourcesOf(all, classes)}
	for _, group := range byType(subjects) {
		r.Seconds = group[0].Seconds
		whole, ok := o.Types[group[0].Type]
		if !ok {
			whole = mergeSubjects(group)
		}
		r.Labels = append(r.Labels, whole.labels(o.Thresholds))
		for i := range classes {
			r.Types = append(r.Types, judgeRow(group, &classes[i], o))
			r.Sensitivity = append(r.Sensitivity, vary(group, &classes[i], o)...)
			for k := range group {
				row := judgeRow(group[k:k+1], &classes[i], o)
				row.Region, row.Name = &group[k].Region, group[k].Name
				r.Regions = append(r.Regions, row)
			}
		}
	}
	return r
}

// sourcesOf are those that figures of classes name.
func sourcesOf(all *Classes, classes []Class) map[string]Source {
	used := map[string]Source{}
	for i := range classes {
		for _, f := range classes[i].figures() {
			if f.Figure != nil {
				used[f.Source] = all.Sources[f.Source]
			}
		}
	}
	return used
}

// labels labels a type of region.
func (whole *subject) labels(t memtrace.Thresholds) Labels {
	l := Labels{Type: whole.Type.String(), Regions: max(whole.Regions, 1), Bytes: whole.Bytes,
		Resolution: whole.Resolution}
	if once, ok := whole.writeOnce(); ok {
		l.WriteOnce = &once
	}
	if whole.Lives == nil || whole.Lives.Count == 0 {
		return l
	}
	l.Lives = whole.Lives.Count
	share, _ := whole.Lives.CensoredShare()
	l.CensoredShare = &share
	plain50, _ := whole.Lives.Quantile(0.5)
	plain99, _ := whole.Lives.Quantile(0.99)
	km50, _ := whole.Lives.AtLeast(0.5)
	km99, _ := whole.Lives.AtLeast(0.99)
	_, l.IsKnown50 = whole.Lives.KaplanMeier(0.5)
	_, l.IsKnown99 = whole.Lives.KaplanMeier(0.99)
	l.Plain = Percents{new(float64(plain50) / 1e9), new(float64(plain99) / 1e9)}
	l.KaplanMeier = Percents{new(float64(km50) / 1e9), new(float64(km99) / 1e9)}
	if label, ok := whole.metrics().Label(t); ok {
		l.Label = string(label)
	}
	if label, ok := whole.metrics().LabelCensored(t); ok {
		l.LabelCensor = string(label)
	}
	return l
}

// mergeSubjects puts subjects into one.
func mergeSubjects(group []subject) subject {
	whole := subject{Type: group[0].Type, Regions: len(group), Seconds: group[0].Seconds,
		Resolution: group[0].Resolution}
	var lives memtrace.Survival
	for i := range group {
		s := &group[i]
		whole.Bytes += s.Bytes
		whole.Written += s.Written
		whole.WrittenOnce += s.WrittenOnce
		if s.Lives != nil {
			lives.Merge(s.Lives)
		}
	}
	whole.Lives = &lives
	return whole
}
