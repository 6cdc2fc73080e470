package process_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/resource/sched"
)

var _ bpf.Collector = (*process.Self)(nil)

// compute uses the processor until getrusage has counted that much more.
func compute(t *testing.T, d time.Duration) {
	t.Helper()
	used := func() int64 {
		var r unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
			t.Fatal(err)
		}
		return r.Utime.Nano() + r.Stime.Nano()
	}
	for until := used() + int64(d); used() < until; {
	}
}

func snap(t *testing.T, c *process.Self) resource.SelfLine {
	t.Helper()
	reply, err := c.Snapshot(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return reply.(resource.SelfLine)
}

func TestOwnCost(t *testing.T) {
	c, err := process.OpenSelf(process.SelfOptions{Interval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	compute(t, 30*time.Millisecond)
	memory := make([]byte, 64<<20)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	first := snap(t, c)
	if first.UserNS+first.SystemNS < 30e6 || first.CPUShare <= 0 || first.RSSBytes < 64<<20 ||
		first.PeakBytes < 64<<20 || first.Minor == 0 || first.BPF != nil {
		t.Errorf("%+v", first)
	}
	second := snap(t, c)
	if second.UserNS+second.SystemNS > first.UserNS+first.SystemNS || second.ActualS >= first.ActualS ||
		memory[4096] != 1 {
		t.Errorf("the second is not the difference: %+v", second)
	}
}

// TestCostOfPrograms checks the time of each BPF program, which the kernel counts while statistics are enabled.
func TestCostOfPrograms(t *testing.T) {
	testenv.NeedBPF(t)
	stats, err := bpf.EnableStats()
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	threads, err := sched.Open(sched.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer threads.Close()
	c, err := process.OpenSelf(process.SelfOptions{Costed: map[string]bpf.Costed{"test": threads}})
	if err != nil {
		t.Fatal(err)
	}
	switches := make(chan int)
	go func() {
		for range 1000 {
			switches <- 1
			time.Sleep(time.Microsecond)
		}
		close(switches)
	}()
	for range switches {
	}
	line := snap(t, c)
	if line.BPF == nil {
		t.Fatalf("%+v", line)
	}
	var ns int64
	var switched uint64
	for _, p := range line.BPF.Programs {
		if ns += p.TimeNS; p.Collector != "test" || p.TimeNS <= 0 || p.PerRunNS != float64(p.TimeNS)/float64(p.Runs) {
			t.Errorf("%+v", p)
		}
		if p.Program == "on_switch" {
			switched = p.Runs
		}
	}
	if switched < 100 || line.BPF.TimeNS != ns {
		t.Errorf("%+v", line.BPF)
	}
}
