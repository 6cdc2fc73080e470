package doctor

import (
	"io/fs"
	"strconv"
	"strings"
)

// Bits of linux/capability.h.
const (
	capSysAdmin = 21
	capPerfmon  = 38
	capBPF      = 39
)

// rights are the effective capabilities of this process. The kernel asks for those of sensors in the first user
// namespace.
type rights struct {
	set     uint64
	outside bool // this process is in another user namespace than the first
}

func (r rights) has(bit uint) bool { return !r.outside && r.set&(1<<bit) != 0 }

// perf reports whether perf_event_paranoid does not hold for this process.
func (r rights) perf() bool { return r.has(capPerfmon) || r.has(capSysAdmin) }

// rightsOf reads the rights of this process.
func rightsOf(root fs.FS) (r rights, err error) {
	set, err := field(root, "proc/self/status", "CapEff:")
	if err == nil {
		r.set, err = strconv.ParseUint(set, 16, 64)
	}
	if users, e := word(root, "proc/self/uid_map"); e == nil {
		r.outside = strings.Join(strings.Fields(users), " ") != "0 0 4294967295"
	}
	return r, err
}

// privileges are the capabilities that sensors ask for.
var privileges = []struct {
	name  string
	bit   uint
	costs string
}{
	{"CAP_BPF", capBPF, "no BPF programs"},
	{"CAP_PERFMON", capPerfmon, "no counters and samples of the kernel and of other processes"},
	{"CAP_SYS_ADMIN", capSysAdmin, "on kernels before 5.8, no BPF programs and no samples"},
}

// capabilities lists the privileges of this process. CAP_SYS_ADMIN includes the other two.
func capabilities(root fs.FS) []Fact {
	r, err := rightsOf(root)
	var facts []Fact
	for _, p := range privileges {
		f := Fact{Topic: "rights", Name: p.name}
		switch {
		case err != nil:
			f = f.unknown(err)
		case r.outside && r.set&(1<<p.bit) != 0:
			f = f.with(Missing, "effective only inside of a user namespace, which the kernel does not count here")
		case r.has(p.bit):
			f = f.with(OK, "effective")
		case r.has(capSysAdmin):
			f = f.with(OK, "CAP_SYS_ADMIN includes it")
		default:
			f = f.with(Missing, "not effective")
		}
		facts = append(facts, f.lacking(p.costs, "run as root, or with this capability"))
	}
	return facts
}
