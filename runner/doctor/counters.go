package doctor

import (
	"io/fs"
	"strings"
)

const sources = "sys/bus/event_source/devices"

// counters looks for the processor's performance counters.
func counters(root fs.FS) []Fact {
	f := Fact{Topic: "counters", Name: "pmu"}
	entries, err := fs.ReadDir(root, sources)
	if err != nil {
		return []Fact{f.unknown(err)}
	}
	var found []string
	for _, e := range entries {
		if isCore(root, e.Name()) {
			found = append(found, e.Name())
		}
	}
	if len(found) > 0 {
		return []Fact{f.with(OK, strings.Join(found, ", "))}
	}
	return []Fact{f.with(Missing, "none of a processor in /"+sources).
		lacking("no cycles, no cache misses", "run on bare metal, or give the guest a virtual PMU")}
}

// isCore reports whether an event source is a processor's own PMU. One that counts for some cores only (big.LITTLE,
// hybrid) lists them in cpus; those outside of the cores (memory controllers, arm_spe) list in cpumask where they
// are read.
func isCore(root fs.FS, name string) bool {
	if name == "cpu" || strings.HasPrefix(name, "armv") {
		return true
	}
	_, err := fs.Stat(root, sources+"/"+name+"/cpus")
	return err == nil
}
