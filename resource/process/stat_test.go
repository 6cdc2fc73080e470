package process

import (
	"os/exec"
	"runtime"
	"testing"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestReadAgrees holds what is read of a process that waits against gopsutil.
func TestReadAgrees(t *testing.T) {
	if runtime.GOOS != "linux" {
		testenv.Beyond(t, "Linux", "it reads /proc")
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
	if err != nil || uint64(times.User*100+0.5) != f.Own.User ||
		uint64(times.System*100+0.5) != f.Own.System {
		t.Errorf("%+v, gopsutil says %v, %v", f, times, err)
	}
	faults, err := p.PageFaults()
	if err != nil || faults.MinorFaults != f.Own.Minor || faults.MajorFaults != f.Own.Major ||
		faults.ChildMinorFaults != f.Waited.Minor || f.Waited.Minor == 0 {
		t.Errorf("%+v, gopsutil says %v, %v", f, faults, err)
	}
	threads, _ := p.NumThreads()
	parent, _ := p.Ppid()
	name, _ := p.Name()
	if int(threads) != f.Threads || int(parent) != f.Parent || name != f.Name {
		t.Errorf("%+v, gopsutil says %d threads, parent %d, %q", f, threads, parent, name)
	}
	if io, err := p.IOCounters(); err == nil && (f.io == nil || io.ReadBytes != f.io.ReadBytes ||
		io.WriteBytes != f.io.WriteBytes || io.ReadCount != f.io.ReadCalls || io.DiskReadBytes != f.io.DiskReadBytes ||
		f.io.ReadBytes < 100000) {
		t.Errorf("%+v, gopsutil says %v", f.io, io)
	}
}
