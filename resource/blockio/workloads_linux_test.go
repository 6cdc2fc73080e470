package blockio

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// settle waits until a device has no requests, and its counters stay as they are for 200 ms: a flush is in them when it
// has ended, and before that among no requests.
func settle(t testing.TB, dev string) {
	t.Helper()
	var last diskstats
	same := 0
	for range 1000 {
		if now := kernelStats(t, dev); now.inflight == 0 && now == last {
			same++
		} else {
			last, same = now, 0
		}
		if same == 10 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s still has requests", dev)
}

// openIdle opens a collector of a device at a time without requests: its counts and the kernel's then begin alike. A
// file system reads its bitmaps for a while after it was mounted.
func openIdle(t testing.TB, dev string) (*Collector, diskstats) {
	t.Helper()
	for range 50 {
		settle(t, dev)
		before := kernelStats(t, dev)
		c := open(t, Options{Devices: []string{dev}})
		if kernelStats(t, dev) == before {
			return c, before
		}
	}
	t.Fatalf("%s is never idle", dev)
	return nil, diskstats{}
}

// TestMerged: what is written through the page cache goes out in merged requests.
func TestMerged(t *testing.T) {
	for _, scheduler := range []string{"none", "mq-deadline"} {
		t.Run(scheduler, func(t *testing.T) {
			dev := loop(t, 64, "")
			if err := os.WriteFile("/sys/block/"+filepath.Base(dev)+"/queue/scheduler", []byte(scheduler),
				0); err != nil {
				testenv.Beyond(t, "the scheduler "+scheduler, err.Error())
			}
			c, before := openIdle(t, dev)
			run(t, "dd", "if=/dev/zero", "of="+dev, "bs=4k", "count=8k", "conv=fsync,notrunc")
			settle(t, dev)
			line := snap(t, c)
			d := of(line, dev)
			checkKernel(t, d, before, kernelStats(t, dev))
			checkWhole(t, line)
			if w := op(d, resource.BlockWrite); w.Requests == 0 || w.Bytes != 32<<20 || value(w.Merges) == 0 {
				t.Errorf("writes %+v", w)
			}
			if f := op(d, resource.BlockFlush); f.Requests == 0 || len(f.Sizes) != 1 || value(f.Sizes[0].UpTo) != 0 {
				t.Errorf("flushes %+v", f)
			}
		})
	}
}

// TestFlushes: a file system that is synced after each write. Requests that wait for a flush and are never issued are
// counted separately.
func TestFlushes(t *testing.T) {
	dev := loop(t, 64, "")
	run(t, "mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", dev) // nothing is written later by itself
	dir := t.TempDir()
	run(t, "mount", dev, dir)
	unmounted := false
	t.Cleanup(func() {
		if !unmounted {
			run(t, "umount", dir)
		}
	})
	c, before := openIdle(t, dev)
	run(t, testenv.NeedFio(t), "--name=t", "--directory="+dir, "--rw=write", "--bs=4k", "--size=400k", "--fsync=1",
		"--ioengine=psync", "--output=/dev/null")
	run(t, "umount", dir)
	unmounted = true
	settle(t, dev)
	line := snap(t, c)
	d := of(line, dev)
	checkKernel(t, d, before, kernelStats(t, dev))
	checkWhole(t, line)
	if f := op(d, resource.BlockFlush); f.Requests < 100 {
		t.Errorf("flushes %+v", f)
	}
}

// TestPartitions: a partition's requests are its own, and its disk's.
func TestPartitions(t *testing.T) {
	dev := loop(t, 64, "", "--partscan")
	run(t, "addpart", dev, "1", "2048", "32768")
	run(t, "addpart", dev, "2", "34816", "32768")
	c := open(t, Options{Devices: []string{dev}})
	inTime(t, func() (late string) { return partitions(t, c, dev) })
	part := open(t, Options{Devices: []string{dev + "p2"}})
	run(t, "dd", "if="+dev+"p1", "of=/dev/null", "bs=64k", "count=32", "iflag=direct")
	run(t, "dd", "if="+dev+"p2", "of=/dev/null", "bs=4k", "count=64", "iflag=direct")
	if line := snap(t, part); of(line, dev+"p2").Requests+value(of(line, dev+"p2").Untimed) != 64 ||
		len(of(line, dev+"p1").Ops) != 0 {
		t.Errorf("of p2 alone %+v", line.Devices)
	}
}

// partitions reads a disk and its two partitions, and returns how times differ from the kernel's.
func partitions(t *testing.T, c *Collector, dev string) (late string) {
	t.Helper()
	all := []string{dev, dev + "p1", dev + "p2"}
	before := map[string]diskstats{}
	for _, name := range all {
		before[name] = kernelStats(t, name)
	}
	run(t, "dd", "if="+dev+"p1", "of=/dev/null", "bs=64k", "count=32", "iflag=direct")
	run(t, "dd", "if="+dev+"p2", "of=/dev/null", "bs=4k", "count=64", "iflag=direct")
	run(t, "dd", "if="+dev, "of=/dev/null", "bs=128k", "count=8", "iflag=direct")
	line := snap(t, c)
	checkWhole(t, line)
	for _, name := range all {
		d := of(line, name)
		late = cmp.Or(checkCounts(t, d, before[name], kernelStats(t, name)), late)
		if part := name != dev; part != (d.PartOf != nil) || part && *d.PartOf != of(line, dev).DeviceID ||
			part == (d.DepthMax != nil) {
			t.Errorf("%s is part of %v, depth %v", name, d.PartOf, d.DepthMax)
		}
	}
	if d := of(line, dev); d.Requests+value(d.Untimed) != 104 || d.Alias == "" {
		t.Errorf("%s, %q: %d requests, want 104", dev, d.Alias, d.Requests)
	}
	if len(line.Latency) != 1 || line.Latency[0].Name != filepath.Base(dev) {
		t.Errorf("histograms of %+v", line.Latency)
	}
	return late
}

// reader is a process that reads a device without end.
func reader(t *testing.T, name, dev string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(testenv.NeedFio(t), append([]string{"--name=" + name, "--filename=" + dev, "--rw=randread",
		"--bs=4k", "--direct=1",
		"--ioengine=libaio", "--iodepth=16", "--time_based", "--runtime=600", "--thread", "--output=/dev/null"},
		args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// await takes snapshots until one satisfies.
func await(t *testing.T, c *Collector, what string, ok func(*resource.BlockLine) bool) *resource.BlockLine {
	t.Helper()
	for range 500 {
		if line := snap(t, c); ok(line) {
			return line
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s", what)
	return nil
}

// TestKilled: a process that is killed with requests on their way leaves none behind.
func TestKilled(t *testing.T) {
	dev := loop(t, 64, "")
	c := open(t, Options{Devices: []string{dev}})
	cmd := reader(t, "killed", dev)
	// A request that ends while a snapshot is taken counts in it twice, and less in the next: on a busy machine the two
	// means agree in most intervals, not in all.
	line := await(t, c, "a deep queue, as deep as the time of its requests says", func(line *resource.BlockLine) bool {
		d := of(line, dev)
		if value(d.DepthMax) < 8 || d.Requests <= 100 || d.DepthMean == nil {
			return false
		}
		if most := *d.DepthMax; most > 16 || *d.DepthMean > float64(most) {
			t.Errorf("depth %d at most, %.2f in the mean", most, *d.DepthMean)
		}
		mean := float64(value(d.ServiceNS)) / line.ActualS / 1e9
		return value(d.Inflight) != 0 || mean <= 1.5**d.DepthMean+1 && mean >= *d.DepthMean/1.5-1
	})
	found := false
	for _, p := range line.Processes {
		found = found || p.PID == uint32(cmd.Process.Pid) && p.Comm == "fio" && p.Requests > 0
	}
	if !found {
		t.Errorf("process %d is not among %+v", cmd.Process.Pid, line.Processes)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	settle(t, dev)
	await(t, c, "an empty queue", func(line *resource.BlockLine) bool {
		d := of(line, dev)
		return value(d.Inflight) == 0 && value(d.Waiting) == 0 && len(line.Inflight) == 0
	})
	line = snap(t, c)
	if d := of(line, dev); len(d.Ops) != 0 || len(c.memory.requests()) != 0 {
		t.Errorf("after the end %+v, requests %+v", d, c.memory.requests())
	}
}

// TestPlain: where the kernel's types are not known, devices are followed by sector.
func TestPlain(t *testing.T) {
	dev := loop(t, 64, "")
	c := open(t, Options{Devices: []string{dev}, Plain: true})
	before := kernelStats(t, dev)
	ns, bytes := completions(t, fio(t, dev, "--rw=randrw", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=8",
		"--size=4m"))
	line := snap(t, c)
	d, after := of(line, dev), kernelStats(t, dev)
	for i, latencies := range ns[:2] {
		o := op(d, resource.BlockOps[i])
		missed := uint64(len(latencies)) - o.Requests - value(o.Untimed)
		if missed > 10 || o.Bytes+missed*4096 != bytes[i] ||
			o.Requests+value(o.Untimed)+missed != after.done[i]-before.done[i] {
			t.Errorf("%s: %d requests of %d bytes, fio has %d of %d", o.Op, o.Requests, o.Bytes, len(latencies),
				bytes[i])
		}
	}
	if line.Origin != resource.OriginPlain || len(line.Missing) == 0 || d.QueueNS != nil || d.Merges != nil {
		t.Errorf("origin %s, missing %q, %+v", line.Origin, line.Missing, d.BlockFigures)
	}
}

// TestPolled: without BPF there are the kernel's own counters.
func TestPolled(t *testing.T) {
	dev := loop(t, 64, "")
	c := open(t, Options{Devices: []string{dev}, Poll: true})
	run(t, "dd", "if="+dev, "of=/dev/null", "bs=64k", "count=32", "iflag=direct")
	line := snap(t, c)
	d := of(line, dev)
	if r := op(d, resource.BlockRead); r.Requests != 32 || r.Bytes != 2<<20 || r.TotalNS == nil || r.ServiceNS != nil ||
		len(r.Latency) != 0 {
		t.Errorf("read %+v", r)
	}
	if line.Origin != resource.OriginProc || len(line.Latency) != 0 || line.Latency == nil || d.DepthMean == nil ||
		len(line.Devices) != 1 {
		t.Errorf("%+v", line)
	}
	if line := snap(t, c); len(line.Devices) != 0 {
		t.Errorf("of nothing %+v", line.Devices)
	}
}

// TestUnknownDevice: a device that is not there is refused with what to do.
func TestUnknownDevice(t *testing.T) {
	if _, err := Open(Options{Devices: []string{"no-such-disk"}}); err == nil ||
		err.Error() != `block device "no-such-disk": there is none of that name; list them with: cat /proc/diskstats` {
		t.Error(err)
	}
	all, err := readDiskstats()
	if err != nil {
		t.Fatal(err)
	}
	var many []string
	for _, d := range all {
		many = append(many, d.name)
	}
	if len(many) > maxDevices {
		if _, err := Open(Options{Devices: many}); err == nil || !strings.Contains(err.Error(), "at most 8") {
			t.Errorf("%d devices: %v", len(many), err)
		}
	}
}

// TestPartly: a request that the device completes in part is taken back and issued again. It is one request, with
// all its bytes and its error.
func TestPartly(t *testing.T) {
	dir := t.TempDir()
	dev := loop(t, 1, dir, "--direct-io=on")
	files, err := filepath.Glob(filepath.Join(dir, "llamatap-loop-*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	c := open(t, Options{Devices: []string{dev}})
	// the device still has 1 MiB: a read of 64 KiB at 512 KiB ends after the half
	if err := os.Truncate(files[0], 544<<10); err != nil {
		t.Fatal(err)
	}
	before := kernelStats(t, dev)
	if out, err := exec.Command("dd", "if="+dev, "of=/dev/null", "bs=64k", "skip=8", "count=1",
		"iflag=direct").CombinedOutput(); err == nil {
		t.Errorf("read what is not there: %s", out)
	}
	settle(t, dev)
	line := snap(t, c)
	r, after := op(of(line, dev), resource.BlockRead), kernelStats(t, dev)
	if seen := r.Requests + value(r.Untimed); seen != after.done[0]-before.done[0] || value(r.Requeues) == 0 ||
		r.Requests > 0 && value(r.Errors) == 0 {
		t.Errorf("%d requests, %d requeues, %d errors, the kernel has %d requests", seen, value(r.Requeues),
			value(r.Errors), after.done[0]-before.done[0])
	}
	if r.Bytes != (after.sectors[0]-before.sectors[0])*512 {
		t.Errorf("%d bytes, the kernel has %d", r.Bytes, (after.sectors[0]-before.sectors[0])*512)
	}
	if len(c.memory.requests()) != 0 {
		t.Errorf("left are %+v", c.memory.requests())
	}
}
