package intervene

import (
	"fmt"
	"slices"

	"github.com/llamatap/llamatap/cgo/llama"
)

// tokenize reads a pair of prompts.
func (s *Sweep) tokenize(e *Engine, p *Pair) (*pairRun, error) {
	vocab := e.Vocab()
	clean, err := vocab.Tokenize(p.Clean, true, true)
	if err != nil {
		return nil, err
	}
	var corrupt []llama.Token
	if p.Corrupt != "" {
		if corrupt, err = vocab.Tokenize(p.Corrupt, true, true); err != nil {
			return nil, err
		}
	}
	if s.Recorded != nil {
		if err := s.Recorded.check(e.name(), clean, p.Clean); err != nil {
			return nil, err
		}
	}
	r := &pairRun{base: clean}
	switch {
	case s.Action == "patch" && s.Recorded != nil:
		r.base = corrupt
		if corrupt == nil {
			r.base = clean
		}
	case s.Action == "patch":
		r.base, r.source = corrupt, clean
	case s.Action == "resample":
		r.source = corrupt
	}
	if (s.Action == "resample" || s.Action == "patch" && s.Recorded == nil) && corrupt == nil {
		return nil, fmt.Errorf("%s needs a second prompt: give one with --corrupt", s.Action)
	}
	if takes := s.Action == "patch" || s.Action == "resample"; takes && corrupt != nil && len(clean) != len(corrupt) {
		return nil, fmt.Errorf("the clean prompt has %d tokens, the corrupt one %d: change words so that they are as "+
			"many", len(clean), len(corrupt))
	}
	r.metric.name = s.Metric
	if r.metric.answer, err = s.token(vocab, p.Answer, "--answer", s.Metric != "kl"); err != nil {
		return nil, err
	}
	r.metric.wrong, err = s.token(vocab, p.Wrong, "--wrong", s.Metric == "logit-diff")
	return r, err
}

// token is the one token that a text is.
func (s *Sweep) token(vocab *llama.Vocab, text, flag string, needed bool) (llama.Token, error) {
	if !needed {
		return 0, nil
	}
	if text == "" {
		return 0, fmt.Errorf("the metric %s needs a token: give it with %s", s.Metric, flag)
	}
	list, err := vocab.Tokenize(text, false, true)
	if err != nil {
		return 0, err
	}
	if len(list) != 1 {
		return 0, fmt.Errorf("%s of the metric %s is one token, and %q is %d: mind the space before a word", flag,
			s.Metric, text, len(list))
	}
	return list[0], nil
}

// effect is the intervention that a site belongs to; key is the same for sites that are changed together.
func (s *Sweep) effect(site Site) (f Effect, key string) {
	f.sites = []Site{site}
	if !slices.Contains(s.Together, "points") {
		f.Point = site.Point.String()
	}
	put := func(axis string, at int) *int {
		if at < 0 || slices.Contains(s.Together, axis) {
			return nil
		}
		key += fmt.Sprint(axis, at)
		return &at
	}
	f.Layer, f.Token, f.Head = put("layers", site.Layer), put("tokens", site.Token), put("heads", site.Head)
	return f, f.Point + key
}

// positions are the tokens that are changed.
func (s *Sweep) positions(n int) (list []int, err error) {
	if len(s.Tokens) == 0 {
		for i := range n {
			list = append(list, i)
		}
		return list, nil
	}
	for _, at := range s.Tokens {
		if at < -n || at >= n {
			return nil, fmt.Errorf("the prompt has %d tokens: there is no token %d: give positions from %d to %d", n,
				at, -n, n-1)
		}
		if at < 0 {
			at += n
		}
		list = append(list, at)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}
