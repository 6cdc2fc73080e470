package doctor

import (
	"testing"
	"testing/fstest"
)

func find(t *testing.T, facts []Fact, name string) Fact {
	t.Helper()
	for _, f := range facts {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no fact %s", name)
	return Fact{}
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// TestMachines examines trees of machines that differ.
func TestMachines(t *testing.T) {
	full := fstest.MapFS{
		"sys/kernel/btf/vmlinux": file("x"), "proc/pressure/memory": file("some"), "proc/sys/kernel/perf_event_paranoid": file("1\n"),
		sources + "/cpu_core/type": file("4"), "proc/self/cgroup": file("0::/user.slice\n"),
		"sys/fs/cgroup/cgroup.controllers": file("cpuset cpu io memory\n"), "proc/self/status": file("CapEff:\t000000c000200000\n"),
	}
	bare := fstest.MapFS{
		"proc/sys/kernel/perf_event_paranoid": file("4\n"), sources + "/software/type": file("1"),
		"proc/self/cgroup": file("4:memory:/a:b\n1:cpu,cpuacct:/c\n0::/\n"), "proc/self/status": file("CapEff:\t0000000000200000\n"),
	}
	unlisted := fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "proc/self/status": file("CapEff:\t0000000000000000\n")}
	for _, c := range []struct {
		machine fstest.MapFS
		name    string
		status  Status
		value   string
	}{
		{full, "btf", OK, "/sys/kernel/btf/vmlinux"}, {full, "psi", OK, "/proc/pressure/memory"}, {full, "perf_event_paranoid", OK, "1"},
		{full, "pmu", OK, "cpu_core"}, {full, "memory", OK, "v2 /user.slice"}, {full, "cpu", OK, "v2 /user.slice"},
		{bare, "btf", Missing, "no /sys/kernel/btf/vmlinux"}, {bare, "psi", Missing, "no /proc/pressure/memory"},
		{bare, "perf_event_paranoid", Limited, "4"}, {bare, "pmu", Missing, "none in /" + sources},
		{full, "CAP_BPF", OK, "effective"}, {full, "CAP_PERFMON", OK, "effective"}, {full, "CAP_SYS_ADMIN", OK, "effective"},
		{bare, "CAP_BPF", Missing, "not effective"}, {bare, "CAP_SYS_ADMIN", OK, "effective"},
		{unlisted, "CAP_SYS_ADMIN", Missing, "not effective"}, {unlisted, "memory", Unknown, "no hierarchy seen to control it"},
		{bare, "memory", OK, "v1 /a:b"}, {bare, "cpu", OK, "v1 /c"},
	} {
		f := find(t, Examine(c.machine), c.name)
		if f.Status != c.status || f.Value != c.value {
			t.Errorf("%s is %s %q, want %s %q", c.name, f.Status, f.Value, c.status, c.value)
		}
		if lacks := f.Status == Missing || f.Status == Limited; lacks != (f.Costs != "" && f.Remedy != "") {
			t.Errorf("%s is %s, costs %q, remedy %q", c.name, f.Status, f.Costs, f.Remedy)
		}
	}
	for _, f := range Examine(fstest.MapFS{}) {
		if f.Status == OK {
			t.Errorf("an empty machine has %s", f.Name)
		}
	}
}
