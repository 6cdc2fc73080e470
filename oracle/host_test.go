//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// jsonLines reads a file of JSON lines. All must be whole and valid.
func jsonLines[T any](t *testing.T, path string) []T {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		t.Errorf("%s ends within a line", path)
	}
	var all []T
	for line := range bytes.Lines(text) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("%s: %v in %.200s", path, err, line)
		}
		all = append(all, v)
	}
	return all
}

// TestHost: all host collectors run beside a recording, their files are part of the run, and their lines cover
// its tokens.
func TestHost(t *testing.T) {
	testenv.NeedBPF(t)
	const tokens = 48
	o := llamatap(t, "run", "-p", "func main() {", "-n", "48", "--temp", "0", "-t", "1", "--tap-host", "all",
		"--tap-host-interval", "50ms", "--tap-host-details",
		"--tap-resource-level", "MINIMAL").good(t)
	if len(o.dirs) != 1 || strings.Contains(o.stderr, "left out") {
		t.Fatalf("runs %v\n%s", o.dirs, o.stderr)
	}
	dir := o.dirs[0]
	llamatap(t, "verify", dir).good(t)
	if lines := jsonLines[resource.BlockLine](t, filepath.Join(dir, "block_io.jsonl")); len(lines) == 0 {
		t.Error("no lines of block devices")
	}
	var cpu int64
	for _, l := range jsonLines[resource.SelfLine](t, filepath.Join(dir, "host_self.jsonl")) {
		cpu += l.UserNS + l.SystemNS
	}
	if cpu <= 0 {
		t.Error("the collector cost nothing")
	}
	hostSystem(t, dir)
	hostProf(t, dir)
	hostWaits(t, dir, tokens)
}

// hostSystem: the intervals follow each other without a gap, the model's process computes, and no thread waits for
// locks but the one that computes the graphs, and that no longer than there is time.
func hostSystem(t *testing.T, dir string) {
	lines := jsonLines[resource.SystemLine](t, filepath.Join(dir, "system_metrics.jsonl"))
	var computed, locks, wall int64
	roles := map[resource.ThreadRole]bool{}
	for i, l := range lines {
		wall += int64(l.ActualS * 1e9)
		for _, p := range l.Processes {
			computed += p.OnCPUNS
		}
		if i > 0 && l.MonoNS-lines[i-1].MonoNS != int64(l.ActualS*1e9+0.5) {
			t.Errorf("line %d: %d ns since the one before, interval_actual_s %v", i, l.MonoNS-lines[i-1].MonoNS,
				l.ActualS)
		}
		for _, thread := range l.Threads {
			roles[thread.Role] = true
			locks += thread.LockDelayNS()
			if l.OffCPU[strconv.Itoa(thread.TID)] != thread.OffCPUNS() || thread.Role != resource.RoleCompute &&
				thread.LockDelayNS() > 0 {
				t.Errorf("line %d: %+v, off the processor %d, for locks %d", i, thread,
					l.OffCPU[strconv.Itoa(thread.TID)], thread.LockDelayNS())
			}
			if ns := thread.OffCPUNS(); ns < 0 || float64(ns) > l.ActualS*1e9 {
				t.Errorf("line %d: thread %d was off the processor for %d ns of %v s", i, thread.TID, ns, l.ActualS)
			}
		}
	}
	if locks > wall || !roles[resource.RoleCompute] {
		text, _ := os.ReadFile(filepath.Join(dir, "system_metrics.jsonl"))
		t.Errorf("roles %v; waiting for locks %d ns of %d\n%.20000s", roles, locks, wall, text)
	}
	if computed <= 0 {
		t.Errorf("the model computed for %d ns in %d lines", computed, len(lines))
	}
}

