package mrm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
)

// This file reads configurations of mrm-trace (the Python package, 0.1.0 to 0.1.23) as its own model reads them:
// keys that it does not know are ignored, numbers may be written in other bases, anchors are followed, and paths
// start where the program runs.

// traceFile is a configuration of mrm-trace, as far as its keys have a counterpart here. The others are named in a
// note.
type traceFile struct {
	Experiment struct {
		Name string `yaml:"name" doc:"the experiment's name" required:"yes"`
	} `yaml:"experiment" doc:"which experiment this is" required:"yes"`
	Models []traceModel `yaml:"models" doc:"the models" required:"yes"`
	Sweep  struct {
		Contexts    []int64 `yaml:"context_lengths" default:"2048" min:"1" max:"16777216"`
		Batches     []int64 `yaml:"batch_sizes" default:"1" min:"1" max:"256"`
		Outputs     []int64 `yaml:"output_tokens" default:"128" min:"1" max:"16777216"`
		Repetitions int64   `yaml:"repetitions" default:"1" min:"1" max:"10000"`
	} `yaml:"sweep"`
	Prompts struct {
		Source     string   `yaml:"source"`
		Categories []string `yaml:"categories"`
	} `yaml:"prompts"`
	Collector struct {
		Primary  string `yaml:"primary" default:"perf_mem" enum:"perf_mem|memray|process_monitor"`
		Fallback string `yaml:"fallback" default:"memray" enum:"perf_mem|memray|process_monitor"`
		Second   string `yaml:"fallback_2" default:"process_monitor" enum:"perf_mem|memray|process_monitor"`
		Perf     struct {
			Period int64 `yaml:"sample_period" default:"4000" min:"0" max:"1000000000"`
		} `yaml:"perf_mem"`
	} `yaml:"collector"`
	Labeller struct {
		Unknown string `yaml:"unknown_policy" default:"log_and_skip" enum:"log_and_skip|assign_runtime|assign_unknown|fail_run"`
	} `yaml:"labeller"`
	Output struct {
		Dir string `yaml:"base_dir" default:"results/"`
	} `yaml:"output"`
}

// traceModel is one of its models.
type traceModel struct {
	ID     string `yaml:"id" doc:"its name" required:"yes"`
	Engine string `yaml:"engine" doc:"llamacpp or vllm" required:"yes" enum:"llamacpp|vllm"`
	Path   string `yaml:"path"`
	Repo   string `yaml:"hf_repo"`
}

// isTrace reports whether a file is one of mrm-trace: it has models, which no file of our own has.
func isTrace(body ast.Node) bool {
	keys := map[string]bool{}
	for _, pair := range pairsOf(body) {
		keys[pair.Key.GetToken().Value] = true
	}
	return keys["models"] && !keys["model"] && !keys["workload"]
}

