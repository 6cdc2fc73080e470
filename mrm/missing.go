package mrm

import (
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
