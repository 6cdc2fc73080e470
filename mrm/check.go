package mrm

import (
	"fmt"
	"slices"
	"strings"
)

// A checker finds what no single key shows, such as duplicates and keys that exclude each other. It fills in what
// follows from the other keys.
type checker struct {
	*Config
	*Problems
}

func (k checker) check() {
	if len(k.Models) == 0 {
		k.Models = []Model{{}}
	}
	k.models()
	k.prompts()
	if k.Engine.NUBatch > k.Engine.NBatch {
		k.add(fmt.Sprintf("n_ubatch %d is above n_batch %d", k.Engine.NUBatch, k.Engine.NBatch),
			"a graph takes no more tokens than a call: lower it", "engine.n_ubatch", "engine.n_batch")
	}
	switch words := k.Engine.Command; {
	case !k.Engine.isCommand() && len(words) > 0:
		k.add("engine.command is given, and engine.type is "+k.Engine.Type, "write type: command, or delete it",
			"engine.command")
	case !k.Engine.isCommand():
	case len(words) == 0:
		k.add("engine.type is command, and there is no engine.command",
			`add it, as in command: [./program, --prompt, "{prompt}"]`, "engine.type")
	default:
		k.checkCommandWords()
		k.passed()
		k.commandCollectors()
	}
	k.collector()
	twice(k, "engine.n_ctx", k.Engine.NCtx)
	twice(k, "engine.kv_type", k.Engine.KVType)
	twice(k, "analysis.windows_s", k.Analysis.WindowsS)
	twice(k, "workload.max_tokens", k.Workload.MaxTokens)
	twice(k, "workload.concurrency", k.Workload.Concurrency)
	if t := k.Analysis.Thresholds; t.MediumWriteOnce > t.HighWriteOnce {
		k.add(fmt.Sprintf("medium_write_once %g is above high_write_once %g", t.MediumWriteOnce, t.HighWriteOnce),
			"what is high must be medium too: lower it",
			"analysis.thresholds.medium_write_once", "analysis.thresholds.high_write_once")
	}
	last := k.Experiment.Seed + k.Experiment.Repetitions*largest(k.Workload.Concurrency)
	if last > 1<<32-2 {
		k.add(fmt.Sprintf("the seeds of all repetitions go up to %d", last), "choose a smaller seed", "experiment.seed")
	}
}

// has reports whether the file has a key.
func (k checker) has(key string) bool { _, ok := k.Problems.places[key]; return ok }

// twice finds values that a list has twice.
func twice[T comparable](k checker, key string, values []T) {
	for i, v := range values {
		if slices.Contains(values[:i], v) {
			k.add(fmt.Sprintf("%s has %v twice", key, v), "delete one; repetitions are experiment.repetitions",
				fmt.Sprintf("%s[%d]", key, i), key)
		}
	}
}

func (k checker) models() {
	ids, paths := map[string]bool{}, map[string]bool{}
	for i, m := range k.Models {
		where := fmt.Sprintf("model[%d]", i)
		if m.ID != "" && ids[m.ID] {
			k.add("two models have the id "+m.ID, "give each its own", where+".id", where)
		}
		if paths[m.Path] && m.ID == "" { // with an id of its own it is another model
			k.add(fmt.Sprintf("the model %q stands twice", m.Path),
				"delete one; repetitions are experiment.repetitions", where+".path", where)
		}
		if m.Path == "" && m.SHA256 != "" {
			k.add(where+" has a sha256 and no path", "give its path, or leave both out for the embedded model",
				where+".sha256", where)
		}
		if m.ID == archiveFolder {
			k.add("the id contaminated is the folder of runs that are contaminated", "choose another one",
				where+".id", where)
		}
		ids[m.ID], paths[m.Path] = true, true
	}
}

func (k checker) prompts() {
	ids := map[string]bool{}
	for i := range k.Workload.Prompts {
		prompt := &k.Workload.Prompts[i]
		where := fmt.Sprintf("workload.prompts[%d]", i)
		if prompt.ID == "" {
			prompt.ID = fmt.Sprintf("p%d", i)
		}
		if ids[prompt.ID] {
			k.add("two prompts have the id "+prompt.ID, "give each its own", where+".id", where)
		}
		ids[prompt.ID] = true
		given := 0
		for _, is := range []bool{prompt.Text != "", prompt.File != "", prompt.Length > 0} {
			if is {
				given++
			}
		}
		if given != 1 {
			k.add(fmt.Sprintf("the prompt %s has %d of text, file and length", prompt.ID, given),
				"give it one of the three", where)
		}
		if k.Engine.isCommand() {
			if prompt.Length > 0 && len(k.Engine.Command) > 0 {
				k.add(fmt.Sprintf("the prompt %s is random tokens, which a program cannot be given", prompt.ID),
					"give it a text or a file", where+".length", where)
			}
			continue
		}
		for c, n := range k.Engine.NCtx {
			if need := k.Workload.cells(prompt.Length); n > 0 && need > n {
				k.add(fmt.Sprintf("n_ctx %d is too short for %d requests of the prompt %s, which take %d tokens and "+
					"more",
					n, largest(k.Workload.Concurrency), prompt.ID, need),
					fmt.Sprintf("give it at least %d, or generate fewer tokens (workload.max_tokens)", need),
					fmt.Sprintf("engine.n_ctx[%d]", c), "engine.n_ctx")
			}
		}
	}
}

