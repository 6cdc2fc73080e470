package doctor

import (
	"io/fs"
	"path"
)

const sources = "sys/bus/event_source/devices"

// counters looks for the processor's performance counters.
func counters(root fs.FS) []Fact {
	f := Fact{Topic: "counters", Name: "pmu", Status: Missing, Value: "none in /" + sources}
	entries, err := fs.ReadDir(root, sources)
	if err != nil {
		f.Status, f.Value = Unknown, err.Error()
	}
	for _, e := range entries {
		for _, pattern := range []string{"cpu", "cpu_core", "armv8*"} {
			if ok, _ := path.Match(pattern, e.Name()); ok {
				f.Status, f.Value = OK, e.Name()
			}
		}
	}
	return []Fact{f.lacking("no cycles, no cache misses", "run on bare metal, or give the guest a virtual PMU")}
}
