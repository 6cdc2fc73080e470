package process

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// TestMonitor compares the figures of this process and of another one with the kernel's other counts.
func TestMonitor(t *testing.T) {
	if runtime.GOOS != "linux" {
		testenv.Beyond(t, "Linux", "it reads /proc")
	}
	// It reads 4096 bytes with one call, touches nothing more, and waits.
	cmd := exec.Command("sh", "-c", "head -c 4096 /dev/zero >/dev/null; echo ready; read wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	clock, model := int64(1), 0
	m, err := Open(Options{Model: func() int { return model }, Interval: time.Second,
		Now: func() int64 { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	snapshot := func() resource.MonitorLine {
		clock += 5e8
		reply, err := m.Snapshot(time.Unix(100, 0))
		if err != nil {
			t.Fatal(err)
		}
		return reply.(resource.MonitorLine)
	}
	first := snapshot()
	if first.Model != nil || first.Collector == nil || first.Collector.PID != os.Getpid() || first.ActualS != 0.5 ||
		first.IntervalS != 1 {
		t.Errorf("before there is a model: %+v", first)
	}
	model = cmd.Process.Pid
	busy := time.Now()
	var before syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	for now := before; now.Utime.Nano()-before.Utime.Nano() < 5e7 && time.Since(busy) < time.Minute; {
		syscall.Getrusage(syscall.RUSAGE_SELF, &now)
	}
	second := snapshot()
	if u := second.Model; u == nil || u.PID != model || u.RSSBytes == 0 || u.Threads != 1 || u.CPUShare != nil ||
		u.Minor == 0 {
		t.Errorf("the model's process: %+v", u)
	}
	if u := second.Collector; u.UserNS+u.SystemNS < 3e7 || u.CPUShare == nil ||
		*u.CPUShare != float64(u.UserNS+u.SystemNS)/5e8 || u.Threads < 2 {
		t.Errorf("50 ms of this process's time are reported as %+v", u)
	}
	if third := snapshot().Model; third == nil || third.Minor != 0 || third.UserNS != 0 || third.IO != nil &&
		*third.IO != (resource.ProcessIO{}) {
		t.Errorf("a process that waits took %+v", third)
	}
	in.Close()
	cmd.Wait()
	if last := snapshot(); last.Model != nil || last.Collector == nil {
		t.Errorf("a process that has ended takes %+v", last.Model)
	}
}
