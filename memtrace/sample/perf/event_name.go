package perf

import (
	"strings"

	"github.com/llamatap/llamatap/memtrace"
)

// spe are the events that perf synthesises from Arm's SPE records.
var spe = map[string]bool{
	"memory": true, "l1d-miss": true, "l1d-access": true, "llc-miss": true, "llc-access": true, "tlb-miss": true,
	"tlb-access": true, "branch-miss": true,
	"branch": true, "remote-access": true, "instructions": true,
}

// software are the events whose address perf gives a symbol of its own.
var software = map[string]bool{"page-faults": true, "faults": true, "minor-faults": true, "major-faults": true,
	"alignment-faults": true}

// plain is an event's name without what follows the last slash or a modifier: page-faults:u is page-faults.
func plain(event string) string {
	if name, _, ok := strings.Cut(event, ":"); ok && !strings.Contains(event, "/") && !isTracepoint(event) {
		return name
	}
	return event
}

// isTracepoint reports whether a name is of the form subsystem:event.
func isTracepoint(event string) bool { return strings.HasPrefix(event, "exceptions:") }

// collector is the collector of an event, by its name.
func collector(event string) memtrace.Collector {
	switch name := plain(event); {
	case software[name], isTracepoint(event):
		return memtrace.CollectorFault
	case strings.Contains(name, "ibs"):
		return memtrace.CollectorIBS
	case strings.Contains(name, "arm_spe"), strings.HasPrefix(name, "spe-"), spe[name]:
		return memtrace.CollectorSPE
	}
	return memtrace.CollectorPerf
}

// op is what an event's name says of all its accesses.
func op(event string) memtrace.AccessOp {
	switch {
	case strings.Contains(event, "mem-stores"), strings.Contains(event, "mem_uops_retired.all_stores"),
		strings.Contains(event, "mem_inst_retired.all_stores"):
		return memtrace.OpWrite
	case strings.Contains(event, "mem-loads"), strings.Contains(event, "mem_trans_retired.load_latency"):
		return memtrace.OpRead
	}
	return memtrace.OpUnknown
}
