package mrm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/memtrace/pagefault"
	"github.com/llamatap/llamatap/memtrace/perfevent"
)

// MissingCollectors are the sampling collectors (perf, fault, page) that cannot run on this machine, each with the
// reason. It opens and closes each.
func MissingCollectors() map[string]error {
	missing := map[string]error{}
	note := func(name string, err error) {
		if err != nil {
			missing[name] = err
		}
	}
	perf, err := perfevent.OpenSampler(perfevent.SamplerOptions{})
	if err == nil {
		err = perf.Close()
	}
	note("perf", err)
	faults, err := pagefault.OpenFaults(pagefault.Options{})
	if err == nil {
		err = faults.Close()
	}
	note("fault", err)
	note("page", pagefault.CanWatch())
	return missing
}

// Collects reports as [*Problems] that the primary collector, and its fallback, are among those that are missing.
func (c *Config) Collects(missing map[string]error) error {
	k := c.Collector
	if missing[k.Primary] == nil || k.Fallback != "none" && missing[k.Fallback] == nil {
		return nil
	}
	var remedies, why []string
	fallback, graph := "", "graph"
	if c.isTrace {
		fallback, graph = "memray", "memray" // which page faults and the ledger stand for
	}
	for _, name := range []string{"fault", "page"} {
		if k.Primary == "perf" && missing[name] == nil {
			remedies = append(remedies, "add collector.fallback: "+cmp.Or(fallback, name))
			break
		}
	}
	if !c.isCommand() {
		remedies = append(remedies, "write collector.primary: "+graph)
	}
	remedies = append(remedies, "run it on another machine ('llamatap mrm plan --emit slurm')")
	for _, name := range []string{k.Primary, k.Fallback} {
		if err := missing[name]; err != nil {
			why = append(why, fmt.Sprintf("%s: %v", name, err))
		}
	}
	problems := &Problems{File: c.file}
	problems.add(c.at("collector.primary", "collector", "engine.type"), "this machine cannot collect "+strings.Join(slices.Compact(why), "; and "), list(remedies))
	return problems
}
