package doctor

import (
	"io/fs"
	"syscall"
	"testing"
	"testing/fstest"
)

func find(t *testing.T, facts []Fact, topic, name string) Fact {
	t.Helper()
	for _, f := range facts {
		if f.Topic == topic && f.Name == name {
			return f
		}
	}
	t.Fatalf("no fact %s %s in %v", topic, name, facts)
	return Fact{}
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// closed is a file system in which some files cannot be opened.
type closed struct {
	fs.FS
	why map[string]error
}

func (c closed) Open(name string) (fs.File, error) {
	if err := c.why[name]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return c.FS.Open(name)
}

const firstUsers = "         0          0 4294967295\n"

// full is a machine on which everything is there, seen by root; x86 with two kinds of cores.
var full = fstest.MapFS{
	"sys/kernel/btf/vmlinux": file("\x9f\xeb\x01\x00"), "proc/pressure/memory": file("some avg10=0.00\n"),
	"proc/sys/kernel/perf_event_paranoid": file("2\n"), "proc/sys/kernel/kptr_restrict": file("1\n"),
	"proc/sys/kernel/osrelease": file("6.12.0\n"), "proc/kallsyms": file("ffffffff81000000 T _text\n"),
	"sys/kernel/tracing/events/sched/enable": file("0"),
	sources + "/cpu_core/cpus":               file("0-7"), sources + "/cpu_atom/cpus": file("8-15"),
	sources + "/uncore_imc/cpumask":    file("0"),
	"proc/self/cgroup":                 file("0::/user.slice\n"),
	"sys/fs/cgroup/cgroup.controllers": file("cpuset cpu io memory\n"),
	"proc/self/status":                 file("Name:\tx\nCapEff:\t000000c000200000\n"),
	"proc/self/uid_map":                file(firstUsers),
}

// bare is an Arm guest with control groups of version 1, seen by a user without rights.
var bare = fstest.MapFS{
	"proc/sys/kernel/perf_event_paranoid": file("4\n"), "proc/sys/kernel/kptr_restrict": file("1\n"),
	"proc/kallsyms":                file("0000000000000000 T _text\n0000000000000000 T _stext\n"),
	sources + "/software/type":     file("1"),
	sources + "/arm_spe_0/cpumask": file("0-3"),
	"proc/self/cgroup":             file("4:memory:/a:b\n1:cpu,cpuacct:/c\n0::/\n"),
	"proc/self/status":             file("CapEff:\t0000000000000000\n"), "proc/self/uid_map": file(firstUsers),
}

// arm is a server on which old kernels count for CAP_SYS_ADMIN alone.
var arm = fstest.MapFS{
	sources + "/armv8_cortex_a72/cpus": file("0-3"), sources + "/arm_cmn_0/cpumask": file("0"),
	"sys/kernel/btf/vmlinux": file("\x7fELF"), "proc/sys/kernel/perf_event_paranoid": file("2\n"),
	"proc/self/status": file("CapEff:\t0000000000200000\n"), "proc/self/uid_map": file(firstUsers),
}

// nested is a container whose root is root in its own user namespace only.
var nested = fstest.MapFS{
	"proc/self/cgroup": file("0::/\n"), "proc/sys/kernel/perf_event_paranoid": file("2\n"),
	"proc/self/status": file("CapEff:\t000001ffffffffff\n"), "proc/self/uid_map": file("0 100000 65536\n"),
}

// empty is a machine that shows nothing.
var empty = fstest.MapFS{}

// TestMachines examines trees of machines that differ.
func TestMachines(t *testing.T) {
	disabled := closed{full, map[string]error{"proc/pressure/memory": syscall.EOPNOTSUPP,
		"sys/kernel/btf/vmlinux": fs.ErrPermission}}
	for _, c := range []struct {
		machine     fs.FS
		topic, name string
		status      Status
		value       string
	}{
		{full, "kernel", "release", OK, "6.12.0"},
		{full, "kernel", "btf", OK, "/sys/kernel/btf/vmlinux"},
		{bare, "kernel", "btf", Missing, "no /sys/kernel/btf/vmlinux"},
		{arm, "kernel", "btf", Unknown, "/sys/kernel/btf/vmlinux begins with 0x457f, which is not BTF"},
		{disabled, "kernel", "btf", Unknown, "open /sys/kernel/btf/vmlinux: permission denied"},
		{full, "kernel", "psi", OK, "/proc/pressure"},
		{bare, "kernel", "psi", Missing, "no /proc/pressure/memory"},
		{disabled, "kernel", "psi", Missing, "/proc/pressure/memory is turned off"},
		{full, "kernel", "perf_event_paranoid", OK, "2, which this process's rights override"},
		{arm, "kernel", "perf_event_paranoid", OK, "2, which this process's rights override"},
		{nested, "kernel", "perf_event_paranoid", Limited, "2: only this process, only outside of the kernel"},
		{bare, "kernel", "perf_event_paranoid", Limited,
			"4: no events at all on kernels that know this level (Debian, Ubuntu, Android)"},
		{full, "kernel", "kptr_restrict", OK, "1, this process sees the kernel's addresses"},
		{bare, "kernel", "kptr_restrict", Limited, "1, /proc/kallsyms hides addresses"},
		{full, "kernel", "tracefs", OK, "/sys/kernel/tracing"},
		{bare, "kernel", "tracefs", Missing, "not mounted at /sys/kernel/tracing"},
		{full, "counters", "pmu", OK, "cpu_atom, cpu_core"},
		{arm, "counters", "pmu", OK, "armv8_cortex_a72"},
		{bare, "counters", "pmu", Missing, "none of a processor in /" + sources},
		{full, "rights", "CAP_BPF", OK, "effective"},
		{full, "rights", "CAP_SYS_ADMIN", OK, "effective"},
		{bare, "rights", "CAP_BPF", Missing, "not effective"},
		{arm, "rights", "CAP_BPF", OK, "CAP_SYS_ADMIN includes it"},
		{nested, "rights", "CAP_PERFMON", Missing,
			"effective only inside of a user namespace, which the kernel does not count here"},
		{full, "cgroup", "memory", OK, "v2 /user.slice"},
		{full, "cgroup", "cpu", OK, "v2 /user.slice"},
		{bare, "cgroup", "memory", OK, "v1 /a:b"},
		{bare, "cgroup", "cpu", OK, "v1 /c"},
		{nested, "cgroup", "memory", Unknown, "no hierarchy is seen to control it"},
	} {
		if f := find(t, Machine(c.machine), c.topic, c.name); f.Status != c.status || f.Value != c.value {
			t.Errorf("%s is %s %q, want %s %q", c.name, f.Status, f.Value, c.status, c.value)
		}
	}
}

// TestLacks wants a cost and a remedy of what is missing or limited, and of nothing else; an empty machine has nothing.
func TestLacks(t *testing.T) {
	for _, machine := range []fs.FS{full, bare, arm, nested, empty} {
		for _, f := range Machine(machine) {
			if lacks := f.Status == Missing || f.Status == Limited; lacks != (f.Costs != "" && f.Remedy != "") ||
				f.Value == "" {
				t.Errorf("%+v", f)
			}
		}
	}
	for _, f := range Machine(empty) {
		// what is looked for is surely not where it is looked for
		if f.Status != Unknown && f.Name != "tracefs" && f.Name != "nvml" {
			t.Errorf("of an empty machine it says %+v", f)
		}
	}
}
