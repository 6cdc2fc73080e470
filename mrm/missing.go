package mrm

import "github.com/llamatap/llamatap/memtrace/sample"

// MissingCollectors are the sampling collectors (perf, fault, page) that cannot run on this machine, each with the
// reason. It opens and closes each.
func MissingCollectors() map[string]error {
	missing := map[string]error{}
	for name, tried := range map[string]string{"perf": sample.Perf, "fault": sample.Faults, "page": sample.Pages} {
		if _, err := sample.Try(tried); err != nil {
			missing[name] = err
		}
	}
	return missing
}