// hostProf: each event has an id that names the run and what it did, and tokens of it.
func hostProf(t *testing.T, dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "llm_prof.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	phases, types := map[string]bool{}, map[resource.ProfType]bool{}
	var last int64 = -1
	for line := range bytes.Lines(text) {
		e, err := resource.ParseProfEvent(line)
		if err != nil {
			t.Fatal(err)
		}
		types[e.Head().Type] = true
		if e.Head().CorrID == nil {
			t.Fatalf("no id in %s", line)
		}
		id := strings.Split(*e.Head().CorrID, "-") // run, interval, phase, first and last token
		if id[0] != filepath.Base(dir) {
			t.Errorf("run %q of %s", id[0], filepath.Base(dir))
		}
		if len(id) > 2 {
			phases[id[2]] = true
		}
		if len(id) == 5 {
			n, err := strconv.ParseInt(id[4], 10, 64)
			if err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			last = max(last, n)
		}
	}
	if !phases["decode"] && !phases["prefill"] || last < 1 {
		t.Errorf("phases %v, last token %d", phases, last)
	}
	for _, want := range []resource.ProfType{resource.ProfTypeSyscall, resource.ProfTypeMem, resource.ProfTypeSched} {
		if !types[want] {
			t.Errorf("no event of type %s", want)
		}
	}
}

// hostWaits: there is a line for each graph with its tokens, and the lines add up to the total.
func hostWaits(t *testing.T, dir string, tokens int) {
	lines := jsonLines[resource.WaitLine](t, filepath.Join(dir, rundir.WaitsName))
	var sum resource.WaitFigures
	decoded := 0
	for i := range lines {
		l := &lines[i]
		if l.Kind == resource.WaitTotal {
			if i != len(lines)-1 || sum != l.WaitFigures || sum.Faults == 0 ||
				l.Lost["ring_full"]+l.Lost["threads_full"]+l.Lost["requests_full"] > 0 {
				t.Errorf("total %+v, the lines before add up to %+v, lost %v", l.WaitFigures, sum, l.Lost)
			}
			continue
		}
		sum.Add(&l.WaitFigures)
		if l.Kind == resource.WaitGraph && l.Phase == "decode" {
			decoded += l.TokenCount
		}
	}
	if decoded != tokens-1 { // the last one is not computed with
		t.Errorf("lines of %d generated tokens, want %d", decoded, tokens-1)
	}
	faults := jsonLines[resource.FaultLine](t, filepath.Join(dir, rundir.FaultsName))
	n := uint64(0)
	for i := range faults {
		if faults[i].Kind == "fault" {
			n++
		}
	}
	if n != sum.Faults {
		t.Errorf("%d faults with details, %d counted", n, sum.Faults)
	}
}

// TestHostScript: what a script starts is watched as the script is, from the beginning.
func TestHostScript(t *testing.T) {
	testenv.NeedBPF(t)
	program, backends := testenv.Greedy(t, false)
	script := filepath.Join(t.TempDir(), "script")
	text := "#!/bin/sh\n'" + program + "' '" + testenv.Model(t) + "' '" + backends + "' 20\nexit 7\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	o := execOf(t, []string{"--tap-host", "system,waits", "--tap-host-interval", "50ms"}, script)
	if o.status != 7 || len(o.dirs) != 1 {
		t.Fatalf("status %d, runs %v\n%s", o.status, o.dirs, o.stderr)
	}
	name, computed := filepath.Base(program), int64(0)
	name = name[:min(len(name), 15)] // the kernel's comm holds no more
	for _, l := range jsonLines[resource.SystemLine](t, filepath.Join(o.dirs[0], "system_metrics.jsonl")) {
		for _, p := range l.Processes {
			if p.Comm == name {
				computed += p.OnCPUNS
			}
		}
	}
	lines := jsonLines[resource.WaitLine](t, filepath.Join(o.dirs[0], rundir.WaitsName))
	if computed == 0 || lines[len(lines)-1].Faults < 100 {
		t.Errorf("%s computed for %d ns, with %d faults", name, computed, lines[len(lines)-1].Faults)
	}
}

