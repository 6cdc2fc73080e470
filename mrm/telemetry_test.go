package mrm

import (
	"fmt"
	"io/fs"
	"math"
	"testing"
	"testing/fstest"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// TestThermal counts events once per core and package, whichever processor reports them.
func TestThermal(t *testing.T) {
	if thermal(fstest.MapFS{}) != nil {
		t.Error("events without a counter")
	}
	root := fstest.MapFS{}
	for cpu, core := range []int{0, 0, 1, 1} { // two threads per core, one package
		folder := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", cpu)
		root[folder+"topology/physical_package_id"] = file("0\n")
		root[folder+"topology/core_id"] = file(fmt.Sprintln(core))
		root[folder+"thermal_throttle/core_throttle_count"] = file(fmt.Sprintln(core + 1))
		root[folder+"thermal_throttle/package_throttle_count"] = file("10\n")
	}
	if n := thermal(root); n == nil || *n != 13 {
		t.Errorf("%v events, want 1 + 2 of cores and 10 of the package", n)
	}
}

// TestSlowdown holds decision 13: a second or more, 20 % or more below base, of a processor that works.
func TestSlowdown(t *testing.T) {
	type sample struct {
		ms    int64
		busy  float64
		speed float64
	}
	for _, c := range []struct {
		name    string
		samples []sample
		want    int64
	}{
		{"fast", []sample{{0, 1, 1.2}, {500, 1, 0.81}, {1500, 1, 0.9}}, 0},
		{"a second", []sample{{0, 1, 0.8}, {500, 1, 0.7}, {1000, 1, 0.8}}, 1},
		{"not a second", []sample{{0, 1, 0.5}, {999, 1, 0.5}}, 0},
		{"one long stretch is one event", []sample{{0, 1, 0.5}, {1000, 1, 0.5}, {9000, 1, 0.5}}, 1},
		{"two stretches", []sample{{0, 1, 0.5}, {1000, 1, 0.5}, {1250, 1, 1}, {1500, 1, 0.5}, {2500, 1, 0.5}}, 2},
		{"interrupted", []sample{{0, 1, 0.5}, {500, 1, 1}, {1000, 1, 0.5}, {1400, 1, 0.5}}, 0},
		{"idle may be slow", []sample{{0, 0.4, 0.3}, {1000, 0.1, 0.3}, {3000, 0.49, 0.3}}, 0},
	} {
		var s slowdown
		for _, x := range c.samples {
			s.sample(x.ms*1e6, 3, x.busy, x.speed)
		}
		if s.events != c.want {
			t.Errorf("%s: %d events, want %d", c.name, s.events, c.want)
		}
	}
}

// machineAt is a machine with a quota of version 1, hot cores and a slow processor, at a moment.
func machineAt(busy, idle, throttled, hot, khz int) fstest.MapFS {
	const cpu = "sys/devices/system/cpu/cpu0/"
	return fstest.MapFS{
		"proc/stat": file(
			fmt.Sprintf("cpu %d 0 0 %d 0\ncpu0 %d 0 0 %d 0\n", busy, idle, busy, idle)),
		"proc/self/cgroup":                           file("1:cpu:/box\n0::/\n"),
		"sys/fs/cgroup/cpu/box":                      &fstest.MapFile{Mode: fs.ModeDir},
		"sys/fs/cgroup/cpu/box/cpu.stat":             file(fmt.Sprintf("nr_periods 9\nnr_throttled %d\n", throttled)),
		cpu + "thermal_throttle/core_throttle_count": file(fmt.Sprintln(hot)),
		cpu + "topology/physical_package_id":         file("0\n"), cpu + "topology/core_id": file("0\n"),
		cpu + "cpufreq/base_frequency": file("2000000\n"), cpu + "cpufreq/scaling_cur_freq": file(fmt.Sprintln(khz)),
	}
}

// changing is a machine that changes.
type changing struct{ now fs.FS }

func (c *changing) Open(name string) (fs.File, error) { return c.now.Open(name) }

// TestWatch counts what happened between begin and end, from all three sources.
func TestWatch(t *testing.T) {
	c := &changing{machineAt(100, 900, 4, 7, 1500000)}
	w := newWatch(c)
	for i := range 4 {
		c.now = machineAt(200+100*i, 900, 4, 7, 1500000)
		w.sample(int64(i) * 5e8)
	}
	c.now = machineAt(600, 1000, 6, 8, 2000000)
	w.sample(2e9)
	got := w.throttle()
	if *got.Cgroup != 2 || *got.Thermal != 1 || *got.Frequency != 1 || *got.Events() != 4 {
		t.Errorf("cgroup %d thermal %d frequency %d", *got.Cgroup, *got.Thermal, *got.Frequency)
	}
	// 500 of 600 units were busy; 2 s of ours at 100 units a second are 200 of them.
	if pct := w.otherProcessesPercent(2e9, 100); pct == nil || math.Abs(*pct-50) > 1e-9 {
		t.Errorf("others used %v", pct)
	}
	c.now = fstest.MapFS{}
	w.sample(3e9)
	if got := w.throttle(); got.Cgroup != nil || got.Thermal != nil || w.otherProcessesPercent(0, 100) != nil {
		t.Errorf("known of a machine that reports nothing: %+v", got)
	}
}
