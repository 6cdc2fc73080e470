package doctor

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// server has two sockets, eight threads on four cores, of which this process may use six, and groups of version 2
// with limits.
var server = fstest.MapFS{
	"proc/self/status": file("CapEff:\t0\nCpus_allowed_list:\t0-4,7\n"), "sys/devices/system/cpu/online": file("0-7\n"),
	"sys/devices/system/cpu/cpu0/topology/thread_siblings_list": file("0,4\n"),
	"sys/devices/system/cpu/cpu4/topology/thread_siblings_list": file("0,4\n"),
	"sys/devices/system/cpu/cpu1/topology/thread_siblings_list": file("1,5\n"),
	"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":      file("powersave\n"),
	"sys/devices/system/cpu/cpu1/cpufreq/scaling_governor":      file("performance\n"),
	"proc/meminfo": file("MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n"),
	"proc/swaps": file(
		"Filename Type Size Used Priority\n/a partition 2097148 1024 -2\n/b file 4 0 -3\n"),
	"sys/devices/system/node/online":             file("0-1\n"),
	"sys/kernel/mm/transparent_hugepage/enabled": file("always madvise [never]\n"),
	"proc/sys/vm/nr_hugepages":                   file("16\n"),
	"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": file(""),
	"proc/self/cgroup":                           file("0::/user.slice/one\n"),
	"sys/fs/cgroup/cgroup.controllers":           file("cpu memory\n"),
	"sys/fs/cgroup/user.slice/memory.max":        file("2147483648\n"),
	"sys/fs/cgroup/user.slice/memory.current":    file("1073741824\n"),
	"sys/fs/cgroup/user.slice/one/memory.max":    file("max\n"),
	"sys/fs/cgroup/user.slice/one/cpu.max":       file("150000 100000\n"),
	"sys/fs/cgroup/user.slice/cpu.max":           file("max 100000\n"),
	"sys/fs/cgroup/user.slice/one/cpu.stat": file(
		"usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 12000\n"),
	"sys/kernel/tracing/events/sched/enable/dummy": file(""),
	"sys/class/powercap/intel-rapl:0/name":         file("package-0\n"),
	"sys/class/powercap/intel-rapl:0/energy_uj":    file("1\n"),
	"sys/class/powercap/intel-rapl:0:0/name":       file("dram\n"),
	"sys/class/powercap/intel-rapl:0:0/energy_uj":  file("2\n"),
}

// contained is a container with groups of version 1, whose names are those of outside.
var contained = fstest.MapFS{
	"proc/self/status": file("Cpus_allowed_list:\t0-1\n"), "sys/devices/system/cpu/online": file("0-1\n"),
	"proc/swaps": file("Filename\tType\tSize\tUsed\tPriority\n"), "sys/devices/system/node/online": file("0\n"),
	"proc/self/cgroup":                           file("2:memory:/docker/ab\n1:cpu,cpuacct:/docker/ab\n"),
	"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
	"sys/fs/cgroup/cpu/cpu.cfs_quota_us":         file("400000\n"),
	"sys/fs/cgroup/cpu/cpu.cfs_period_us":        file("100000\n"),
	"sys/fs/cgroup/cpu/cpu.stat":                 file("nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"),
	"sys/kernel/mm/transparent_hugepage/enabled": file("always [madvise] never\n"),
}

func TestHardware(t *testing.T) {
	hidden := fstest.MapFS{"proc/self/cgroup": file("2:memory:/a\n1:cpu:/a\n"), "proc/swaps": file("Filename\nodd\n"),
		"proc/self/status":                     file("Cpus_allowed_list:\t3-1\n"),
		"sys/class/powercap/intel-rapl:0/name": file("package-0\n")}
	for _, c := range []struct {
		machine fs.FS
		name    string
		status  Status
		value   string
	}{
		{server, "processors", Limited, "8 online, on 2 cores; this process may use 6"},
		{contained, "processors", OK, "2 online"},
		{hidden, "processors", Unknown, `the list "3-1" is not understood`},
		{server, "memory", OK, "16.0 GiB, 8.00 GiB available"},
		{server, "swap", Limited, "1.00 MiB of 2.00 GiB used"},
		{contained, "swap", OK, "none"},
		{hidden, "swap", Unknown, "/proc/swaps has a line that is not understood"},
		{server, "numa", OK, "2 nodes: --numa of llama.cpp says how they are used"},
		{contained, "numa", OK, "one node"},
		{hidden, "numa", Unknown, "the kernel reports no nodes"},
		{server, "governor", Limited, "powersave, performance"},
		{contained, "governor", Unknown, "no cpufreq here; in a guest the host chooses the frequency"},
		{server, "huge pages", Limited, "transparent ones: never, 16 reserved"},
		{contained, "huge pages", OK, "transparent ones: madvise"},
		{server, "nvml", OK, "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"},
		{contained, "nvml", Missing, "no libnvidia-ml.so.1 where loaders look"},
		{server, "rapl", OK, "package-0, package-0/dram"},
		{contained, "rapl", Missing, "no energy counters in /sys/class/powercap"},
		{hidden, "rapl", Limited, "package-0 cannot be read"},
		{server, "memory limit", Limited, "2.00 GiB, 1.00 GiB of it not used (file caches count as used)"},
		{contained, "memory limit", OK, "none"},
		{hidden, "memory limit", Unknown, "/sys/fs/cgroup/memory is not to be seen"},
		{server, "cpu limit", Limited, "1.5 processors' time"},
		{contained, "cpu limit", OK, "4 processors' time, for 2 processors"},
		{server, "throttling", Limited, "3 times so far, 12.0 ms in all"},
		{contained, "throttling", OK, "never so far"},
	} {
		topic := "machine"
		if strings.HasSuffix(c.name, "limit") || c.name == "throttling" {
			topic = "cgroup"
		}
		f := find(t, Machine(c.machine), topic, c.name)
		if f.Status != c.status || f.Value != c.value {
			t.Errorf("%s is %s %q, want %s %q", c.name, f.Status, f.Value, c.status, c.value)
		}
		if lacks := f.Status == Missing || f.Status == Limited; lacks != (f.Costs != "" && f.Remedy != "") {
			t.Errorf("%+v", f)
		}
	}
}

func TestMounted(t *testing.T) {
	const table = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:5 / /data rw - xfs /dev/old rw
24 22 0:6 / /data rw master:2 - tmpfs none rw
25 22 0:7 / /my\040disk rw - nfs4 host:/ex\040port rw
26 22 nonsense
`
	for dir, want := range map[string]string{"/": "ext4 /dev/vda", "/data": "tmpfs none", "/data/x/y": "tmpfs none",
		"/database":     "ext4 /dev/vda",
		"/my disk/runs": "nfs4 host:/ex port"} {
		if kind, source := mounted(table, dir); kind+" "+source != want {
			t.Errorf("%s lies on %s %s, want %s", dir, kind, source, want)
		}
	}
	if kind, _ := mounted("", "/"); kind != "" {
		t.Errorf("nothing is mounted, and / is %s", kind)
	}
}
