package intervene

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/table"
)

// Effect is what an intervention did to the metric. Fields that it has several of are absent.
type Effect struct {
	Point  string    `json:"point,omitempty"`
	Layer  *int      `json:"layer,omitempty"`
	Token  *int      `json:"token,omitempty"`
	Head   *int      `json:"head,omitempty"`
	Effect Statistic `json:"effect"`
	sites  []Site
}

// Report is what a sweep came to.
type Report struct {
	Model    string        `json:"model"`
	Action   string        `json:"action"`
	Metric   string        `json:"metric"`
	Partial  bool          `json:"partial"` // it was interrupted: the statistics are of what was done until then
	Pairs    []Pair        `json:"pairs"`   // as given; those that measure the same count once
	Prompt   string        `json:"prompt"`  // the first that was run: of a patch the corrupt one
	Tokens   []string      `json:"tokens"`  // of Prompt
	TokenIDs []llama.Token `json:"token_ids"`
	Base     Statistic     `json:"base"`             // the metric without intervention; always 0 for kl
	Source   *Statistic    `json:"source,omitempty"` // the metric of the run that values are from
	Layers   int           `json:"layers"`
	// TrainedContext is how many tokens the model was trained on at a time; absent where the prompt has no more.
	TrainedContext int          `json:"trained_context,omitempty"`
	Answer         string       `json:"answer,omitempty"`    // token that the metric is of, in the first pair
	AnswerID       *llama.Token `json:"answer_id,omitempty"` // of Answer
	Noise          float64      `json:"noise"`               // largest effect of writing sites' own values
	Effects        []Effect     `json:"effects"`             // largest first
	Graph          *Graph       `json:"graph,omitempty"`
	Interventions  int64        `json:"interventions"`
	Seconds        float64      `json:"seconds"` // of running them
	PerSecond      float64      `json:"interventions_per_second"`
}

// WriteText writes the largest effects, and the links of the graph; 0 writes all.
func (r *Report) WriteText(out io.Writer, top int) error {
	t := &present.Text{W: out}
	partial := ""
	if r.Partial {
		partial = " (interrupted: only what was measured until then)"
	}
	t.Line("%s, %s, effect on %s%s", r.Model, r.Action, r.Metric, partial)
	if n := r.Base.N; n > 1 {
		t.Line("means of %d pairs; prompt of the first: %q", n, r.Prompt)
	} else {
		t.Line("prompt: %q", r.Prompt)
	}
	beyondLine(t, "the prompt", len(r.Tokens), "the model", r.TrainedContext)
	t.Line("without intervention %s; own values change at most %.3g", &r.Base, r.Noise)
	if r.Source != nil {
		t.Line("the run that values are from %s", r.Source)
	}
	t.Line("%d interventions in %.1f s, %.1f/s", r.Interventions, r.Seconds, r.PerSecond)
	t.Line("")
	rows := [][]string{{"point", " layer", " token", " head", " effect", ""}}
	if r.Source != nil {
		rows[0][5] = " of the difference"
	}
	for i := range r.Effects {
		if i == top && top > 0 {
			break
		}
		f := &r.Effects[i]
		part := ""
		if r.Source != nil && r.Source.Mean != r.Base.Mean {
			part = fmt.Sprintf("%.1f %%", 100*f.Effect.Mean/(r.Source.Mean-r.Base.Mean))
		}
		rows = append(rows, []string{cmp.Or(f.Point, "several"), number(f.Layer), r.token(f.Token), number(f.Head),
			f.Effect.String(), part})
	}
	t.Columns(rows)
	if r.Graph != nil {
		t.Line("")
		rows = [][]string{{"from", "to", " weight", " share"}}
		for _, l := range r.Graph.Links {
			share := ""
			if l.Share != nil {
				share = fmt.Sprintf("%.1f %%", 100**l.Share)
			}
			rows = append(rows, []string{l.Source, l.Target, l.Weight.String(), share})
		}
		t.Columns(rows)
	}
	return t.Err
}

// answer is the token that the metric is of; "" where it is of none, or of another one in each pair.
func (r *Report) answer() string {
	for i := range r.Pairs {
		if r.Pairs[i].Answer != r.Answer {
			return ""
		}
	}
	return r.Answer
}

// beyondLine warns of texts that are longer than those that a model was trained on.
func beyondLine(t *present.Text, what string, n int, model string, trained int) {
	if trained > 0 {
		t.Line("%s has %d tokens, and %s was trained on %d: what it computes beyond them is not typical of it", what, n,
			model, trained)
	}
}

func number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

// token names a token of the prompt.
func (r *Report) token(at *int) string {
	if at == nil {
		return ""
	}
	return fmt.Sprintf("%d %q", *at, r.Tokens[*at])
}

// WriteCSV writes all effects.
func (r *Report) WriteCSV(out io.Writer) error {
	w := table.NewCSV(out, "point", "layer", "token", "text", "head", "n", "effect", "low", "high")
	for i := range r.Effects {
		f := &r.Effects[i]
		text := ""
		if f.Token != nil {
			text = r.Tokens[*f.Token]
		}
		w.Row(f.Point, f.Layer, f.Token, text, f.Head, f.Effect.N, f.Effect.Mean, f.Effect.Low, f.Effect.High)
	}
	return w.Close()
}
