package sched

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// Without a target all threads that did anything are reported, kernel threads too, and no idle ones; and the pressure
// is the kernel's.
func TestWholeMachine(t *testing.T) {
	testenv.NeedBPF(t)
	for name, o := range sources {
		t.Run(name, func(t *testing.T) {
			j := started(t, 2, "doze", "disk", content(t, 4))
			c := opened(t, o)
			snap(t, c)
			j.send("g")
			j.stop()
			line := snap(t, c)
			thread(t, line, j.begin[0].tid)
			thread(t, line, j.begin[1].tid)
			awaitKernelThread(t, c, line)
			for _, th := range line.Threads {
				if futex := th.FutexNS != nil && *th.FutexNS > 0; th.OnCPUNS+th.OffCPUNS() == 0 && !futex &&
					th.Faults == 0 && th.Voluntary+th.Involuntary == 0 {
					t.Errorf("it did nothing: %+v", th)
				}
			}
			if !slices.IsSortedFunc(line.Processes, func(a, b resource.ProcessLine) int { return a.PID - b.PID }) ||
				len(line.Processes) < 2 {
				t.Errorf("processes %+v", line.Processes)
			}
			if _, err := os.Stat("/proc/pressure/cpu"); (err == nil) != (len(line.Pressure) == 3 &&
				line.Pressure["memory"]["full"].Total >= 0) {
				t.Errorf("pressure %+v", line.Pressure)
			}
		})
	}
}

// awaitKernelThread demands that a kernel thread is in this line, or in one of the next seconds.
func awaitKernelThread(t *testing.T, c *Collector, line *resource.SystemLine) {
	t.Helper()
	for range 200 {
		if slices.ContainsFunc(line.Threads, func(th resource.ThreadLine) bool { return ofKernel(th.TGID) }) {
			return
		}
		time.Sleep(20 * time.Millisecond)
		line = snap(t, c)
	}
	t.Error("no kernel thread did anything")
}

func ofKernel(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	stat, failed := resource.ParseStat(text)
	return err == nil && failed == nil && (&task{Stat: stat}).ofKernel()
}
