package blockio

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// loop makes a loop device of so many MiB and returns its path. It lies in dir, or in a folder of the test's own.
func loop(t testing.TB, mib int64, dir string, args ...string) string {
	t.Helper()
	testenv.NeedBPF(t)
	if dir == "" {
		dir = t.TempDir()
	}
	f, err := os.CreateTemp(dir, "llamatap-loop-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(f.Name()) })
	if err := errors.Join(f.Truncate(mib<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", append([]string{"--find", "--show", f.Name()}, args...)...).CombinedOutput()
	if err != nil {
		testenv.Beyond(t, "loop devices", string(out)+err.Error())
	}
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() { run(t, "losetup", "--detach", dev) })
	return dev
}

// run runs a program that must succeed.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// open begins to watch, for a test. Kernels leave BPF programs out in some contexts, so that a completion may be
// missed now and then: tests find it with the next snapshot, and not in a while.
func open(t testing.TB, o Options) *Collector {
	t.Helper()
	testenv.NeedBPF(t)
	o.patience = 1
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if c.Missing() != nil && !o.Poll {
		t.Fatalf("%+v", c.Missing())
	}
	return c
}

// snap takes a snapshot. Its line must survive JSON.
func snap(t testing.TB, c *Collector) *resource.BlockLine {
	t.Helper()
	got, err := c.Snapshot(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	line := &resource.BlockLine{}
	if err := json.Unmarshal(text, line); err != nil {
		t.Fatal(err)
	}
	return line
}

// of returns a line's figures of a device, empty if it has none.
func of(line *resource.BlockLine, dev string) *resource.BlockDevice {
	for i := range line.Devices {
		if line.Devices[i].Name == filepath.Base(dev) {
			return &line.Devices[i]
		}
	}
	return &resource.BlockDevice{}
}

// op returns what a device did of an operation.
func op(d *resource.BlockDevice, name string) *resource.BlockOp {
	for i := range d.Ops {
		if d.Ops[i].Op == name {
			return &d.Ops[i]
		}
	}
	return &resource.BlockOp{}
}

// value is what a pointer points to, or zero.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// kernelStats are the kernel's own counters of a device.
func kernelStats(t testing.TB, dev string) diskstats {
	t.Helper()
	all, err := readDiskstats()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d.name == filepath.Base(dev) {
			return d
		}
	}
	t.Fatalf("/proc/diskstats has no %s", dev)
	return diskstats{}
}

// bucketTotal is the sum of a histogram.
func bucketTotal(buckets []resource.Bucket) (n uint64) {
	for _, b := range buckets {
		n += b.Count
	}
	return n
}