// pairsOf are the pairs of a mapping; none of anything else.
func pairsOf(node ast.Node) []*ast.MappingValueNode {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

// traceReader fills a configuration from a file of mrm-trace.
type traceReader struct {
	*Config
	problems *Problems
	from     traceFile
}

func (c *traceReader) read(body ast.Node) {
	d := decoder{problems: &Problems{places: map[string]place{}}}
	for _, section := range []string{"workload", ""} { // prompts, which have no default, follow from the file
		v := reflect.ValueOf(c.Config).Elem()
		if section != "" {
			v = v.FieldByName("Workload")
		}
		d.defaults(section, v)
	}
	c.isTrace = true
	a := aliases{known: map[string]ast.Node{}}
	d = decoder{problems: c.problems, ignored: &[]string{}}
	d.structure(a.followed(body), "", reflect.ValueOf(&c.from).Elem())
	if len(c.problems.All) > 0 {
		return
	}
	c.takeOver()
	if ignored := *d.ignored; len(ignored) > 0 {
		c.note("keys of mrm-trace without a counterpart: %s", strings.Join(ignored, ", "))
	}
	if len(c.Models) == 0 {
		c.problems.add("every model has the engine vllm",
			"write an experiment with engine: {type: command, command: [...]}, as docs/MRM.md shows", "models")
		c.Models = []Model{{}}
	}
}

// note adds a note, as one line.
func (c *traceReader) note(format string, args ...any) {
	c.notes = append(c.notes, clipTo(fmt.Sprintf(format, args...), 4000))
}

// takeOver fills in what has a counterpart.
func (c *traceReader) takeOver() {
	from := &c.from
	for key, path := range map[string]string{
		"experiment.name": "experiment.name", "engine.n_ctx": "sweep.context_lengths",
		"workload.max_tokens": "sweep.output_tokens", "workload.concurrency": "sweep.batch_sizes",
		"collector.primary": "collector.primary", "collector.fallback": "collector.fallback",
		"workload.prompts": "prompts.source",
	} {
		if at, ok := c.places[path]; ok {
			c.places[key] = at
		}
		for i := 0; ; i++ {
			at, ok := c.places[fmt.Sprintf("%s[%d]", path, i)]
			if !ok {
				break
			}
			c.places[fmt.Sprintf("%s[%d]", key, i)] = at
		}
	}
	s, k := &from.Sweep, &from.Collector
	c.Experiment.Name, c.Experiment.Repetitions, c.Output.Dir = c.slug("experiment.name", from.Experiment.Name, 64),
		s.Repetitions, from.Output.Dir
	c.Engine.NCtx, c.Workload.MaxTokens, c.Workload.Concurrency = unique(s.Contexts), unique(s.Outputs),
		unique(s.Batches)
	if slices.ContainsFunc(s.Batches, func(n int64) bool { return n > 1 }) {
		c.note("sweep.batch_sizes: so many requests of a prompt are decoded at a time; engine.n_ctx is what they " +
			"have together")
	}
	c.Models = nil
	for i, m := range from.Models {
		if m.Engine == "vllm" {
			c.note("models[%d] (%s) is left out: its engine is vllm, which an experiment with engine: {type: "+
				"command} runs", i, m.ID)
			continue
		}
		where := fmt.Sprintf("model[%d]", len(c.Models))
		for _, key := range []string{"", ".id", ".path"} {
			if at, ok := c.places[fmt.Sprintf("models[%d]%s", i, key)]; ok {
				c.places[where+key] = at
			}
		}
		c.Models = append(c.Models, Model{ID: c.slug(fmt.Sprintf("models[%d].id", i), m.ID, 120),
			Path: absolute(m.Path)})
	}
	c.Collector.Primary, c.failsUnknown = "graph", from.Labeller.Unknown == "fail_run"
	switch {
	case k.Primary == "perf_mem":
		c.Collector.Primary, c.Collector.Period = "perf", k.Perf.Period
		if k.Fallback+k.Second != "" {
			c.Collector.Fallback = "fault"
			c.note("collector: page faults are sampled where this machine has no perf_mem; the ledger of graphs is " +
				"recorded in any case")
		}
	default:
		c.note("collector.primary: %s is not run; the exact ledger of graphs stands for it", k.Primary)
	}
	if p := from.Labeller.Unknown; p == "assign_runtime" {
		c.note("labeller.unknown_policy: accesses without a region keep the type other")
	}
	c.prompts()
}

// slug makes a name one that folders can have.
func (c *traceReader) slug(key, name string, longest int) string {
	fit := regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(name, "_")
	if fit = strings.TrimLeft(fit, "._-"); len(fit) > longest {
		fit = fit[:longest]
	}
	if fit = cmp.Or(fit, "default"); fit != name {
		c.note("%s: %q is written as %s", key, name, fit)
	}
	return fit
}

// unique leaves out numbers that occur before.
func unique(all []int64) (kept []int64) {
	for _, n := range all {
		if !slices.Contains(kept, n) {
			kept = append(kept, n)
		}
	}
	return kept
}

// absolute is a path from where the program runs.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil && path != "" {
		return full
	}
	return path
}

// traceDefault is the prompt of files that name none.
const traceDefault = "Once upon a time"

// prompts takes prompts over: mrm-trace's own program reads none, so that a source may be missing.
func (c *traceReader) prompts() {
	source := c.from.Prompts.Source
	prompts, err := promptsOf(absolute(source), c.from.Prompts.Categories)
	switch {
	case source == "":
		c.note("prompts: the file names none; the prompt is %q", traceDefault)
	case err != nil:
		c.note("prompts.source: %s: %v; the prompt is %q", source, err, traceDefault)
	}
	if len(prompts) == 0 {
		prompts = []Prompt{{Text: traceDefault}}
	}
	c.Workload.Prompts = prompts
}

