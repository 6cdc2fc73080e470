package mrm

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/machine"
	"github.com/llamatap/llamatap/runner/doctor"
)

const cpuFolder = "sys/devices/system/cpu"

// number reads a file of the kernel that holds one.
func number(root fs.FS, name string) (int64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// thermal is how often cores and packages have been slowed down because they were too hot; nil where the kernel
// does not count. Processors of one core, or one package, report the same events.
func thermal(root fs.FS) *int64 {
	folders, _ := fs.Glob(root, cpuFolder+"/cpu[0-9]*")
	counted := map[string]int64{}
	for _, cpu := range folders {
		unit, _ := number(root, cpu+"/topology/physical_package_id")
		core, _ := number(root, cpu+"/topology/core_id")
		for file, of := range map[string]string{"package_throttle_count": fmt.Sprint(unit),
			"core_throttle_count": fmt.Sprint(unit, " ", core)} {
			if n, ok := number(root, cpu+"/thermal_throttle/"+file); ok {
				counted[file+" "+of] = max(counted[file+" "+of], n)
			}
		}
	}
	if len(counted) == 0 {
		return nil
	}
	sum := int64(0)
	for _, n := range counted {
		sum += n
	}
	return &sum
}

// speeds are how fast processors run, as a share of their base frequency; those of which the kernel reports both.
func speeds(root fs.FS, folders []string) map[int]float64 {
	all := map[int]float64{}
	for _, folder := range folders {
		cpu, err := strconv.Atoi(strings.TrimPrefix(path.Base(path.Dir(folder)), "cpu"))
		base, ok := number(root, folder+"/base_frequency")
		if !ok {
			base, ok = number(root, path.Dir(folder)+"/acpi_cppc/nominal_freq")
			base *= 1000 // that one is in MHz
		}
		now, known := number(root, folder+"/scaling_cur_freq")
		if err == nil && ok && known && base > 0 {
			all[cpu] = float64(now) / float64(base)
		}
	}
	return all
}

// A slowdown finds processors that run slower than they should. One that has nothing to do may be slow.
type slowdown struct {
	since   map[int]int64 // begin of the current stretch, by processor
	counted map[int]bool  // stretches that are counted
	events  int64
}

// The rule of decision 13, and from what share of its time on a processor counts as at work.
const (
	slowShare = 0.8
	slowNS    = int64(1e9)
	workShare = 0.5
)

// sample takes in how fast a processor runs now, as a share of its base frequency, and how busy it was since the
// sample before.
func (s *slowdown) sample(ns int64, cpu int, busy, speed float64) {
	if s.since == nil {
		s.since, s.counted = map[int]int64{}, map[int]bool{}
	}
	if busy < workShare || speed > slowShare {
		delete(s.since, cpu)
		delete(s.counted, cpu)
		return
	}
	began, on := s.since[cpu]
	if !on {
		s.since[cpu] = ns
		return
	}
	if ns-began >= slowNS && !s.counted[cpu] {
		s.counted[cpu] = true
		s.events++
	}
}

// A watch looks at the machine while a run is recorded.
type watch struct {
	root           fs.FS
	start, last    machine.Ticks
	each           map[int]machine.Ticks
	group, heat    *int64
	slow           slowdown
	folders        []string // of frequencies
	hasFrequencies bool
	err            error // of the processors' times; nothing is known of them then
}

// newWatch begins to look.
func newWatch(root fs.FS) *watch {
	w := &watch{root: root, group: groupThrottled(root), heat: thermal(root)}
	w.folders, _ = fs.Glob(root, cpuFolder+"/cpu[0-9]*/cpufreq") // none in most virtual machines
	w.start, w.each, w.err = machine.ReadTicks(root)
	w.last = w.start
	return w
}

func groupThrottled(root fs.FS) *int64 {
	n, known := doctor.Throttled(root)
	if !known {
		return nil
	}
	times := int64(n)
	return &times
}

// sample takes one sample. ns is the time on any monotonic clock.
func (w *watch) sample(ns int64) {
	all, each, err := machine.ReadTicks(w.root)
	if err != nil {
		w.err = err
		return
	}
	for cpu, speed := range speeds(w.root, w.folders) {
		w.hasFrequencies = true
		if busy, ok := each[cpu].Since(w.each[cpu]); ok {
			w.slow.sample(ns, cpu, busy, speed)
		}
	}
	w.last, w.each = all, each
}

// throttle is what slowed the machine down since the watch began.
func (w *watch) throttle() memory.Throttle {
	t := memory.Throttle{Cgroup: since(w.group, groupThrottled(w.root)), Thermal: since(w.heat, thermal(w.root))}
	if w.hasFrequencies {
		t.Frequency = &w.slow.events
	}
	return t
}

// since is by how much a counter has grown; nil where it is not there. One that was begun anew has grown by what it is.
func since(before, now *int64) *int64 {
	if before == nil || now == nil {
		return nil
	}
	grown := *now - *before
	if grown < 0 {
		grown = *now
	}
	return &grown
}

// otherProcessesPercent returns what other processes than ours used of all processors since the watch began, in
// percent; nil where that is not known. own is what ours used, in nanoseconds, and perSecond how many of the kernel's
// units a second has.
func (w *watch) otherProcessesPercent(own, perSecond int64) *float64 {
	all := w.last.All - w.start.All
	if w.err != nil || all <= 0 {
		return nil
	}
	busy := float64(w.last.Busy - w.start.Busy)
	pct := 100 * max(busy-float64(own)/1e9*float64(perSecond), 0) / float64(all)
	return &pct
}
