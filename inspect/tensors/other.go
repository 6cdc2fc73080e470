package tensors

import (
	"encoding/json"
	"io/fs"
	"os"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/rundir"
)

// otherNames are files that other recorders than that of tensors write, as patterns. A directory with one of them
// is a run's.
var otherNames = []string{
	rundir.TraceName, "trace.[0-9][0-9][0-9].parquet", rundir.RegionsName, rundir.LivesName, rundir.EventsName,
	rundir.RequestsName, "requests.[0-9][0-9][0-9].parquet",
	rundir.ProcessName, rundir.WaitsName, rundir.FaultsName,
}

// recorded reports whether a directory holds anything that a recorder wrote, sealed or not, or is that of a run
// that was killed before that.
func recorded(path string) bool {
	for _, name := range append([]string{rundir.ManifestName, rundir.MetadataName, rundir.StreamName}, otherNames...) {
		if found, _ := fs.Glob(os.DirFS(path), name); len(found) > 0 {
			return true
		}
	}
	return rundir.Abandoned(path)
}

// checkOthers reports what recorders other than that of tensors say they lack.
func (v *Verification) checkOthers(r *Run, hasStream bool) {
	m := r.Metadata
	if m == nil {
		return
	}
	if m.Stopped != nil && !hasStream {
		v.add(Lost, "recording stopped before the program did: %s", m.Stopped.Cause)
	}
	if a := m.Account; a != nil {
		// losses of tensors are findings of their own
		tensors := rundir.Account{Events: a.Events, Violations: a.Violations}
		if tensors.Lossy() {
			v.add(Lost, "%s", present.Losses(&tensors))
		}
	}
	var samples struct {
		Lossy bool   `json:"lossy"`
		Error string `json:"error"`
	}
	if json.Unmarshal(m.Extra["memory_samples"], &samples) != nil || !samples.Lossy {
		return
	}
	if samples.Error == "" {
		samples.Error = "extra.memory_samples of " + rundir.MetadataName + " says how many"
	}
	v.add(Lost, "samples of memory accesses are missing: %s", samples.Error)
}
