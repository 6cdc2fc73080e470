package mrm

import (
	"fmt"
	"slices"
)

// check finds what single keys do not show: what is there twice, or does not go with something else. It fills in
// what follows from the rest.
func (c *Config) check(p *Problems) {
	if len(c.Models) == 0 {
		c.Models = []Model{{}}
	}
	c.checkModels(p)
	c.checkPrompts(p)
	c.checkEngine(p)
	c.checkCommand(p)
	c.checkCollector(p)
	twice(c, p, "engine.n_ctx", c.Engine.NCtx)
	twice(c, p, "engine.kv_type", c.Engine.KVType)
	twice(c, p, "analysis.windows_s", c.Analysis.WindowsS)
	twice(c, p, "workload.max_tokens", c.Workload.MaxTokens)
	twice(c, p, "workload.concurrency", c.Workload.Concurrency)
	if t := c.Analysis.Thresholds; t.MediumWriteOnce > t.HighWriteOnce {
		p.add(c.at("analysis.thresholds.medium_write_once", "analysis.thresholds.high_write_once"),
			fmt.Sprintf("medium_write_once %g is above high_write_once %g", t.MediumWriteOnce, t.HighWriteOnce), "what is high must be medium too: lower it")
	}
	if last := c.Experiment.Seed + c.Experiment.Repetitions*largest(c.Workload.Concurrency); last > 1<<32-2 {
		p.add(c.at("experiment.seed"), fmt.Sprintf("the seeds of all repetitions go up to %d", last), "choose a smaller seed")
	}
}

// at is where the first of some keys stands that the file has.
func (c *Config) at(paths ...string) place {
	for _, path := range paths {
		if at, ok := c.places[path]; ok {
			return at
		}
	}
	return place{}
}

// twice notes values that a list has twice.
func twice[T comparable](c *Config, p *Problems, path string, values []T) {
	for i, v := range values {
		if slices.Contains(values[:i], v) {
			p.add(c.at(fmt.Sprintf("%s[%d]", path, i), path), fmt.Sprintf("%s has %v twice", path, v), "delete one; repetitions are experiment.repetitions")
		}
	}
}

func (c *Config) checkModels(p *Problems) {
	ids, paths := map[string]bool{}, map[string]bool{}
	for i, m := range c.Models {
		where := fmt.Sprintf("model[%d]", i)
		if m.ID != "" && ids[m.ID] {
			p.add(c.at(where+".id", where), fmt.Sprintf("two models have the id %s", m.ID), "give each its own")
		}
		if paths[m.Path] && m.ID == "" { // under ids of their own, two are two
			p.add(c.at(where+".path", where), fmt.Sprintf("the model %q stands twice", m.Path), "delete one; repetitions are experiment.repetitions")
		}
		if m.Path == "" && m.SHA256 != "" {
			p.add(c.at(where+".sha256", where), where+" has a sha256 and no path", "give its path, or leave both out for the embedded model")
		}
		if m.ID == "contaminated" {
			p.add(c.at(where+".id", where), "the id contaminated is the folder of runs that are contaminated", "choose another one")
		}
		ids[m.ID], paths[m.Path] = true, true
	}
}

func (c *Config) checkPrompts(p *Problems) {
	ids := map[string]bool{}
	for i := range c.Workload.Prompts {
		prompt := &c.Workload.Prompts[i]
		where := fmt.Sprintf("workload.prompts[%d]", i)
		if prompt.ID == "" {
			prompt.ID = fmt.Sprintf("p%d", i)
		}
		if ids[prompt.ID] {
			p.add(c.at(where+".id", where), fmt.Sprintf("two prompts have the id %s", prompt.ID), "give each its own")
		}
		ids[prompt.ID] = true
		given := 0
		for _, is := range []bool{prompt.Text != "", prompt.File != "", prompt.Length > 0} {
			if is {
				given++
			}
		}
		if given != 1 {
			p.add(c.at(where), fmt.Sprintf("the prompt %s has %d of text, file and length", prompt.ID, given), "give it one of the three")
		}
		for k, n := range c.Engine.NCtx {
			if need := c.atMost(prompt.Length); n > 0 && need > n && !c.isCommand() {
				p.add(c.at(fmt.Sprintf("engine.n_ctx[%d]", k), "engine.n_ctx"),
					fmt.Sprintf("n_ctx %d is too short for %d requests of the prompt %s, which take %d tokens and more", n, largest(c.Workload.Concurrency), prompt.ID, need),
					fmt.Sprintf("give it at least %d, or generate fewer tokens (workload.max_tokens)", need))
			}
		}
	}
}

func (c *Config) checkEngine(p *Problems) {
	if c.Engine.NUBatch > c.Engine.NBatch {
		p.add(c.at("engine.n_ubatch", "engine.n_batch"),
			fmt.Sprintf("n_ubatch %d is above n_batch %d", c.Engine.NUBatch, c.Engine.NBatch), "a graph takes no more tokens than a call: lower it")
	}
}

func (c *Config) checkCollector(p *Problems) {
	k := &c.Collector
	if k.Primary == "graph" && k.GraphTrace == "off" && !c.isCommand() {
		p.add(c.at("collector.graph_trace"), "the primary collector is the ledger of graphs, and graph_trace is off", "write rows or windows, or another primary collector")
	}
	if k.Fallback != "none" && k.Primary != "perf" {
		p.add(c.at("collector.fallback"), fmt.Sprintf("a fallback stands in for perf, and the primary collector is %s, which every machine has", k.Primary), "delete it")
	}
	if k.Period > 0 && k.Primary != "perf" {
		p.add(c.at("collector.period"), fmt.Sprintf("period is of perf's samples, and the primary collector is %s", k.Primary), "delete it, or collect perf")
	}
}
