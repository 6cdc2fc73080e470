package sched

import (
	"slices"
	"sync"

	"github.com/cilium/ebpf/btf"

	"github.com/llamatap/llamatap/resource/bpf"
)

// kernel is what programs can have of this kernel.
type kernel struct {
	switchHasState bool // the hook sched_switch passes the state of the thread that is left
	queues         bool // tasks record since when they wait for a processor, and by which clock
}

// knownKernel looks at the kernel's types. Where it has none nothing can be had.
var knownKernel = sync.OnceValue(func() (k kernel) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return k
	}
	k.switchHasState = bpf.ArgumentsIn(spec, "sched_switch") >= 5 // the first is the hook's own
	// Kernels that pass the state keep sched_info whether or not somebody asked for its statistics.
	k.queues = k.switchHasState && has(spec, "sched_info", "last_queued", "run_delay") &&
		has(spec, "sched_entity", "cfs_rq") &&
		has(spec, "cfs_rq", "rq") && has(spec, "rq", "clock")
	return k
})

// has reports whether a structure has all these fields.
func has(spec *btf.Spec, name string, fields ...string) bool {
	var t *btf.Struct
	if spec.TypeByName(name, &t) != nil {
		return false
	}
	return !slices.ContainsFunc(fields, func(field string) bool {
		return !slices.ContainsFunc(t.Members, func(m btf.Member) bool { return m.Name == field })
	})
}
