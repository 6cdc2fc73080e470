package blockio

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// completions reads fio's log of completions: latencies in nanoseconds, by operation (0 read, 1 write, 2 discard).
func completions(t *testing.T, prefix string) (ns [3][]uint64, bytes [3]uint64) {
	t.Helper()
	logs, err := filepath.Glob(prefix + "_lat.*.log")
	if err != nil || len(logs) == 0 {
		t.Fatalf("fio wrote no log %s: %v", prefix, err)
	}
	for _, name := range logs {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() { // time in ms, latency in ns, operation, size, offset, priority
			words := strings.Split(lines.Text(), ", ")
			latency, err1 := strconv.ParseUint(words[1], 10, 64)
			op, err2 := strconv.Atoi(words[2])
			size, err3 := strconv.ParseUint(words[3], 10, 64)
			if err1 != nil || err2 != nil || err3 != nil {
				t.Fatalf("%s: %q", name, lines.Text())
			}
			ns[op] = append(ns[op], latency)
			bytes[op] += size
		}
		f.Close()
	}
	return ns, bytes
}

// fio runs fio on a device with its log of completions, and returns where that is.
func fio(t *testing.T, dev string, args ...string) string {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "fio")
	run(t, testenv.NeedFio(t), append([]string{
		"--name=t", "--filename=" + dev, "--write_lat_log=" + prefix, "--log_offset=1", "--randseed=7",
		"--output=/dev/null",
	}, args...)...)
	return prefix
}

// atLeast counts the values that fall into a slot or one above it.
func atLeast(buckets []resource.Bucket, slot int) (n uint64) {
	for _, b := range buckets {
		if b.Slot >= slot {
			n += b.Count
		}
	}
	return n
}

// checkFio compares an operation with fio's log. A request is on its way within the time that fio measures, so that
// no slot can have more slow ones than fio saw.
func checkFio(t *testing.T, o *resource.BlockOp, ns []uint64, bytes uint64) {
	t.Helper()
	if o.Requests+value(o.Untimed) != uint64(len(ns)) || o.Bytes != bytes || bucketTotal(o.Latency) != o.Requests {
		t.Errorf("%s: %d requests of %d bytes, %d in the histogram; fio has %d of %d", o.Op, o.Requests, o.Bytes,
			bucketTotal(o.Latency), len(ns), bytes)
	}
	var h resource.Histogram
	var sum uint64
	for _, latency := range ns {
		h.Add(max(1, latency/1000))
		sum += latency
	}
	theirs := h.Buckets(false)
	for slot := range resource.HistogramSlots {
		if ours, most := atLeast(o.Latency, slot), atLeast(theirs, slot); ours > most {
			t.Errorf("%s: %d requests in slot %d and above, fio has %d", o.Op, ours, slot, most)
		}
	}
	if got := value(o.ServiceNS) + value(o.QueueNS); got > sum || value(o.ServiceNS) == 0 {
		t.Errorf("%s: %d ns of service and %d in the queue, fio has %d in all", o.Op, value(o.ServiceNS),
			value(o.QueueNS), sum)
	}
}

// checkKernel compares a device's operations with the kernel's counters, between two readings of which nothing else
// was done.
func checkKernel(t *testing.T, d *resource.BlockDevice, before, after diskstats) {
	t.Helper()
	if late := checkCounts(t, d, before, after); late != "" {
		t.Error(late)
	}
}

// inTime lets work be done until its times are the kernel's, up to six times: on a busy machine a thread may lose its
// processor for some milliseconds between our end of a request and the kernel's.
func inTime(t *testing.T, work func() (late string)) {
	t.Helper()
	late := work()
	for try := 0; try < 5 && late != ""; try++ {
		late = work()
	}
	if late != "" {
		t.Error(late)
	}
}

