package mrm

import (
	"fmt"
	"slices"
	"strings"
)

// checkCommand finds what does not go with the engine, and fills in the collectors of a program.
func (c *Config) checkCommand(p *Problems) {
	switch {
	case !c.isCommand() && len(c.Engine.Command) > 0:
		p.add(c.at("engine.command"), "engine.command is given, and engine.type is "+c.Engine.Type, "write type: command, or delete it")
		return
	case !c.isCommand():
		return
	case len(c.Engine.Command) == 0:
		p.add(c.at("engine.type"), "engine.type is command, and there is no engine.command", `add it, as in command: [./program, --prompt, "{prompt}"]`)
		return
	}
	c.checkWords(p)
	c.checkPassedOn(p)
	for i, prompt := range c.Workload.Prompts {
		if prompt.Length > 0 {
			where := fmt.Sprintf("workload.prompts[%d]", i)
			p.add(c.at(where+".length", where), fmt.Sprintf("the prompt %s is random tokens, which a program cannot be given", prompt.ID), "give it a text or a file")
		}
	}
	c.commandCollectors(p)
}

// checkWords looks at the words of the command.
func (c *Config) checkWords(p *Problems) {
	var names []string
	for _, known := range placeholders {
		names = append(names, known.name)
	}
	for _, name := range c.used() {
		if !slices.Contains(names, name) {
			at := slices.IndexFunc(c.Engine.Command, func(word string) bool { return strings.Contains(word, "{"+name+"}") })
			p.add(c.at(fmt.Sprintf("engine.command[%d]", at), "engine.command"), fmt.Sprintf("there is no placeholder {%s}", name), nearestOf(name, names)+"; a name in double braces keeps one pair")
		}
	}
	where, program := c.at("engine.command[0]", "engine.command"), c.Engine.Command[0]
	switch {
	case program == "" || braced.MatchString(program):
		p.add(where, fmt.Sprintf("the program is %q", program), "write its name or path; placeholders stand in its arguments")
	case len(c.Engine.Command) == 1 && strings.ContainsAny(program, " \t\n"):
		p.add(where, fmt.Sprintf("the program is %q, one word", program), `write a list of words, as in [./program, --prompt, "{prompt}"]`)
	}
}

// checkPassedOn finds keys that are given, or have several values, and that the program would never know of.
func (c *Config) checkPassedOn(p *Problems) {
	several := map[string]int{
		"model": len(c.Models), "workload.prompts": len(c.Workload.Prompts), "engine.n_ctx": len(c.Engine.NCtx), "engine.kv_type": len(c.Engine.KVType),
		"workload.max_tokens": len(c.Workload.MaxTokens), "workload.concurrency": len(c.Workload.Concurrency),
	}
	byKey, passed := map[string][]string{}, map[string]bool{"": true}
	for _, known := range placeholders {
		byKey[known.key] = append(byKey[known.key], "{"+known.name+"}")
		passed[known.key] = passed[known.key] || slices.Contains(c.used(), known.name)
	}
	for _, known := range placeholders {
		key := known.key
		if passed[key] {
			continue
		}
		passed[key] = true // it is told once
		_, given := c.places[key]
		switch nothing := "the command has no " + list(byKey[key]); {
		case several[key] > 1:
			p.add(c.at(key), fmt.Sprintf("%s has %d values, and %s: their cells would be the same", key, several[key], nothing), "write it into the command, or keep one value")
		case !given, key == "workload.prompts", key == "model" && c.Models[0].Path == "": // one name for what the program does by itself
		default:
			p.add(c.at(key), fmt.Sprintf("%s is given, and %s", key, nothing), "write it into the command, or delete the key")
		}
	}
	if at, given := c.places["kv"]; given {
		p.add(at, "kv is of llama.cpp's cache, and the engine is a command", "delete it")
	}
}

// commandCollectors are those that look at a program from outside. Without a word on it they are those of llamatap
// memory record.
func (c *Config) commandCollectors(p *Problems) {
	k := &c.Collector
	if _, given := c.places["collector.primary"]; !given {
		k.Primary = "perf"
		if _, given := c.places["collector.fallback"]; !given {
			k.Fallback = "fault"
		}
	}
	if k.Primary == "graph" || k.Primary == "none" {
		p.add(c.at("collector.primary"), fmt.Sprintf("collector.primary is %s, and a program is seen from outside alone", k.Primary), "write perf, fault or page")
	}
	if _, given := c.places["collector.graph_trace"]; given && k.GraphTrace != "off" {
		p.add(c.at("collector.graph_trace"), "the ledger is of llama.cpp's graphs, and the engine is a command", "write off, or delete it")
	}
	k.GraphTrace = "off"
}
