package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/llamatap/llamatap/internal/cli"
)

// expand lists the prompts of one entry of a script.
func (p *scriptedPrompt) expand(dir string) ([]Prompt, error) {
	if p.File != "" && p.JSONL != "" || p.File+p.JSONL != "" && len(p.Prompt) > 0 {
		return nil, errors.New("give one of prompt, file and jsonl")
	}
	gens := p.Gen
	if len(gens) == 0 {
		gens = Numbers{0}
	}
	texts := []Prompt{}
	switch {
	case p.File != "":
		text, err := readText(resolvePath(dir, p.File))
		if err != nil {
			return nil, err
		}
		texts = append(texts, Prompt{Name: filepath.Base(p.File), Text: text})
	case p.JSONL != "":
		data, err := readText(resolvePath(dir, p.JSONL))
		if err != nil {
			return nil, err
		}
		if texts, err = parsePrompts(filepath.Base(p.JSONL), data); err != nil {
			return nil, err
		}
	default:
		for _, n := range p.Prompt {
			texts = append(texts, Prompt{Length: n})
		}
		if len(texts) == 0 {
			texts = append(texts, Prompt{})
		}
	}
	var prompts []Prompt
	for _, text := range texts {
		for _, n := range gens {
			next := text
			if next.Gen == 0 {
				next.Gen = n
			}
			if next.Text == "" && next.Length == 0 && next.Gen == 0 {
				return nil,
					errors.New("it says nothing: write {prompt: 512}, {gen: 128}, both, {file: …} or {jsonl: …}")
			}
			prompts = append(prompts, next)
		}
	}
	return prompts, nil
}

// mostText bounds a file of prompts.
const mostText = 64 << 20

func readText(path string) (string, error) {
	data, err := cli.ReadFile(path, mostText)
	if errors.Is(err, cli.ErrTooLarge) {
		return "", fmt.Errorf("%s is larger than %d MiB: no context holds as much", path, mostText>>20)
	}
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(string(data), "\n")
	if !utf8.ValidString(text) {
		return "", fmt.Errorf("%s is not valid UTF-8: convert it first, with iconv for example", path)
	}
	if text == "" {
		return "", fmt.Errorf("%s is empty: give some text", path)
	}
	return text, nil
}

// parsePrompts reads one prompt per line: {"id": …, "prompt": …, "n_predict": …}. Other keys are those of
// llamatap run's --prompts, and mean nothing here.
func parsePrompts(name, data string) ([]Prompt, error) {
	var prompts []Prompt
	number := 0
	for line := range strings.Lines(data) {
		number++
		if strings.TrimSpace(line) == "" {
			continue
		}
		var p struct {
			ID      json.RawMessage `json:"id"`
			Prompt  string          `json:"prompt"`
			Predict int             `json:"n_predict"`
		}
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, number, err)
		}
		if p.Prompt == "" || p.Predict < 0 {
			return nil, fmt.Errorf(`%s, line %d: no prompt that can be timed: write {"prompt": "…", "n_predict": 32}`,
				name, number)
		}
		id := string(bytes.Trim(p.ID, `"`))
		if id == "" {
			id = fmt.Sprintf("%s:%d", name, number)
		}
		prompts = append(prompts, Prompt{Name: id, Text: p.Prompt, Gen: p.Predict})
	}
	if len(prompts) == 0 {
		return nil, fmt.Errorf("%s holds no prompt", name)
	}
	return prompts, nil
}
