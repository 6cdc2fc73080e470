package blockio

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
)

// memoryFolder is a folder on tmpfs, so that a loop device on it is as fast as it can be.
func memoryFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "llamatap-")
	if err != nil {
		testenv.Beyond(t, "tmpfs at /dev/shm", err.Error())
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// BenchmarkRequest is what following a request costs, in all programs together and in each, as the kernel counts it
// (bpf_stats). Its own count costs two clock readings per run; BenchmarkUnwatched without programs shows what they cost
// with counting off.
func BenchmarkRequest(b *testing.B) {
	dev := loop(b, 64, memoryFolder(b))
	for name, target := range map[string]bpf.Target{"all": {}, "other": {PIDs: []int{os.Getpid()}}} {
		b.Run(name, func(b *testing.B) {
			counting, err := bpf.EnableStats()
			if err != nil {
				b.Fatal(err)
			}
			defer counting.Close()
			c := open(b, Options{Devices: []string{dev}, Target: target})
			load(b, dev, b.N)
			stats, err := c.Programs()
			if err != nil {
				b.Fatal(err)
			}
			var sum time.Duration
			for _, s := range stats {
				if s.Runs >= uint64(b.N) {
					sum += s.Time
					b.ReportMetric(s.PerNS, "ns/"+s.Name)
				}
			}
			b.ReportMetric(float64(sum)/float64(b.N), "ns/request")
		})
	}
}

// BenchmarkUnwatched is the same work without the collector, and with it, counting off: ns/op are of a whole request.
func BenchmarkUnwatched(b *testing.B) {
	dev := loop(b, 64, memoryFolder(b))
	b.Run("off", func(b *testing.B) { load(b, dev, b.N) })
	b.Run("on", func(b *testing.B) {
		open(b, Options{})
		b.ResetTimer()
		load(b, dev, b.N)
	})
}

// BenchmarkSnapshot is what a snapshot costs the reader.
func BenchmarkSnapshot(b *testing.B) {
	dev := loop(b, 64, memoryFolder(b))
	c := open(b, Options{})
	load(b, dev, 10000)
	for b.Loop() {
		if _, err := c.Snapshot(time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}

// load makes n requests of 4 KiB, 32 at once.
func load(t testing.TB, dev string, n int) {
	t.Helper()
	if out, err := loading(t, dev, n).CombinedOutput(); err != nil {
		t.Fatalf("fio: %v\n%s", err, out)
	}
}

func loading(t testing.TB, dev string, n int) *exec.Cmd {
	t.Helper()
	return exec.Command(testenv.NeedFio(t), "--name=load", "--filename="+dev, "--rw=randread", "--bs=4k", "--direct=1",
		"--ioengine=libaio", "--iodepth=32",
		"--norandommap", "--randseed=7", fmt.Sprintf("--io_size=%d", 4096*n), "--thread", "--output=/dev/null")
}

// TestLoad: at more than fifty thousand events a second nothing is lost, and the memory is what it was.
func TestLoad(t *testing.T) {
	requests := 100_000
	if testenv.Nightly() {
		requests = 5_000_000
	}
	dev := loop(t, 64, memoryFolder(t))
	c := open(t, Options{Devices: []string{dev}})
	before, pages := kernelStats(t, dev), locked(t, c)
	began := time.Now()
	cmd := loading(t, dev, requests)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- cmd.Wait() }()
	var got resource.BlockFigures
	var lost resource.BlockLosses
	add := func(line *resource.BlockLine) {
		checkWhole(t, line)
		got.Add(&of(line, dev).BlockFigures)
		lost.Orphans, lost.Missed = lost.Orphans+line.Lost.Orphans, lost.Missed+line.Lost.Missed
	}
	for running := true; running; {
		select {
		case err := <-done:
			if running = false; err != nil {
				t.Fatal(err)
			}
		case <-time.After(50 * time.Millisecond):
			add(snap(t, c))
		}
	}
	rate := 3 * float64(requests) / time.Since(began).Seconds() // start, issue and completion
	settle(t, dev)
	add(snap(t, c))
	after := kernelStats(t, dev)
	all := after.done[0] - before.done[0]
	if all < uint64(requests) || got.Requests+value(got.Untimed) != all ||
		got.Bytes != (after.sectors[0]-before.sectors[0])*512 {
		t.Errorf("%d requests, %d untimed, %d bytes; the kernel has %d", got.Requests, value(got.Untimed), got.Bytes,
			all)
	}
	if few := value(got.Untimed); few > 10+all/500 {
		t.Errorf("%d of %d requests are untimed", few, all)
	}
	last := snap(t, c)
	if d := of(last, dev); value(d.Inflight) != 0 || value(d.Waiting) != 0 || len(c.memory.requests()) != 0 {
		t.Errorf("after the end %+v", d)
	}
	if now := locked(t, c); now != pages {
		t.Errorf("the maps have %d bytes, %d before", now, pages)
	}
	t.Logf("%.0f events/s, %d requests, lost %+v", rate, all, lost)
}

// locked is the kernel's memory of the collector's maps, in bytes.
func locked(t *testing.T, c *Collector) (n uint64) {
	t.Helper()
	for _, name := range []string{".bss", "counts", "target_pids"} {
		info, err := c.set.Map(name).Info()
		if err != nil {
			t.Fatal(err)
		}
		bytes, ok := info.Memlock()
		if !ok {
			t.Fatalf("the kernel does not report the memory of map %s", name)
		}
		n += bytes
	}
	return n
}
