package process

import (
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/llamatap/llamatap/resource"
)

// TestMonitor compares what is told of this process and of another one with what the kernel counts elsewhere.
func TestMonitor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
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
	m, err := Open(Options{Model: func() int { return model }, Interval: time.Second, Now: func() int64 { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	snapshot := func() resource.MonitorLine {
		clock += 5e8
		said, err := m.Snapshot(time.Unix(100, 0))
		if err != nil {
			t.Fatal(err)
		}
		return said.(resource.MonitorLine)
	}
	first := snapshot()
	if first.Model != nil || first.Collector == nil || first.Collector.PID != os.Getpid() || first.ActualS != 0.5 || first.IntervalS != 1 {
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
	if u := second.Model; u == nil || u.PID != model || u.RSSBytes == 0 || u.Threads != 1 || u.CPUShare != nil || u.Minor == 0 {
		t.Errorf("the model's process: %+v", u)
	}
	if u := second.Collector; u.UserNS+u.SystemNS < 3e7 || u.CPUShare == nil || *u.CPUShare != float64(u.UserNS+u.SystemNS)/5e8 || u.Threads < 2 {
		t.Errorf("50 ms of this process's time are told as %+v", u)
	}
	if third := snapshot().Model; third == nil || third.Minor != 0 || third.UserNS != 0 || third.IO != nil && *third.IO != (resource.ProcessIO{}) {
		t.Errorf("a process that waits took %+v", third)
	}
	in.Close()
	cmd.Wait()
	if last := snapshot(); last.Model != nil || last.Collector == nil {
		t.Errorf("a process that has ended takes %+v", last.Model)
	}
}

func TestFrequencies(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	info := file("processor\t: 0\ncpu MHz\t\t: 2100.000\n\nprocessor\t: 1\ncpu MHz\t\t: 2099.5\n")
	for _, c := range []struct {
		name   string
		tree   fstest.MapFS
		mhz    []float64
		source string
	}{
		{"now", fstest.MapFS{
			"sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": file("3600123\n"), "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": file("800000\n"), "proc/cpuinfo": info,
		}, []float64{3600.123, 800}, "cpufreq"},
		{"as it is called", fstest.MapFS{"proc/cpuinfo": info}, []float64{2100, 2099.5}, "cpuinfo"},
		{"of Arm", fstest.MapFS{"proc/cpuinfo": file("processor\t: 0\nBogoMIPS\t: 50.00\n")}, nil, ""},
		{"nowhere", fstest.MapFS{}, nil, ""},
	} {
		if mhz, source := frequencies(c.tree); !reflect.DeepEqual(mhz, c.mhz) || source != c.source {
			t.Errorf("%s: %v by %q", c.name, mhz, source)
		}
	}
}
