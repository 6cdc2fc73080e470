//go:build linux

package oracle

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"golang.org/x/sys/unix"
)

// soakTime is how long a soak records: what SOAK in the environment says, as with make soak.
func soakTime(t *testing.T, otherwise time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("SOAK")
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSoak records for a long time, within a bounded disk, in segments and with a live consumer's worth of work for
// all parts, and demands that neither process's memory nor its descriptors grow once both are warm, nor the collector's
// goroutines, and that no slot of the pool is kept.
func TestSoak(t *testing.T) {
	testenv.Slow(t)
	length := soakTime(t, 2*time.Minute)
	g := begin(t, "run", "--tap-granularity", "full_tensor", "--tap-max-disk", "256M:rotate", "--tap-segment", "32M",
		"--tap-sync", "interval:200ms", "--tap-memory", "128M",
		"-p", prompt, "-n", "100000000", "-c", "512", "--context-shift", "--ignore-eos", "-t", "1", "-s", "1")
	done := make(chan struct{})
	time.AfterFunc(length, func() { close(done) })
	wantFlat(t, done, length, map[string]int{"collector": g.cmd.Process.Pid, "model": g.model(t)}, g.out)
	select {
	case <-g.exited:
		t.Fatalf("it ended early: %v\n%s", g.cmd.ProcessState, g.stderr.String())
	default:
	}
	unix.Kill(-g.cmd.Process.Pid, unix.SIGINT)
	g.wait(t)
	dirs := runDirs(t, g.out)
	if len(dirs) != 1 {
		t.Fatalf("%d run directories", len(dirs))
	}
	llamatap(t, "verify", dirs[0]).good(t)
}

// wantFlat watches processes until done and demands that neither memory nor descriptors grow once they are warm, nor
// the goroutines of the collector of the run below out; now and then it captures nothing until the pool is empty.
func wantFlat(t *testing.T, done <-chan struct{}, length time.Duration, pids map[string]int, out string) {
	t.Helper()
	type use struct {
		warm, most, last int64
		files, mostFiles int
	}
	all := map[string]*use{}
	for name := range pids {
		all[name] = &use{}
	}
	warm := time.Now().Add(min(length/4, 5*time.Minute))
	minute := time.Now()
	threads, last, looked, emptied := 0, 1<<30, time.Now(), 0 // goroutines
	late := time.Now().Add(length * 3 / 4)
	for going := true; going; {
		select {
		case <-done:
			going = false
		case <-time.After(500 * time.Millisecond):
		}
		switch n := ctl(t, out, "status").Status.Goroutines; { // more while a segment is closed
		case time.Now().Before(warm):
			threads = max(threads, n)
		case time.Now().After(late):
			last = min(last, n)
		}
		if time.Since(looked) > min(length/20, time.Minute) {
			ctl(t, out, "off")
			poolEmpties(t, out)
			ctl(t, out, "on")
			looked, emptied = time.Now(), emptied+1
		}
		for name, pid := range pids {
			u := all[name]
			u.last = resident(t, pid)
			files := descriptors(t, pid)
			if time.Now().Before(warm) {
				u.warm, u.files = max(u.warm, u.last), max(u.files, files)
				continue
			}
			u.most, u.mostFiles = max(u.most, u.last), max(u.mostFiles, files)
		}
		if time.Since(minute) > time.Minute && os.Getenv("SOAK") != "" {
			minute = time.Now()
			for name, u := range all {
				t.Logf("%s: %d KiB", name, u.last)
			}
		}
	}
	for name, u := range all {
		t.Logf("%s: %d KiB and %d descriptors when warm, then at most %d and %d, %d KiB at last, in %v", name, u.warm,
			u.files, u.most, u.mostFiles, u.last, length)
		if u.most > u.warm+24<<10 || u.mostFiles > u.files+4 {
			t.Errorf("the %s grew", name)
		}
	}
	t.Logf("the collector has at most %d goroutines when warm, at least %d at last; its pool was empty %d times",
		threads, last, emptied)
	if last > threads || emptied == 0 {
		t.Error("the collector's goroutines grew, or were not looked at")
	}
}

// poolEmpties waits until no tensor of the run below out, which captures nothing any more, is in the pool.
func poolEmpties(t *testing.T, out string) {
	t.Helper()
	testenv.Until(t, "the pool is empty", func() bool { return ctl(t, out, "status").Status.PoolUsed == 0 })
}

// resident is the resident size of a process in KiB.
func resident(t *testing.T, pid int) int64 { return status(t, pid, "VmRSS:") }

// status is a figure of /proc/PID/status.
func status(t *testing.T, pid int, key string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	_, after, _ := strings.Cut(string(text), key)
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
