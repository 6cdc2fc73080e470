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

// soakTime is how long TestSoak records: what SOAK in the environment says, as with make soak, else two minutes.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("SOAK")
	if text == "" {
		return 2 * time.Minute
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSoak records for a long time, within a bounded disk, in segments and with a live consumer's worth of work for
// all parts, and demands that neither process's memory nor its descriptors grow once both are warm.
func TestSoak(t *testing.T) {
	testenv.Slow(t)
	length := soakTime(t)
	g := begin(t, "run", "--tap-granularity", "full_tensor", "--tap-max-disk", "256M:rotate", "--tap-segment", "32M",
		"--tap-sync", "interval:200ms", "--tap-memory", "128M",
		"-p", prompt, "-n", "100000000", "-c", "512", "--context-shift", "--ignore-eos", "-t", "1", "-s", "1")
	pids := []int{g.cmd.Process.Pid, g.model(t)}
	warm := time.Now().Add(min(length/4, time.Minute))
	end := time.Now().Add(length)
	var base, most [2]int64
	var files [2]int
	for time.Now().Before(end) {
		select {
		case <-g.exited:
			t.Fatalf("it ended early: %v\n%s", g.cmd.ProcessState, g.stderr.String())
		case <-time.After(500 * time.Millisecond):
		}
		for i, pid := range pids {
			rss, open := resident(t, pid), descriptors(t, pid)
			if time.Now().Before(warm) {
				base[i], files[i] = max(base[i], rss), max(files[i], open)
				continue
			}
			most[i] = max(most[i], rss)
			if open > files[i]+4 {
				t.Fatalf("process %d has %d descriptors, %d when it was warm", i, open, files[i])
			}
		}
	}
	for i, name := range []string{"collector", "model"} {
		t.Logf("%s: %d KiB when warm, %d KiB at most in %v", name, base[i], most[i], length)
		if most[i] > base[i]+24<<10 {
			t.Errorf("the %s grew from %d to %d KiB", name, base[i], most[i])
		}
	}
	unix.Kill(-g.cmd.Process.Pid, unix.SIGINT)
	g.wait(t)
	dirs := runDirs(t, g.out)
	if len(dirs) != 1 {
		t.Fatalf("%d run directories", len(dirs))
	}
	llamatap(t, "verify", dirs[0]).good(t)
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