// checkCounts is checkKernel, and returns how times differ.
func checkCounts(t *testing.T, d *resource.BlockDevice, before, after diskstats) (late string) {
	t.Helper()
	flushed := op(d, resource.BlockFlush).Requests > 0
	for i, name := range resource.BlockOps[:4] {
		o := op(d, name)
		requests := after.done[i] - before.done[i]
		bytes, merges := (after.sectors[i]-before.sectors[i])*512, after.merges[i]-before.merges[i]
		// What ended without being issued is a write to the kernel, of nothing.
		if o.Requests+value(o.Unissued)+value(o.Untimed) != requests {
			t.Errorf("%s: %d requests, %d unissued and %d untimed, the kernel has %d", name, o.Requests,
				value(o.Unissued), value(o.Untimed), requests)
		}
		if few := value(o.Untimed); few > 5+requests/500 {
			t.Errorf("%s: %d of %d requests are untimed", name, few, requests)
		}
		if name != resource.BlockFlush && (o.Bytes != bytes || value(o.Merges) != merges) {
			t.Errorf("%s: %d bytes, %d merges; the kernel has %d and %d", name, o.Bytes, value(o.Merges), bytes, merges)
		}
		// The kernel ends its clock some microseconds later, cuts its times to milliseconds, and does not time
		// flushes of the device, for which what is to be flushed waits after its own end.
		ours, theirs := int64(value(o.ServiceNS)+value(o.QueueNS)+value(o.UnissuedNS)),
			int64(after.ms[i]-before.ms[i])*1e6
		if slack := 2e6 + theirs/20 + int64(requests)*20e3; name != resource.BlockFlush &&
			(ours > theirs+2e6 || ours < theirs-slack && value(o.Untimed) == 0 && !flushed) {
			late = fmt.Sprintf("%s: %d ns in all, the kernel has %d", name, ours, theirs)
		}
	}
	if value(d.Inflight) != 0 || value(d.Waiting) != 0 {
		t.Errorf("%d in flight, %d waiting after the end", value(d.Inflight), value(d.Waiting))
	}
	return late
}

// checkWhole checks a line's own sums.
func checkWhole(t *testing.T, line *resource.BlockLine) {
	t.Helper()
	if line.Lost != (resource.BlockLosses{Missed: line.Lost.Missed, Orphans: line.Lost.Orphans}) {
		t.Errorf("lost %+v", line.Lost)
	}
	byDevice := map[uint32]uint64{}
	for _, p := range line.Processes {
		byDevice[p.DeviceID] += p.Requests
	}
	for _, d := range line.Devices {
		var ops, sizes uint64
		for _, o := range d.Ops {
			ops += o.Requests
			for _, s := range o.Sizes {
				sizes += s.Requests
				if bucketTotal(s.Latency) != s.Requests {
					t.Errorf("%s %s: %+v", d.Name, o.Op, s)
				}
			}
		}
		if ops != d.Requests || sizes != d.Requests {
			t.Errorf("%s: %d requests, %d by operation, %d by size", d.Name, d.Requests, ops, sizes)
		}
		if d.PartOf == nil && byDevice[d.DeviceID] > d.Requests {
			t.Errorf("%s: %d requests, %d by process", d.Name, d.Requests, byDevice[d.DeviceID])
		}
	}
}

func TestAgainstFio(t *testing.T) {
	dev := loop(t, 64, "")
	c := open(t, Options{Devices: []string{dev}})
	for _, w := range []struct {
		name string
		args []string
	}{
		{"sequential", []string{"--rw=read", "--bs=64k", "--direct=1", "--ioengine=psync"}},
		{"random", []string{"--rw=randrw", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=16", "--size=8m"}},
		{"sizes", []string{"--rw=randwrite", "--bsrange=4k-256k", "--direct=1", "--ioengine=libaio", "--iodepth=4",
			"--size=32m"}},
		{"discard", []string{"--rw=randtrim", "--bs=64k", "--direct=1", "--ioengine=psync", "--size=8m"}},
	} {
		t.Run(w.name, func(t *testing.T) {
			inTime(t, func() (late string) {
				snap(t, c)
				before := kernelStats(t, dev)
				ns, bytes := completions(t, fio(t, dev, w.args...))
				line := snap(t, c)
				d := of(line, dev)
				late = checkCounts(t, d, before, kernelStats(t, dev))
				checkWhole(t, line)
				for i := range ns {
					if len(ns[i]) > 0 {
						checkFio(t, op(d, resource.BlockOps[i]), ns[i], bytes[i])
					}
				}
				return late
			})
		})
	}
}
