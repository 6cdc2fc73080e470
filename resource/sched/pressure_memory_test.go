package sched

import (
	"os"
	"testing"
	"testing/fstest"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func TestReadMemory(t *testing.T) {
	const calm, busy = "some avg10=0.00 avg60=9.00 avg300=0.00 total=1\nfull avg10=50.00 avg60=0 avg300=0 total=0\n",
		"some avg10=12.50 avg60=0 avg300=0 total=9\n"
	for name, c := range map[string]struct {
		root  fstest.MapFS
		some  float64 // below 0: unknown
		limit uint64
		level string
		fails bool
	}{
		"nothing":     {root: fstest.MapFS{}, some: -1, fails: true},
		"the machine": {root: fstest.MapFS{"proc/pressure/memory": file(calm)}, some: 0, level: Low},
		"a group of version 2 has figures of its own": {some: 12.5, level: High, root: fstest.MapFS{
			"proc/pressure/memory": file(calm), "proc/7/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.pressure": file(busy), "sys/fs/cgroup/a/b/memory.max": file("max\n"),
		}},
		"the group around it has the limit": {some: 0, limit: 1000, level: Medium, root: fstest.MapFS{
			"proc/pressure/memory": file(calm), "proc/7/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("max\n"),
			"sys/fs/cgroup/a/memory.max":   file("1000\n"), "sys/fs/cgroup/a/memory.current": file("850\n"),
		}},
		"version 1, the tightest counts": {some: -1, limit: 100, level: High, root: fstest.MapFS{
			"proc/7/cgroup": file("4:memory:/x\n1:cpu,cpuacct:/c\n0::/\n"),
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": file("100\n"),
			"sys/fs/cgroup/memory/x/memory.usage_in_bytes": file("99\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   file("9223372036854771712\n"),
		}},
		"damaged": {root: fstest.MapFS{"proc/pressure/memory": file("some\n")}, some: -1, fails: true},
	} {
		m, err := ReadMemoryPressure(c.root, 7)
		if (err != nil) != c.fails || m.Level() != c.level || (m.SomeAvg10 != nil) != (c.some >= 0) ||
			(m.Limit != nil) != (c.limit > 0) {
			t.Errorf("%s: %+v is %q, %v", name, m, m.Level(), err)
			continue
		}
		if m.SomeAvg10 != nil && *m.SomeAvg10 != c.some || m.Limit != nil && *m.Limit != c.limit {
			t.Errorf("%s: %v %% of the time, limit %d", name, *m.SomeAvg10, *m.Limit)
		}
	}
}

// The machine that runs this reports something, or has neither PSI nor a control group.
func TestReadThisMachine(t *testing.T) {
	m, err := ReadMemoryPressure(os.DirFS("/"), os.Getpid())
	if err == nil && m.Level() == "" {
		t.Errorf("%+v", m)
	}
}
