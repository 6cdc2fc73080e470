//go:build llama

package intervene

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/gonum/graph/encoding/dot"
	"gonum.org/v1/gonum/graph/simple"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
)

var codePair = Pair{Clean: "if err != nil {", Corrupt: "for i := range {", Answer: "return", Wrong: "x"}

// sweepOf runs a sweep of the residual stream of layer 2 with some changes.
func sweepOf(t *testing.T, e *Engine, change func(*Sweep)) *Report {
	t.Helper()
	s := Sweep{Action: "patch", Metric: "kl", Points: []ggmlhooks.PointRef{{Point: ggmlhooks.PointResidPost, Layer: 2}},
		Pairs: []Pair{codePair}, Top: 9}
	change(&s)
	r, err := s.Run(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	if r.Noise != 0 || r.Partial || r.PerSecond <= 0 {
		t.Errorf("noise %v, partial %v, %v interventions per second", r.Noise, r.Partial, r.PerSecond)
	}
	return r
}

// TestSweep: actions do what they are defined as.
func TestSweep(t *testing.T) {
	e := open(t, Options{})
	swapped := codePair
	swapped.Clean, swapped.Corrupt = codePair.Corrupt, codePair.Clean
	patched := sweepOf(t, e, func(s *Sweep) {})
	resampled := sweepOf(t, e, func(s *Sweep) { s.Action, s.Pairs = "resample", []Pair{swapped} })
	for i := range patched.Effects {
		if patched.Effects[i].Effect.Mean != resampled.Effects[i].Effect.Mean {
			t.Errorf("%v: patch %v, resample of the prompts in the other order %v", patched.Effects[i].sites,
				patched.Effects[i].Effect.Mean, resampled.Effects[i].Effect.Mean)
		}
	}
	if len(patched.Effects) != len(patched.Tokens) || patched.Effects[0].Effect.Mean < 0.01 {
		t.Errorf("effects %+v", patched.Effects)
	}
	for _, metric := range Metrics {
		r := sweepOf(t, e, func(s *Sweep) { s.Metric, s.Together = metric, []string{"tokens"} })
		whole := r.Source.Mean - r.Base.Mean
		if len(r.Effects) != 1 || r.Effects[0].Token != nil || math.Abs(r.Effects[0].Effect.Mean-whole) > 1e-5 {
			t.Errorf("%s: all tokens patched: effects %+v, want %v", metric, r.Effects, whole)
		}
	}
	direction := make([]float32, 256)
	direction[0], direction[9] = 3, 4
	vector := &gguf.ControlVector{Directions: map[int][]float32{2: direction}}
	projected := sweepOf(t, e, func(s *Sweep) {
		s.Action, s.Vector, s.Points[0].Layer = "project", vector, ggmlhooks.NoLayer
	})
	if len(projected.Effects) != len(patched.Tokens) || projected.Effects[0].Effect.Mean == 0 {
		t.Errorf("a direction of layer 2 alone: %+v", projected.Effects)
	}
	entering := sweepOf(t, e, func(s *Sweep) {
		s.Action, s.Vector = "project", vector
		s.Points[0] = ggmlhooks.PointRef{Point: ggmlhooks.PointResidPre, Layer: ggmlhooks.NoLayer}
	})
	if len(entering.Effects) != len(projected.Effects) || *entering.Effects[0].Layer != 3 ||
		entering.Effects[0].Effect != projected.Effects[0].Effect {
		t.Errorf("what leaves layer 2 enters layer 3: %+v, not %+v", entering.Effects, projected.Effects)
	}
	written := sweepOf(t, e, func(s *Sweep) { s.Action, s.Vector, s.Points = "project", vector, nil })
	if len(written.Effects) != 2*len(patched.Tokens) {
		t.Errorf("what attention and network of layer 2 write: %+v", written.Effects)
	}
	heads := sweepOf(t, e, func(s *Sweep) {
		s.Action, s.Heads, s.Tokens, s.Metric = "zero", true, []int{-1}, "prob"
		s.Points[0] = ggmlhooks.PointRef{Point: ggmlhooks.PointZ, Layer: ggmlhooks.NoLayer}
		s.Layers.Add(1)
		s.Layers.Add(3)
		s.Pairs = []Pair{codePair, swapped}
	})
	if len(heads.Effects) != 8 || heads.Effects[0].Effect.N != 2 || *heads.Effects[0].Effect.Low > heads.Base.Mean {
		t.Errorf("heads: %+v", heads.Effects)
	}
}

// TestMean: mean is the mean of all tokens' rows.
func TestMean(t *testing.T) {
	e := open(t, Options{})
	prompt := tokens(t, e, codePair.Clean)
	last := Site{ggmlhooks.PointResidPost, 2, len(prompt) - 1, AllHeads}
	mean := make([]float32, 256)
	var rows []Site
	for token := range prompt {
		rows = append(rows, Site{last.Point, last.Layer, token, AllHeads})
	}
	each(t, e, prompt, []Trial{nil}, RunOptions{Observe: rows, Whole: true}, func(r *Result) {
		for _, row := range rows {
			for i, x := range r.Value(row) {
				mean[i] += x / float32(len(rows))
			}
		}
	})
	want := 0.0
	m := metric{name: "kl"}
	each(t, e, prompt, []Trial{{{Site: last, Values: mean}}}, RunOptions{}, func(r *Result) {
		want = m.evaluate(r.Logits, r.Control)
	})
	var left int64
	r := sweepOf(t, e, func(s *Sweep) {
		s.Action, s.Tokens, s.Pairs = "mean", []int{-1}, []Pair{{Clean: codePair.Clean}}
		s.Progress = func(done, total int64) { left = total - done }
	})
	if left != 0 {
		t.Errorf("the progress ends %d interventions before its total", left)
	}
	if got := r.Effects[0].Effect.Mean; math.Abs(got-want) > 1e-5*want || want == 0 {
		t.Errorf("mean: effect %v, want %v", got, want)
	}
	if text, err := json.Marshal(r); err != nil || bytes.Contains(text, []byte("answer")) {
		t.Errorf("%v: kl is of no answer: %s", err, text)
	}
}

// TestSweepInterrupted: what was measured until then is the result.
func TestSweepInterrupted(t *testing.T) {
	e := open(t, Options{Trials: 1})
	ctx, cancel := context.WithCancel(context.Background())
	s := Sweep{Action: "zero", Metric: "logit", Points: []ggmlhooks.PointRef{{Point: ggmlhooks.PointZ, Layer: -1}},
		Pairs: []Pair{{Clean: codePair.Clean, Answer: "return"}}, Graph: true, Top: 9,
		Progress: func(done, total int64) {
			if done == 3 {
				cancel()
			}
		}}
	r, err := s.Run(ctx, e)
	if err != nil || !r.Partial || r.Interventions != 3 || len(r.Effects) != 3 || r.Graph != nil {
		t.Errorf("%+v, %v", r, err)
	}
	if r.Base.N != 1 || r.Base.Mean == 0 {
		t.Errorf("without intervention the logit is %+v", r.Base)
	}
}

// TestSweepWrong: what cannot be run is refused with the cause.
func TestSweepWrong(t *testing.T) {
	e := open(t, Options{})
	clean := tokens(t, e, codePair.Clean)
	long := strings.Repeat("a b ", 150)
	means := func(s *Sweep, corrupt ...string) { // of patterns
		s.Action, s.Points[0].Point, s.Pairs = "mean", ggmlhooks.PointAttnProbs, nil
		for _, prompt := range corrupt {
			s.Pairs = append(s.Pairs, Pair{Clean: codePair.Clean, Corrupt: prompt})
		}
	}
	for want, change := range map[string]func(*Sweep){
		"needs a second prompt": func(s *Sweep) { s.Pairs[0].Corrupt = "" },
		"the corrupt one 3":     func(s *Sweep) { s.Pairs[0].Corrupt = "if err" },
		"--answer of the metric": func(s *Sweep) {
			s.Metric, s.Pairs[0].Answer = "prob", "one two three"
		},
		"give it with --answer": func(s *Sweep) { s.Metric, s.Pairs[0].Answer = "logit-diff", "" },
		"give it with --wrong":  func(s *Sweep) { s.Metric, s.Pairs[0].Wrong = "logit-diff", "" },

		"there is no token 99: give positions from -6 to 5":       func(s *Sweep) { s.Tokens = []int{99} },
		"there is no token -9":                                    func(s *Sweep) { s.Tokens = []int{-9} },
		"--heads: none of the points has heads":                   func(s *Sweep) { s.Heads = true },
		"--layers names layer 9, and the model has layers 0 to 5": func(s *Sweep) { s.Layers.Add(9) },
		"--layers leaves layer 2 of resid_post.2 out":             func(s *Sweep) { s.Layers.Add(3) },
		"and the direction 3: project a point of the residual stream": func(s *Sweep) {
			s.Action, s.Vector = "project", &gguf.ControlVector{Directions: map[int][]float32{2: {1, 2, 3}}}
		},
		"no attn_gate to change": func(s *Sweep) {
			s.Points[0] = ggmlhooks.PointRef{Point: ggmlhooks.PointAttnGate, Layer: -1}
		},
		"no resid_post.77":   func(s *Sweep) { s.Points[0].Layer = 77 },
		"that of pair 2 has": func(s *Sweep) { s.Pairs = append(s.Pairs, Pair{Clean: "a", Corrupt: "b"}) },
		"numbers of experts": func(s *Sweep) {
			s.Action, s.Points[0].Point = "zero", ggmlhooks.PointExpertIndices
		},
		"no direction for resid_post.2": func(s *Sweep) {
			s.Action, s.Vector = "project", &gguf.ControlVector{Directions: map[int][]float32{4: {1}}}
		},
		"attn_probs.2 has 1024 values in one prompt and 2048": func(s *Sweep) { means(s, "a", long) },
		"attn_probs.2 has 2048 values in one prompt and 1024": func(s *Sweep) { means(s, long) },
		"a sweep needs a prompt":                              func(s *Sweep) { s.Pairs = nil },
		"the recording has 0 val":                             func(s *Sweep) { s.Recorded = &Recording{Tokens: clean} },
		`"other", and this one is "gopher-6m": record`: func(s *Sweep) {
			s.Recorded = &Recording{Model: "other", Tokens: clean}
		},
		"the clean prompt has 6 tokens, the corrupt one 3": func(s *Sweep) {
			s.Recorded, s.Pairs[0].Corrupt = &Recording{Tokens: clean}, "if err"
		},
		"not of the clean prompt": func(s *Sweep) { s.Recorded = &Recording{Model: e.name(), Tokens: clean[1:]} },
	} {
		s := Sweep{Action: "patch", Metric: "kl", Pairs: []Pair{codePair}, Points: []ggmlhooks.PointRef{{
			Point: ggmlhooks.PointResidPost, Layer: 2}}}
		change(&s)
		if _, err := s.Run(context.Background(), e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// dotGraph takes what gonum reads of a DOT file.
type dotGraph struct{ *simple.DirectedGraph }

// TestWrite: each format holds the planted graph, as readers of other people see it.
func TestWrite(t *testing.T) {
	e, sweep := plantedSweep(t)
	r, err := sweep.Run(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	write := func(f func(*bytes.Buffer) error) []byte {
		var out bytes.Buffer
		if err := f(&out); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	g := dotGraph{simple.NewDirectedGraph()}
	text := write(func(out *bytes.Buffer) error { return r.WriteDOT(out) })
	if err := dot.Unmarshal(text, g.DirectedGraph); err != nil || g.Nodes().Len() != 4 || g.Edges().Len() != 3 {
		t.Errorf("DOT has %d nodes, %d edges: %v\n%s", g.Nodes().Len(), g.Edges().Len(), err, text)
	}
	var ml graphML
	text = write(func(out *bytes.Buffer) error { return r.WriteGraphML(out) })
	if err := xml.Unmarshal(text, &ml); err != nil || len(ml.Graph.Nodes) != 4 || len(ml.Graph.Edges) != 3 ||
		ml.Graph.Edges[2].Target != outputID {
		t.Errorf("GraphML %v\n%s", err, text)
	}
	text = write(func(out *bytes.Buffer) error { return r.WriteSVG(out) })
	if n := bytes.Count(text, []byte("<path ")); xml.Unmarshal(text, new(struct{})) != nil || n != 3 ||
		bytes.Count(text, []byte("<g>")) != 4 {
		t.Errorf("SVG has %d links\n%s", n, text)
	}
	for _, node := range r.Graph.Nodes[:len(r.Graph.Nodes)-1] {
		name := node.Site.Point.String()
		if node.Site.Head != AllHeads {
			name = fmt.Sprintf("head %d", node.Site.Head)
		}
		if !bytes.Contains(text, []byte(">"+name+"</text>")) {
			t.Errorf("no node is called %s in\n%s", name, text)
		}
	}
	text = write(func(out *bytes.Buffer) error { return r.WriteCSV(out) })
	if n := bytes.Count(text, []byte("\n")); n < 1+len(r.Effects) || !bytes.HasPrefix(text, []byte("point,layer,")) {
		t.Errorf("CSV has %d lines\n%s", n, text)
	}
	text = write(func(out *bytes.Buffer) error { return r.WriteText(out, 5) })
	for _, want := range []string{"100.0 %", "patch, effect on logit-diff", "output", "own values change at most 0"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if p := r.Picture(); len(p.Panels) != 3 || p.Save(filepath.Join(t.TempDir(), "heat.png")) != nil {
		t.Errorf("%d heat maps, want 3", len(p.Panels))
	}
	checkNeuronpedia(t, write(func(out *bytes.Buffer) error { return r.WriteNeuronpedia(out) }))
}

// TestSeveralPairs: a report says of how many pairs its means are, and JSON has all of them.
func TestSeveralPairs(t *testing.T) {
	e, sweep := plantedSweep(t)
	first := sweep.Pairs[0]
	sweep.Pairs = append(sweep.Pairs, Pair{first.Corrupt, first.Clean, first.Wrong, first.Answer})
	r, err := sweep.Run(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if want := `"pairs":[{"clean":"(a){","corrupt":"(b){","answer":"x","wrong":"y"},{"clean":"(b){","corrupt":"(a){",` +
		`"answer":"y","wrong":"x"}]`; err != nil || !bytes.Contains(text, []byte(want)) {
		t.Errorf("%v: no %s in %s", err, want, text)
	}
	for want, write := range map[string]func(io.Writer) error{
		"means of 2 pairs; prompt of the first: ": func(w io.Writer) error { return r.WriteText(w, 3) },
		"means of 2 pairs of prompts":             r.WriteNeuronpedia,
		", mean of 2 pairs":                       r.WriteSVG,
		`[label="logit-diff"]`:                    r.WriteDOT, // of another answer in each pair
	} {
		var out strings.Builder
		if err := write(&out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v: no %q in\n%s", err, want, out.String())
		}
	}
}

// TestSamePairs: zeros in one clean prompt are one measurement, however many corrupt prompts are given.
func TestSamePairs(t *testing.T) {
	e, sweep := plantedSweep(t)
	sweep.Action, sweep.Graph = "zero", false
	sweep.Pairs = append(sweep.Pairs, sweep.Pairs[0])
	sweep.Pairs[1].Corrupt = "(c){"
	r, err := sweep.Run(context.Background(), e)
	if err != nil || r.Base.N != 1 || r.Effects[0].Effect.N != 1 || r.Effects[0].Effect.Low != nil {
		t.Errorf("%+v, %v: a second measurement of the same", r, err)
	}
}

// checkNeuronpedia checks what Neuronpedia's graph-schema.json requires: which keys there are, and their types.
func checkNeuronpedia(t *testing.T, text []byte) {
	t.Helper()
	type schema map[string]any // a nested schema, or one of the types of JSON schema
	kinds := schema{
		"metadata": schema{"slug": "string", "scan": "string", "prompt": "string", "prompt_tokens": "array"},
		"qParams":  schema{}, "nodes": []schema{{"node_id": "string", "feature": "integer", "layer": "string",
			"ctx_idx": "integer", "feature_type": "string", "jsNodeId": "string", "clerp": "string"}},
		"links": []schema{{"source": "string", "target": "string", "weight": "number"}}}
	var check func(path string, value any, want any)
	check = func(path string, value any, want any) {
		ok := true
		switch want := want.(type) {
		case schema:
			object, isObject := value.(map[string]any)
			ok = isObject
			for key, inner := range want {
				check(path+"."+key, object[key], inner)
			}
		case []schema:
			list, isList := value.([]any)
			ok = isList && len(list) > 0
			for i, item := range list {
				check(fmt.Sprint(path, i), item, want[0])
			}
		case string:
			number, isNumber := value.(float64)
			switch _, isString := value.(string); want {
			case "string":
				ok = isString
			case "integer":
				ok = isNumber && number == math.Trunc(number)
			case "number":
				ok = isNumber
			case "array":
				_, ok = value.([]any)
			}
		}
		if !ok {
			t.Errorf("%s is %v, want %v", path, value, want)
		}
	}
	var graph map[string]any
	if err := json.Unmarshal(text, &graph); err != nil {
		t.Fatal(err)
	}
	check("", graph, kinds)
	ids := map[any]bool{}
	for _, n := range graph["nodes"].([]any) {
		ids[n.(map[string]any)["node_id"]] = true
	}
	for _, l := range graph["links"].([]any) {
		if l := l.(map[string]any); !ids[l["source"]] || !ids[l["target"]] {
			t.Errorf("a link between nodes that are not there: %v", l)
		}
	}
	if len(ids) != 4 {
		t.Errorf("%d nodes of different node_id, want 4", len(ids))
	}
}