// TestHostWithoutRights: a user without rights learns what each collector lacks; what /proc has is recorded, and the
// run is recorded.
func TestHostWithoutRights(t *testing.T) {
	testenv.NeedRoot(t)
	out := t.TempDir()
	if err := os.Chmod(out, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "run", "-p", "a", "-n", "4", "--tap-host", "all", "--tap-host-interval", "50ms")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Env = append(os.Environ(), "HOME=/", "XDG_CACHE_HOME="+out)
	for dir := out; dir != "/"; dir = filepath.Dir(dir) { // the test's own folders are its user's alone
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o005 != 0o005 {
			if err := os.Chmod(dir, info.Mode().Perm()|0o055); err != nil {
				t.Fatal(err)
			}
		}
	}
	o := finish(t, cmd, out)
	if o.status == 126 || strings.Contains(o.stderr, "permission denied") && len(o.dirs) == 0 {
		testenv.Beyond(t, "a checkout that another user may read", o.stderr)
	}
	o = o.good(t)
	for _, want := range []string{"--tap-host waits is left out: ", "setcap"} {
		if !strings.Contains(o.stderr, want) {
			t.Errorf("no %q in\n%s", want, o.stderr)
		}
	}
	if len(o.dirs) != 1 {
		t.Fatalf("runs %v", o.dirs)
	}
	lines := jsonLines[resource.SystemLine](t, filepath.Join(o.dirs[0], "system_metrics.jsonl"))
	if len(lines) == 0 || lines[0].Origin != resource.OriginProc {
		t.Errorf("lines of the system: %+v", lines)
	}
	llamatap(t, "verify", o.dirs[0]).good(t)
}

// TestHostIdleThreads: threads that wait for work in a queue are not delayed, and not among those that are.
func TestHostIdleThreads(t *testing.T) {
	testenv.NeedBPF(t)
	python := testenv.NeedPython(t)
	path := filepath.Join(t.TempDir(), "prof.jsonl")
	const program = `
import queue, threading, time
work = queue.Queue()
threads = [threading.Thread(target=work.get) for _ in range(8)]
for thread in threads: thread.start()
time.sleep(0.4)
for _ in threads: work.put(None)
for thread in threads: thread.join()
`
	llamatap(t, "host", "prof", "--only", "sched", "--interval", "60", "--output", path, "--", python,
		"-c", program).good(t)
	lines := jsonLines[resource.ProfSched](t, path)
	if len(lines) != 1 {
		t.Fatalf("%d lines", len(lines))
	}
	s := lines[0]
	if s.ThreadCount != 9 || s.IdleNS < 8*400e6/2 {
		t.Errorf("%d threads waited %d ns for work", s.ThreadCount, s.IdleNS)
	}
	for _, th := range s.Threads {
		if delayed := th.RunnableWaitNS + *th.BlockedDiskNS + *th.BlockedOtherNS; th.Role == resource.RoleParked ||
			th.OffCPUNS != delayed {
			t.Errorf("thread %d, %s: %d ns off the processor, delayed for %d", th.TID, th.Role, th.OffCPUNS, delayed)
		}
	}
}

// TestHostAlone: collectors by themselves watch a program, append to their file, and end as the program ended.
func TestHostAlone(t *testing.T) {
	testenv.NeedBPF(t)
	path := filepath.Join(t.TempDir(), "lines.jsonl")
	if err := os.WriteFile(path, []byte("{\"torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, collector := range []string{"block", "system", "prof"} {
		o := llamatap(t, "host", collector, "--interval", "0.1", "--output", path, "--", "sh",
			"-c", "dd if=/dev/zero of=/dev/null bs=1 count=2000 2>/dev/null; exit 7")
		if o.status != 7 {
			t.Errorf("%s: status %d\n%s", collector, o.status, o.stderr)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) < 4 || lines[0] != `{"torn` ||
		!slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, `"syscall":"read"`) }) {
		t.Errorf("%d lines:\n%s", len(lines), text)
	}
	for i, line := range lines[1:] {
		if !json.Valid([]byte(line)) {
			t.Errorf("line %d: %s", i+2, line)
		}
	}
	// Killed amid its work it leaves whole lines.
	killed := filepath.Join(t.TempDir(), "killed.jsonl")
	cmd := command(t, "host", "system", "--interval", "0.05", "--flush-every", "1", "--output", killed)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "three lines are written", func() bool {
		text, _ := os.ReadFile(killed)
		return bytes.Count(text, []byte{'\n'}) >= 3
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err == nil {
		t.Fatal("not killed", exit)
	}
	jsonLines[resource.SystemLine](t, killed)
}
