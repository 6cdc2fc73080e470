package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/testenv"
)

func needLlama(t *testing.T) {
	t.Helper()
	testenv.NeedLlama(t)
	if err := llama.Init(); errors.Is(err, errors.ErrUnsupported) {
		testenv.Beyond(t, "tests built with llama.cpp", err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
}

// small is a test of the embedded model that takes milliseconds.
func small() Spec {
	return Spec{Prompt: 20, Gen: 5, Depth: 7, Batch: 8, MicroBatch: 8, Threads: 1, TypeK: "f16", TypeV: "f16",
		FlashAttention: "auto", GPULayers: -1, Repetitions: 2}
}

// lines measures and reads what was printed.
func lines(t *testing.T, spec Spec) (subject Subject, repetitions []Repetition) {
	t.Helper()
	var out bytes.Buffer
	if err := Measure(t.Context(), spec, &out); err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	for i := 0; decoder.More(); i++ {
		var line measureLine
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		switch {
		case i == 0 && line.Subject != nil:
			subject = *line.Subject
		case i > 0 && line.Repetition != nil:
			repetitions = append(repetitions, *line.Repetition)
		default:
			t.Fatalf("line %d is %+v", i, line)
		}
	}
	return subject, repetitions
}

func TestMeasure(t *testing.T) {
	needLlama(t)
	spec := small()
	spec.PerToken = true
	subject, repetitions := lines(t, spec)
	if subject.Parameters != 5786880 || subject.Type == "" || subject.Backends != "CPU" || subject.CPU == "" ||
		subject.Prompt != 20 {
		t.Errorf("subject: %+v", subject)
	}
	if len(repetitions) != 2 {
		t.Fatalf("%d repetitions, want 2", len(repetitions))
	}
	for _, r := range repetitions {
		sum := r.FirstNS
		for _, ns := range r.TokenNS {
			sum += ns
		}
		if len(r.TokenNS) != 5 || r.FirstNS <= 0 || sum > r.NS {
			t.Errorf("%d tokens, first after %d ns, %d of %d ns accounted for", len(r.TokenNS), r.FirstNS, sum, r.NS)
		}
		checkSteps(t, r.Steps)
	}
}

// checkSteps expects a prompt of 20 behind 7 tokens, and 5 tokens after it.
func checkSteps(t *testing.T, steps []Step) {
	t.Helper()
	if len(steps) != 6 || steps[0].Phase != PhasePrefill || steps[0].Tokens != 20 {
		t.Fatalf("steps: %+v", steps)
	}
	end := int64(0)
	for i, s := range steps {
		if s.KVCells != 27+i || s.NS <= 0 || s.AtNS < end || i > 0 && (s.Phase != PhaseDecode || s.Tokens != 1) {
			t.Errorf("step %d: %+v", i, s)
		}
		end = s.AtNS + s.NS
	}
}

// TestRunParts measures a prompt alone, a generation alone, and without rows per token.
func TestMeasureParts(t *testing.T) {
	needLlama(t)
	spec := small()
	spec.Gen, spec.Repetitions, spec.NoWarmUp = 0, 1, true
	if _, r := lines(t, spec); r[0].FirstNS <= 0 || r[0].TokenNS != nil || r[0].Steps != nil {
		t.Errorf("prompt alone: %+v", r[0])
	}
	spec.Prompt, spec.Gen = 0, 3
	if _, r := lines(t, spec); r[0].FirstNS != 0 || len(r[0].TokenNS) != 3 || r[0].Steps != nil {
		t.Errorf("generation alone: %+v", r[0])
	}
}

// TestRunText has a prompt of a text, whose length is found out.
func TestMeasureText(t *testing.T) {
	needLlama(t)
	spec := small()
	spec.Prompt, spec.Text, spec.Depth = 0, "func main() {\n", 0
	subject, repetitions := lines(t, spec)
	if subject.Prompt < 3 || len(repetitions) != 2 || len(repetitions[0].TokenNS) != 5 {
		t.Errorf("%+v, %+v", subject, repetitions)
	}
}

// TestRunSequences generates in three sequences at a time, with a return to Go after each step and without.
func TestMeasureSequences(t *testing.T) {
	needLlama(t)
	spec := small()
	spec.Sequences = 3
	for _, spec.PerToken = range []bool{false, true} {
		_, r := lines(t, spec)
		if len(r) != 2 || len(r[0].TokenNS) != 5 || spec.PerToken != (len(r[0].Steps) == 6) {
			t.Fatalf("%+v", r)
		}
		if spec.PerToken {
			checkSteps(t, r[0].Steps)
		}
	}
}

func TestMeasureStops(t *testing.T) {
	needLlama(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	if err := Measure(ctx, small(), &bytes.Buffer{}); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
}

func TestCheck(t *testing.T) {
	for want, change := range map[string]func(*Spec){
		"negative":    func(s *Spec) { s.Depth = -1 },
		"neither":     func(s *Spec) { s.Prompt, s.Gen = 0, 0 },
		"batches":     func(s *Spec) { s.MicroBatch = 0 },
		"threads":     func(s *Spec) { s.Threads = 0 },
		"repetitions": func(s *Spec) { s.Repetitions = 0 },
		"sequences":   func(s *Spec) { s.Sequences = 9 },
		"one seq":     func(s *Spec) { s.Sequences, s.Text = 2, "a" },
	} {
		spec := small()
		if err := spec.check(); err != nil {
			t.Fatal(err)
		}
		change(&spec)
		if err := spec.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestBackends(t *testing.T) {
	for want, names := range map[string][]string{"CPU": {"CPU"}, "CUDA,RPC": {"CUDA", "CPU", "RPC"}} {
		if got := backends(names); got != want {
			t.Errorf("%q: %q, want %q", names, got, want)
		}
	}
}
