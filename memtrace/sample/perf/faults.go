package perf

import "github.com/llamatap/llamatap/memtrace"

// faultSample are the fields of a fault sample.
const faultSample = sampleIP | sampleTID | sampleTime | sampleAddr | sampleCPU

// OpenFaults begins to sample page faults with their addresses. Without permission to see those that the kernel takes
// on the process's behalf, such as read(2) into new memory, it omits them. ops asks whether each fault was a read or a
// write. This needs the kernel's tracepoints, which only x86 has, and permission to read them. Notes report what was
// omitted. The PMU's options do not matter.
func OpenFaults(o SamplerOptions, ops bool) (*Sampler, error) {
	if ops {
		if s, err := openTracepoints(o); err == nil {
			return s, nil
		}
	}
	events := []eventSpec{{Name: "page-faults", Attr: Attr{Type: typeSoftware, Config: swPageFaults, Period: 1,
		SampleType: faultSample}}}
	s := &Sampler{access: func(r *Record, a *memtrace.Access) bool {
		*a = r.Sample.Access(faultSample, 1, memtrace.CollectorFault)
		return true
	}}
	var err error
	if s.Session, err = Open(o.session(events, false)); err != nil && denied(err) {
		s.UserOnly = true
		s.Notes = append(s.Notes, "without the faults that the kernel takes for the process, such as read(2) into "+
			"new memory: kernel.perf_event_paranoid is above 1")
		s.Session, err = Open(o.session(events, true))
	}
	if err != nil {
		return nil, err
	}
	if ops {
		s.Notes = append(s.Notes, "whether a fault was a read or a write is unknown: that takes tracefs, CAP_PERFMON "+
			"and an x86 processor")
	}
	return s, nil
}
