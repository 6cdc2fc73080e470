package doctor

// HostCollector is a collector of --tap-host that was tried. Err says why it does not run here; nil: Origin says by
// what it does, and Missing what it has to do without.
type HostCollector struct {
	Name    string
	Origin  string // bpf, bpf_plain or proc
	Missing []string
	Err     error
}

var hostCosts = map[string]string{
	"block":  "no I/O of disks beside a run",
	"system": "no waiting, faults and pressure beside a run",
	"waits":  "no waits on files by token and tensor",
	"prof":   "no system calls and network beside a run",
}

// hostCollectors lists which collectors of --tap-host run here. They were loaded, attached and closed again.
func hostCollectors(try func() []HostCollector) []Fact {
	if try == nil {
		return nil
	}
	var facts []Fact
	for _, c := range try() {
		f := Fact{Topic: "host collectors", Name: c.Name}
		const remedy = "see docs/HOST.md"
		switch {
		case c.Err != nil:
			f = f.with(Missing, oneLine(c.Err.Error()))
		case len(c.Missing) > 0:
			f = f.with(Limited, c.Origin+": "+oneLine(c.Missing[0]))
		case c.Origin == "proc":
			f = f.with(Limited, "polled from /proc")
		case c.Origin == "bpf_plain":
			f = f.with(Limited, "tracepoints without the kernel's types")
		default:
			f = f.with(OK, "loaded and attached")
		}
		facts = append(facts, f.lacking(hostCosts[c.Name], remedy))
	}
	return facts
}
