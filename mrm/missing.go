package mrm

import (
	"github.com/llamatap/llamatap/memtrace/sample"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
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
	accesses, err := perf.OpenSampler(perf.SamplerOptions{})
	if err == nil {
		err = accesses.Close()
	}
	note("perf", err)
	faults, err := perf.OpenFaults(perf.SamplerOptions{}, false)
	if err == nil {
		err = faults.Close()
	}
	note("fault", err)
	note("page", sample.CanWatch())
	return missing
}
