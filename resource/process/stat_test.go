package process

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/shirou/gopsutil/v4/process"
)

// stat is a line of /proc/PID/stat of a program with an unpleasant name.
const stat = "4711 (a) R (b\n) S 17 4711 4711 0 -1 4194560 1000 2000 3 4 50 60 700 800 20 0 9 0 123456 1048576 25 18446744073709551615 1 1 0 0\n"

func TestParseStat(t *testing.T) {
	f, err := parseStat([]byte(stat))
	want := figures{
		pid: 4711, parent: 17, name: "a) R (b\n", start: 123456, threads: 9,
		own: counts{500e6, 600e6, 1000, 3}, waited: counts{7e9, 8e9, 2000, 4},
	}
	if err != nil || *f != want {
		t.Errorf("%+v, %v", f, err)
	}
	for _, text := range []string{"", "1 (x", "1 (x) S 1 2 3", ")1(", "x" + stat,
		strings.Replace(stat, " 123456 ", " many ", 1)} {
		if f, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q is %+v", text, f)
		}
	}
	if f, err := parseStat([]byte(strings.Replace(stat, " S ", " Z ", 1))); err != nil || !f.ended {
		t.Errorf("one that nobody has waited for: %+v, %v", f, err)
	}
}

// TestReadAgrees holds what is read of a process that waits against gopsutil.
func TestReadAgrees(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	cmd := exec.Command("sh", "-c", "head -c 100000 /dev/zero >/dev/null; echo; read wait")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p, err := process.NewProcess(int32(cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for { // until it waits
		if status, err := p.Status(); err != nil || status[0] == process.Sleep {
			break
		}
	}
	f, err := newHost("/").read(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := p.MemoryInfo()
	if err != nil || memory.RSS != f.rss || memory.VMS != f.virtual {
		t.Errorf("%+v, gopsutil says %v, %v", f, memory, err)
	}
	times, err := p.Times()
	if err != nil || int64(times.User*100+0.5)*tickNS != f.own.user ||
		int64(times.System*100+0.5)*tickNS != f.own.system {
		t.Errorf("%+v, gopsutil says %v, %v", f, times, err)
	}
	faults, err := p.PageFaults()
	if err != nil || faults.MinorFaults != f.own.minor || faults.MajorFaults != f.own.major ||
		faults.ChildMinorFaults != f.waited.minor || f.waited.minor == 0 {
		t.Errorf("%+v, gopsutil says %v, %v", f, faults, err)
	}
	threads, _ := p.NumThreads()
	parent, _ := p.Ppid()
	name, _ := p.Name()
	if int(threads) != f.threads || int(parent) != f.parent || name != f.name {
		t.Errorf("%+v, gopsutil says %d threads, parent %d, %q", f, threads, parent, name)
	}
	if io, err := p.IOCounters(); err == nil && (f.io == nil || io.ReadBytes != f.io.ReadBytes ||
		io.WriteBytes != f.io.WriteBytes || io.ReadCount != f.io.ReadCalls || io.DiskReadBytes != f.io.DiskReadBytes ||
		f.io.ReadBytes < 100000) {
		t.Errorf("%+v, gopsutil says %v", f.io, io)
	}
}
