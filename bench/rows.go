package bench

import (
	"slices"
	"strings"

	"github.com/llamatap/llamatap"
)

// Rows summarises what was visited: one row per item that was visited at least once, in the plan's order.
func Rows(plan *Plan, visits []Visit, environment *Environment) []Row {
	var rows []Row
	for i := range plan.Items {
		var own []Visit
		for _, v := range visits {
			if v.Item == i {
				own = append(own, v)
			}
		}
		if len(own) == 0 {
			continue
		}
		slices.SortStableFunc(own, func(a, b Visit) int { return a.Round - b.Round })
		row := rowOf(&plan.Items[i])
		row.measured(own)
		row.recorded(own)
		if environment != nil {
			row.BuildCommit, row.BuildNumber, row.Environment = environment.BuildCommit, environment.BuildNumber,
				environment
		}
		rows = append(rows, row)
	}
	return rows
}

// rowOf is an item's row without anything measured.
func rowOf(i *Item) Row {
	s := &i.Spec
	r := NewRow()
	r.ModelFile = s.Model
	if s.Model == "" {
		r.ModelFile = llamatap.DefaultModelName
	}
	r.Batch, r.MicroBatch, r.Threads, r.GPULayers = s.Batch, s.MicroBatch, s.Threads, s.GPULayers
	r.TypeK, r.TypeV = s.TypeK, s.TypeV
	r.FlashAttn = map[string]int{"auto": -1, "off": 0, "on": 1}[s.FlashAttention]
	r.Prompt, r.Gen, r.Depth = s.Prompt, s.Gen, s.Depth
	if s.Sequences > 1 {
		r.Sequences = new(s.Sequences)
	}
	if i.PromptName != "" {
		r.PromptName = &i.PromptName
	}
	r.Tap = &i.Tap.Name
	if len(i.Tap.Flags) > 0 {
		flags := strings.Join(i.Tap.Flags, " ")
		r.TapFlags = &flags
	}
	return r
}

// measured fills in the times of an item's visits.
func (r *Row) measured(visits []Visit) {
	subject := visits[0].Subject
	r.CPU, r.GPU, r.Backends = subject.CPU, subject.GPU, subject.Backends
	r.ModelType, r.ModelSize, r.Parameters, r.Prompt = subject.Type, subject.SizeBytes, subject.Parameters,
		subject.Prompt
	r.TestTime = visits[0].Repetitions[0].Time
	var tokens []int64
	for _, v := range visits {
		for _, repetition := range v.Repetitions {
			r.SamplesNS = append(r.SamplesNS, repetition.NS)
			r.Rounds = append(r.Rounds, v.Round)
			if repetition.FirstNS > 0 {
				r.SamplesFirstNS = append(r.SamplesFirstNS, repetition.FirstNS)
			}
			if len(repetition.TokenNS) > 0 {
				r.SamplesTokenNS = append(r.SamplesTokenNS, quantile(repetition.TokenNS, 0.5))
				tokens = append(tokens, repetition.TokenNS...)
			}
		}
	}
	r.Summarise()
	interval := medianInterval(r.SamplesTS)
	r.MedianTS = &interval.Median
	if len(r.SamplesTS) > 1 {
		r.LowTS, r.HighTS = &interval.Low, &interval.High
	}
	if len(r.SamplesFirstNS) > 0 {
		var first []float64
		for _, ns := range r.SamplesFirstNS {
			first = append(first, float64(ns))
		}
		r.FirstNS = new(int64(median(first)))
	}
	if len(tokens) > 0 {
		r.TokenP50, r.TokenP90, r.TokenP99 = new(quantile(tokens, 0.5)), new(quantile(tokens, 0.9)),
			new(quantile(tokens, 0.99))
	}
}

// quantile is the smallest value that a share of all values does not exceed (nearest rank).
func quantile(values []int64, share float64) int64 {
	sorted := slices.Sorted(slices.Values(values))
	rank := int(share*float64(len(sorted)) + 0.9999999)
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// recorded adds up what an item's visits recorded.
func (r *Row) recorded(visits []Visit) {
	for _, v := range visits {
		if v.Recorded == nil {
			continue
		}
		add(&r.Captured, &v.Recorded.CapturedBytes)
		add(&r.Stored, &v.Recorded.StoredBytes)
		add(&r.Recorded, &v.Recorded.Tokens)
		add(&r.GraphNS, &v.Recorded.GraphNS)
		add(&r.OwnNS, v.Recorded.OwnNS)
		add(&r.WaitNS, v.Recorded.WaitNS)
		add(&r.Lost, &v.Recorded.LostPackets)
	}
}

// add adds to a sum that begins with the first known part.
func add[T int64 | uint64](sum **T, part *T) {
	switch {
	case part == nil:
	case *sum == nil:
		*sum = new(*part)
	default:
		**sum += *part
	}
}

// TokenRow is one line of the file that --per-token names.
type TokenRow struct {
	Model      string `json:"model_filename"`
	Test       string `json:"test"`
	Prompt     string `json:"prompt_name,omitempty"`
	Sequences  *int   `json:"n_seq,omitempty"` // as in the row of the test
	Tap        string `json:"tap"`
	Item       int    `json:"item"` // of the plan: tests that differ in other settings have the same name
	Round      int    `json:"round"`
	Repetition int    `json:"repetition"` // within its visit
	Time       string `json:"time"`       // when the repetition began
	Token      int    `json:"token"`      // 0 is the prompt where there is one
	Step
}

// tokenRows lists a visit's steps.
func tokenRows(plan *Plan, v *Visit) []TokenRow {
	item := &plan.Items[v.Item]
	r := rowOf(item)
	r.Prompt = v.Subject.Prompt
	var rows []TokenRow
	for i, repetition := range v.Repetitions {
		for k, step := range repetition.Steps {
			rows = append(rows, TokenRow{
				Model: r.ModelFile, Test: r.Test(), Prompt: item.PromptName,
				Sequences: r.Sequences, Tap: item.Tap.Name, Item: v.Item, Round: v.Round, Repetition: i,
				Time: repetition.Time, Token: k, Step: step,
			})
		}
	}
	return rows
}
