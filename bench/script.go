package bench

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/internal/cli"
)

// Script is a scripted benchmark as a YAML file says it; docs/BENCH.md describes the file. A nil field was not given.
type Script struct {
	Seed        *uint64         `yaml:"seed"`
	Repetitions *int            `yaml:"repetitions"`
	Rounds      *int            `yaml:"rounds"`
	WarmUp      *bool           `yaml:"warmup"`
	CoolDown    *string         `yaml:"cooldown"`
	Scenarios   []scriptedScene `yaml:"scenarios"`
}

type scriptedScene struct {
	Name     string           `yaml:"name"` // for the reader of the file
	Models   []string         `yaml:"models"`
	Prompts  []scriptedPrompt `yaml:"prompts"`
	Settings Settings         `yaml:"settings"`
	Taps     []map[string]any `yaml:"tap"`
}

type scriptedPrompt struct {
	Prompt Numbers `yaml:"prompt"` // lengths of prompts of random tokens
	Gen    Numbers `yaml:"gen"`
	File   string  `yaml:"file"`
	JSONL  string  `yaml:"jsonl"`
}

// Numbers are a number, a text such as 1-8*2, or a list of both.
type Numbers []int

// Add appends numbers and ranges, as [ParseInts] reads them.
func (n *Numbers) Add(text string) error {
	values, err := ParseInts(text)
	*n = append(*n, values...)
	return err
}

// UnmarshalYAML reads numbers.
func (n *Numbers) UnmarshalYAML(unmarshal func(any) error) error {
	var v any
	if err := unmarshal(&v); err != nil {
		return err
	}
	for _, part := range asList(v) {
		if err := n.Add(fmt.Sprint(part)); err != nil {
			return err
		}
	}
	return nil
}

// Words are a word or a list of words.
type Words []string

// UnmarshalYAML reads words. YAML takes on and off for truth values.
func (w *Words) UnmarshalYAML(unmarshal func(any) error) error {
	var v any
	if err := unmarshal(&v); err != nil {
		return err
	}
	for _, part := range asList(v) {
		switch part {
		case true:
			part = "on"
		case false:
			part = "off"
		}
		*w = append(*w, fmt.Sprint(part))
	}
	return nil
}

func asList(v any) []any {
	if list, ok := v.([]any); ok {
		return list
	}
	return []any{v}
}

// ReadScript reads a script. Paths in it are relative to its folder.
func ReadScript(path string) (*Script, error) {
	data, err := cli.ReadFile(path, cli.MaxConfig)
	if err != nil {
		return nil, fmt.Errorf("read the script: %w: give a YAML file with scenarios", err)
	}
	var s Script
	if err := cli.UnmarshalYAML("script "+path, data, &s); err != nil {
		return nil, fmt.Errorf("%w: correct it, docs/BENCH.md lists the keys", err)
	}
	if len(s.Scenarios) == 0 {
		return nil, fmt.Errorf("script %s has no scenarios: write the key scenarios with at least one below it", path)
	}
	return &s, nil
}

// Apply gives a pace what the script says of it.
func (s *Script) Apply(p *Pace) error {
	if s.Seed != nil {
		p.Seed = *s.Seed
	}
	if s.Repetitions != nil {
		p.Repetitions = *s.Repetitions
	}
	if s.Rounds != nil {
		p.Rounds = *s.Rounds
	}
	if s.WarmUp != nil {
		p.NoWarmUp = !*s.WarmUp
	}
	if s.CoolDown == nil {
		return nil
	}
	var err error
	if p.CoolDown, err = time.ParseDuration(*s.CoolDown); err != nil || p.CoolDown < 0 {
		return fmt.Errorf("cooldown %q is not a duration: write 500ms, 2s or 1m", *s.CoolDown)
	}
	return nil
}

// Expand lists the script's scenarios. dir is the folder of the script, threads what stands for a scenario without
// threads.
func (s *Script) Expand(dir string, threads int) ([]Scenario, error) {
	var scenarios []Scenario
	for i := range s.Scenarios {
		from := &s.Scenarios[i]
		where := fmt.Sprintf("scenario %d", i+1)
		if from.Name != "" {
			where += " (" + from.Name + ")"
		}
		to := Scenario{Settings: from.Settings}
		if len(to.Threads) == 0 {
			to.Threads = []int{threads}
		}
		for _, model := range from.Models {
			to.Models = append(to.Models, resolvePath(dir, model))
		}
		for k := range from.Prompts {
			prompts, err := from.Prompts[k].expand(dir)
			if err != nil {
				return nil, fmt.Errorf("%s, prompt %d: %w", where, k+1, err)
			}
			to.Prompts = append(to.Prompts, prompts...)
		}
		var err error
		if to.Taps, err = tapSettings(from.Taps); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		if len(to.Prompts) == 0 {
			return nil, fmt.Errorf("%s has no prompts: write the key prompts with some below it, such as {prompt: "+
				"512} and {gen: 128}", where)
		}
		scenarios = append(scenarios, to)
	}
	return scenarios, nil
}

// resolvePath returns a path of a script's, seen from here.
func resolvePath(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// tapSettings reads the tap configurations of a scenario: a name, and settings with the keys of a file of --tap-config.
func tapSettings(list []map[string]any) ([]TapSetting, error) {
	var all []TapSetting
	for _, given := range list {
		setting := TapSetting{}
		for _, key := range slices.Sorted(maps.Keys(given)) {
			value := given[key]
			var parts []string
			for _, part := range asList(value) {
				parts = append(parts, fmt.Sprint(part))
			}
			text := strings.Join(parts, ",")
			switch key {
			case "name":
				setting.Name = text
			case "out", "config":
				return nil, fmt.Errorf("tap: %s has no place in a script: what is recorded is removed after each "+
					"visit, and lies in the folder of --dir until then", key)
			default:
				setting.Flags = append(setting.Flags, "--tap-"+strings.ReplaceAll(key, "_", "-")+"="+text)
			}
		}
		switch {
		case setting.Name == "" && len(setting.Flags) == 0:
			return nil, errors.New("tap: an entry is empty: write name: off for a run without the tap")
		case setting.Name == "":
			setting.Name = strings.Join(setting.Flags, " ")
		}
		if slices.ContainsFunc(all, func(t TapSetting) bool { return t.Name == setting.Name }) {
			return nil, fmt.Errorf("tap: two configurations are called %q", setting.Name)
		}
		all = append(all, setting)
	}
	return all, nil
}