// mostPrompts bounds the prompts of a file.
const mostPrompts = 10000

// promptsOf reads a file of prompts: a JSON list or JSON lines of texts or of objects with prompt or text, id and
// category; any other file is one prompt.
func promptsOf(path string, categories []string) (prompts []Prompt, err error) {
	info, err := os.Stat(path)
	switch {
	case path == "":
		return nil, nil
	case err != nil:
		return nil, withoutPath(err)
	case !info.Mode().IsRegular() || info.Size() > largestPrompt:
		return nil, fmt.Errorf("no regular file of at most %d bytes", largestPrompt)
	}
	if kind := filepath.Ext(path); kind != ".json" && kind != ".jsonl" {
		return []Prompt{{File: path}}, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	values := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		if err := values.Decode(&raw); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("no JSON: %w", err)
		}
		items := []json.RawMessage{raw}
		if raw[0] == '[' {
			if err := json.Unmarshal(raw, &items); err != nil {
				return nil, err
			}
		}
		for _, item := range items {
			prompt, category, err := promptOf(item)
			if err != nil || len(prompts) == mostPrompts {
				return nil, cmp.Or(err, fmt.Errorf("more than %d prompts", mostPrompts))
			}
			if len(categories) == 0 || slices.Contains(categories, category) {
				prompts = append(prompts, prompt)
			}
		}
	}
	if len(prompts) == 0 {
		return nil, errors.New("no prompt of these categories")
	}
	return prompts, nil
}

// promptOf reads one prompt.
func promptOf(raw json.RawMessage) (p Prompt, category string, err error) {
	if json.Unmarshal(raw, &p.Text) == nil && p.Text != "" {
		return p, "", nil
	}
	var o struct{ ID, Prompt, Text, Category string }
	if err := json.Unmarshal(raw, &o); err != nil {
		return p, "", fmt.Errorf("a prompt is neither a text nor an object of texts: %w", err)
	}
	if p.Text = cmp.Or(o.Prompt, o.Text); p.Text == "" || !utf8.ValidString(p.Text) {
		return p, "", errors.New("a prompt has no text")
	}
	if regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$`).MatchString(o.ID) {
		p.ID = o.ID
	}
	return p, o.Category, nil
}

// aliases replaces anchors and aliases by what they stand for. An alias shares its nodes with the anchor, so that
// nothing grows.
type aliases struct{ known map[string]ast.Node }

// followed returns a node without anchors, aliases, tags and merge keys, as far as mappings and lists go.
func (a *aliases) followed(node ast.Node) ast.Node {
	switch n := node.(type) {
	case *ast.AnchorNode:
		value := a.followed(n.Value)
		a.known[n.Name.GetToken().Value] = value
		return value
	case *ast.AliasNode:
		if value, ok := a.known[n.Value.GetToken().Value]; ok {
			return value
		}
	case *ast.TagNode:
		return a.followed(n.Value)
	case *ast.MappingNode:
		a.pairs(&n.Values)
	case *ast.MappingValueNode:
		return a.followed(ast.Mapping(n.Start, false, n))
	case *ast.SequenceNode:
		for i := range n.Values {
			n.Values[i] = a.followed(n.Values[i])
		}
	}
	return node
}

// pairs follows the values of a mapping, and takes merged pairs in that it does not have itself.
func (a *aliases) pairs(all *[]*ast.MappingValueNode) {
	var kept, merged []*ast.MappingValueNode
	has := map[string]bool{}
	for _, pair := range *all {
		pair.Value = a.followed(pair.Value)
		if !pair.Key.IsMergeKey() {
			kept, has[pair.Key.GetToken().Value] = append(kept, pair), true
			continue
		}
		sources := []ast.Node{pair.Value}
		if list, ok := pair.Value.(*ast.SequenceNode); ok {
			sources = list.Values
		}
		for _, source := range sources {
			merged = append(merged, pairsOf(source)...)
		}
	}
	for _, pair := range merged {
		if name := pair.Key.GetToken().Value; !has[name] {
			kept, has[name] = append(kept, pair), true
		}
	}
	*all = kept
}