func (k checker) collector() {
	c := &k.Collector
	if c.Primary == "graph" && c.GraphTrace == "off" && !k.Engine.isCommand() {
		k.add("the primary collector is the ledger of graphs, and graph_trace is off",
			"write rows or windows, or another primary collector", "collector.graph_trace")
	}
	if c.Fallback != "none" && c.Primary != "perf" {
		k.add(fmt.Sprintf("a fallback stands in for perf, and the primary collector is %s, which every machine has",
			c.Primary), "delete it", "collector.fallback")
	}
	if c.Period > 0 && c.Primary != "perf" {
		k.add("period is of perf's samples, and the primary collector is "+c.Primary, "delete it, or collect perf",
			"collector.period")
	}
}

// checkCommandWords checks the words of the engine's command.
func (k checker) checkCommandWords() {
	var names []string
	for _, known := range placeholders {
		names = append(names, known.name)
	}
	for _, name := range k.Engine.used() {
		if !slices.Contains(names, name) {
			at := slices.IndexFunc(k.Engine.Command,
				func(word string) bool { return strings.Contains(word, "{"+name+"}") })
			k.add(fmt.Sprintf("there is no placeholder {%s}", name),
				nearestOf(name, names)+"; a name in double braces keeps one pair",
				fmt.Sprintf("engine.command[%d]", at), "engine.command")
		}
	}
	switch program := k.Engine.Command[0]; {
	case program == "" || braced.MatchString(program):
		k.add(fmt.Sprintf("the program is %q", program),
			"write its name or path; placeholders stand in its arguments", "engine.command[0]", "engine.command")
	case len(k.Engine.Command) == 1 && strings.ContainsAny(program, " \t\n"):
		k.add(fmt.Sprintf("the program is %q, one word", program),
			`write a list of words, as in [./program, --prompt, "{prompt}"]`, "engine.command[0]", "engine.command")
	}
}

// passed finds keys that are given, or have several values, and that the command does not pass to the program.
func (k checker) passed() {
	several := map[string]int{
		"model": len(k.Models), "workload.prompts": len(k.Workload.Prompts), "engine.n_ctx": len(k.Engine.NCtx),
		"engine.kv_type": len(k.Engine.KVType), "workload.max_tokens": len(k.Workload.MaxTokens),
		"workload.concurrency": len(k.Workload.Concurrency),
	}
	byKey, seen := map[string][]string{}, map[string]bool{"": true}
	for _, known := range placeholders {
		byKey[known.key] = append(byKey[known.key], "{"+known.name+"}")
	}
	for _, known := range placeholders {
		key := known.key
		if seen[key] || k.Engine.passes(key) {
			continue
		}
		seen[key] = true
		switch nothing := "the command has no " + list(byKey[key]); {
		case several[key] > 1:
			k.add(fmt.Sprintf("%s has %d values, and %s: their cells would be the same", key, several[key], nothing),
				"write it into the command, or keep one value", key)
		case !k.has(key), key == "workload.prompts":
		case key == "model" && k.Models[0].Path == "": // a name for what the program does by itself
		default:
			k.add(fmt.Sprintf("%s is given, and %s", key, nothing), "write it into the command, or delete the key", key)
		}
	}
	if k.has("kv") {
		k.add("kv is of llama.cpp's cache, and the engine is a command", "delete it", "kv")
	}
}

// commandCollectors sets and checks the collectors that observe a program from outside. The defaults are those of
// llamatap memory record.
func (k checker) commandCollectors() {
	c := &k.Collector
	if !k.has("collector.primary") {
		c.Primary = "perf"
		if !k.has("collector.fallback") {
			c.Fallback = "fault"
		}
	}
	if c.Primary == "graph" || c.Primary == "none" {
		k.add(fmt.Sprintf("collector.primary is %s, and a program is seen from outside alone", c.Primary),
			"write perf, fault or page", "collector.primary")
	}
	if k.has("collector.graph_trace") && c.GraphTrace != "off" {
		k.add("the ledger is of llama.cpp's graphs, and the engine is a command", "write off, or delete it",
			"collector.graph_trace")
	}
	c.GraphTrace = "off"
}
