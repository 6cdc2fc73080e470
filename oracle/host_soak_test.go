//go:build linux

package oracle

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// TestSoakHost lets the host collectors watch the whole machine for a long time, while disks are read and written,
// processes are born and die, and a model computes under --tap-host all: no collector's memory or descriptors grow
// once it is warm, and when the work has ended no request is reported as in flight. A collector that the machine keeps
// from running has an interval of thousands of threads to report, and takes up to 24 MiB for it; what it has taken
// it gives back, so that the least of the last quarter is within 4 MiB of the most when it was warm. The pool of
// tensors is not counted: its pages are touched when they are first needed, and --tap-memory bounds them.
func TestSoakHost(t *testing.T) {
	testenv.Slow(t)
	testenv.NeedBPF(t)
	length, dir := soakTime(t, 2*time.Minute), t.TempDir()
	work := []*exec.Cmd{
		exec.Command(testenv.NeedFio(t), "--name=soak", "--directory="+dir, "--size=32M", "--rw=randrw", "--bs=4k",
			"--direct=1", "--fsync=64",
			"--time_based", fmt.Sprintf("--runtime=%d", int(length.Seconds())), "--rate_iops=2000"),
		exec.Command("sh", "-c", `while :; do /bin/true; /bin/cat /proc/self/stat >/dev/null; done`),
	}
	var pids []int
	var collectors []*exec.Cmd
	for _, name := range []string{"block", "system", "prof"} {
		cmd := command(t, "host", name, "--interval", "0.5", "--flush-every", "1",
			"--output", filepath.Join(dir, name+".jsonl"))
		cmd.Stderr = os.Stderr
		collectors, pids = append(collectors, cmd), append(pids, 0)
	}
	for i, cmd := range append(collectors, work...) {
		cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if i < len(pids) {
			pids[i] = cmd.Process.Pid
		}
	}
	g := begin(t, "run", "--tap-tensors", "l_out-0", "--tap-max-disk", "256M:rotate", "--tap-segment", "32M",
		"--tap-host", "all", "--tap-host-interval", "200ms", "-p", prompt, "-n", "100000000", "-c", "512",
		"--context-shift", "--ignore-eos", "-t", "1", "-s", "1")
	pids = append(pids, g.cmd.Process.Pid)
	names := []string{"block", "system", "prof", "collector of the run"}
	base, most, last, files := make([]int64, len(pids)), make([]int64, len(pids)), make([]int64, len(pids)), make([]int,
		len(pids))
	warm, end := time.Now().Add(min(length/3, time.Minute)), time.Now().Add(length)
	late := end.Add(-length / 4)
	for time.Now().Before(end) {
		time.Sleep(500 * time.Millisecond)
		for i, pid := range pids {
			rss, open := resident(t, pid)-status(t, pid, "RssShmem:"), descriptors(t, pid)
			if time.Now().Before(warm) {
				base[i], files[i] = max(base[i], rss), max(files[i], open)
				continue
			}
			if time.Now().After(late) && (last[i] == 0 || rss < last[i]) {
				last[i] = rss
			}
			if most[i] = max(most[i], rss); open > files[i]+4 {
				t.Fatalf("%s has %d descriptors, %d when it was warm", names[i], open, files[i])
			}
		}
	}
	for i, name := range names {
		t.Logf("%s: %d KiB when warm, %d KiB at most in %v, %d KiB at least in its last quarter", name, base[i],
			most[i], length, last[i])
		if most[i] > base[i]+24<<10 || last[i] > base[i]+4<<10 {
			t.Errorf("%s grew from %d KiB to %d, and was at least %d at last", name, base[i], most[i], last[i])
		}
	}
	unix.Kill(-g.cmd.Process.Pid, unix.SIGINT)
	g.wait(t)
	dirs := runDirs(t, g.out)
	if len(dirs) != 1 {
		t.Fatalf("%d run directories\n%s", len(dirs), g.stderr.String())
	}
	llamatap(t, "verify", dirs[0]).good(t)
	for _, cmd := range work {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	}
	unix.Sync()
	idle(t, dir)
	for i, cmd := range collectors {
		if err := cmd.Process.Signal(unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", names[i], err)
		}
	}
}

// idle demands that some line of block within the next half minute reports no request in flight: the machine does
// work of its own.
func idle(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "block.jsonl")
	began, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		time.Sleep(500 * time.Millisecond)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tail := filepath.Join(dir, "tail.jsonl")
		new := text[began.Size():]
		new = new[:bytes.LastIndexByte(new, '\n')+1]
		if err := os.WriteFile(tail, new, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, l := range jsonLines[resource.BlockLine](t, tail) {
			busy := int64(0)
			for _, d := range l.Inflight {
				busy += d.Count
			}
			if busy == 0 {
				return
			}
		}
	}
	t.Error("requests are reported as in flight though nothing works")
}
