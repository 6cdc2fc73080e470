package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/config"
)

// Prompt is one kind of work: a prompt, a number of generated tokens, or both.
type Prompt struct {
	Name   string // of a text
	Text   string // "": Length random tokens
	Length int
	Gen    int
}

// TapSetting is one configuration of the tap. Without flags nothing is recorded, and no tap is there.
type TapSetting struct {
	Name  string   `json:"name"`
	Flags []string `json:"flags,omitempty"` // in the form --tap-name=value
}

// Scenario is a set of tests: each model with each prompt, each combination of settings and each tap configuration.
type Scenario struct {
	Models  []string // GGUF files; "" is the embedded model
	Prompts []Prompt
	Settings
	Taps []TapSetting
}

// Settings are the values of each setting; an empty list stands for llama-bench's default.
type Settings struct {
	Depths         Numbers `yaml:"depth"`
	Batches        Numbers `yaml:"batch"`
	MicroBatches   Numbers `yaml:"ubatch"`
	Threads        Numbers `yaml:"threads"`
	Layers         Numbers `yaml:"gpu_layers"`
	Sequences      Numbers `yaml:"parallel"` // that are decoded at a time
	TypesK         Words   `yaml:"cache_type_k"`
	TypesV         Words   `yaml:"cache_type_v"`
	FlashAttention Words   `yaml:"flash_attn"`
}

// Item is one test with its settings: one row of the result.
type Item struct {
	Spec       Spec       `json:"spec"`
	PromptName string     `json:"prompt_name,omitempty"`
	Tap        TapSetting `json:"tap"`
}

// Plan is everything that a scripted benchmark runs. Each round visits every item in a random order of its own; a
// visit is a process that warms up and measures a share of the repetitions.
type Plan struct {
	Items    []Item        `json:"items"`
	Rounds   int           `json:"rounds"`
	Seed     uint64        `json:"seed"`
	CoolDown time.Duration `json:"cool_down_ns,omitempty"` // between two visits
}

// Pace says how often a plan's tests are repeated.
type Pace struct {
	Repetitions int // of each test
	Rounds      int // that they are shared out to; 0: one per repetition, or one round where there is one test
	NoWarmUp    bool
	PerToken    bool
	Seed        uint64
	CoolDown    time.Duration
}

// NewPlan makes a plan of scenarios.
func NewPlan(scenarios []Scenario, pace Pace) (*Plan, error) {
	p := &Plan{Rounds: pace.Rounds, Seed: pace.Seed, CoolDown: pace.CoolDown}
	for i := range scenarios {
		p.Items = append(p.Items, scenarios[i].items()...)
	}
	if len(p.Items) == 0 {
		return nil, errors.New("nothing to measure: give a prompt or a generation a length above 0")
	}
	if pace.Repetitions < 1 || pace.Rounds < 0 {
		return nil, errors.New("repetitions must be at least 1, and rounds not negative")
	}
	if p.Rounds == 0 {
		p.Rounds = pace.Repetitions
		if len(p.Items) == 1 {
			p.Rounds = 1
		}
	}
	for i := range p.Items {
		s := &p.Items[i].Spec
		s.Repetitions = (pace.Repetitions + p.Rounds - 1) / p.Rounds
		s.NoWarmUp, s.PerToken = pace.NoWarmUp, pace.PerToken
		if err := s.check(); err != nil {
			return nil, err
		}
		if err := checkTap(p.Items[i].Tap); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// checkTap finds what no recording could be made with.
func checkTap(setting TapSetting) error {
	if len(setting.Flags) == 0 {
		return nil
	}
	tap := &config.Tap{}
	if _, err := tap.Parse(setting.Flags); err != nil {
		return fmt.Errorf("tap configuration %s: %w", setting.Name, err)
	}
	nothing := func(string) (string, bool) { return "", false }
	if err := tap.Resolve(config.ResolveOptions{LookupEnv: nothing}); err != nil {
		return fmt.Errorf("tap configuration %s: %w", setting.Name, err)
	}
	if !tap.Recording() {
		return fmt.Errorf("tap configuration %s records nothing: add what to record, such as tensors", setting.Name)
	}
	return nil
}

// order is the order of a round, the same for the same seed.
func (p *Plan) order(round int) []int {
	return rand.New(rand.NewPCG(p.Seed, uint64(round))).Perm(len(p.Items))
}

// items lists a scenario's tests, settings outside and prompts inside, as llama-bench does.
func (s *Scenario) items() []Item {
	list := []Item{{Spec: Spec{}}}
	list = spread(list, s.Models, "", func(i *Item, v string) { i.Spec.Model = v })
	list = spread(list, s.Layers, -1, func(i *Item, v int) { i.Spec.GPULayers = v })
	list = spread(list, s.FlashAttention, "auto", func(i *Item, v string) {
		i.Spec.FlashAttention = map[string]string{"1": "on", "0": "off"}[v]
		if i.Spec.FlashAttention == "" {
			i.Spec.FlashAttention = v
		}
	})
	list = spread(list, s.Batches, 2048, func(i *Item, v int) { i.Spec.Batch = v })
	list = spread(list, s.MicroBatches, 512, func(i *Item, v int) { i.Spec.MicroBatch = v })
	list = spread(list, s.TypesK, "f16", func(i *Item, v string) { i.Spec.TypeK = v })
	list = spread(list, s.TypesV, "f16", func(i *Item, v string) { i.Spec.TypeV = v })
	list = spread(list, s.Threads, 1, func(i *Item, v int) { i.Spec.Threads = v })
	list = spread(list, s.Sequences, 1, func(i *Item, v int) { i.Spec.Sequences = v })
	list = spread(list, s.Depths, 0, func(i *Item, v int) { i.Spec.Depth = v })
	if len(s.Prompts) == 0 {
		return nil
	}
	list = spread(list, s.Prompts, Prompt{}, func(i *Item, v Prompt) {
		i.PromptName, i.Spec.Text, i.Spec.Prompt, i.Spec.Gen = v.Name, v.Text, v.Length, v.Gen
	})
	list = slices.DeleteFunc(list, func(i Item) bool {
		return i.Spec.Text == "" && i.Spec.Prompt == 0 &&
			i.Spec.Gen == 0
	})
	return spread(list, s.Taps, TapSetting{Name: "off"}, func(i *Item, v TapSetting) { i.Tap = v })
}

// spread makes of each item one per value; without values, the default is set.
func spread[T any](items []Item, values []T, byDef T, set func(*Item, T)) []Item {
	if len(values) == 0 {
		values = []T{byDef}
	}
	var out []Item
	for _, item := range items {
		for _, value := range values {
			next := item
			set(&next, value)
			out = append(out, next)
		}
	}
	return out
}

// label names an item on one line, for people.
func (i *Item) label() string {
	row := rowOf(i)
	parts := []string{row.Test()}
	if i.PromptName != "" {
		parts = append(parts, i.PromptName)
	}
	if len(i.Tap.Flags) > 0 {
		parts = append(parts, "tap "+i.Tap.Name)
	}
	return strings.Join(parts, ", ")
}
