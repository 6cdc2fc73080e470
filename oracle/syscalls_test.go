//go:build linux

package oracle

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// syscalls are the system calls that the process of llama-completion made, by name. Shared futexes, which only the
// tap uses, count apart from private ones.
type syscalls map[string]int

var (
	callLine = regexp.MustCompile(`^([a-z_0-9]+)\(`)
	cloned   = regexp.MustCompile(`^clone3?\(.*= ([0-9]+)$`)
	// llama.cpp's programs are started by their own loader
	loaded    = regexp.MustCompile(`(?m)^execve\("[^"]*/ld[^/"]*", .*= 0$`)
	populates = regexp.MustCompile(`(?m)^madvise\(.*(MADV_POPULATE_WRITE|0x17)`)
	futexLine = regexp.MustCompile(`^futex\(.*FUTEX_(WAIT|WAKE),`)
	// The tap waits before the model computes, until the plan is read, and at the end, until the log is written. Every
	// 100 ms it looks whether it still has to: on a busy machine that is often.
	looks = regexp.MustCompile(`^futex\(.*FUTEX_WAIT, .*tv_nsec=100000000}\) = -1 ETIMEDOUT|` +
		`^poll\(\[{fd=1, events=POLLOUT}`)
	wakings = regexp.MustCompile(`^futex\(.*FUTEX_WAKE, `)
)

// traced runs a command under strace and counts for the process that became llama-completion, with all of its threads.
// Looks during a wait are left out, each with what woke the other side; a model that computes may not wait.
func traced(t *testing.T, args ...string) syscalls {
	t.Helper()
	dir := t.TempDir()
	prefix := filepath.Join(dir, "trace")
	all := append([]string{"-ff", "-o", prefix, "-e", "signal=none"}, args...)
	got := finish(t, exec.Command(testenv.NeedStrace(t), all...), t.TempDir()).good(t)
	for _, dir := range got.dirs {
		m, err := rundir.ReadMetadata(dir)
		if err != nil || m.Account.Time.WaitNS != 0 {
			t.Errorf("the model waited for %d ns while it computed, %v", m.Account.Time.WaitNS, err)
		}
	}
	counts := syscalls{}
	var count func(thread string)
	count = func(thread string) {
		log, err := os.ReadFile(prefix + "." + thread)
		if err != nil {
			t.Fatal(err)
		}
		before := ""
		for line := range strings.Lines(string(log)) {
			line = strings.TrimSpace(line)
			waker := wakings.MatchString(before)
			if before = line; looks.MatchString(line) {
				if waker {
					counts["futex shared"]--
				}
				continue
			}
			if m := callLine.FindStringSubmatch(line); m != nil {
				name := m[1]
				if futexLine.MatchString(line) {
					name = "futex shared"
				}
				counts[name]++
			}
			if m := cloned.FindStringSubmatch(line); m != nil && strings.Contains(line, "CLONE_THREAD") &&
				!helper(t, prefix+"."+m[1]) {
				count(m[1])
			}
		}
	}
	count(modelThread(t, dir))
	return counts
}

// helper reports whether a thread is one of the tap's own: one makes the pages of the pool ready once, ahead of
// their first use and at the lowest priority, and calls the kernel as often as the pool has pages; the other waits
// at the end until llama.cpp's logger sleeps.
func helper(t *testing.T, file string) bool {
	t.Helper()
	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return populates.Match(log) || strings.Contains(string(log), "setpriority(PRIO_PROCESS, ") ||
		strings.Contains(string(log), `"/proc/self/task"`)
}

// modelThread finds the trace of the process that became llama-completion.
func modelThread(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "trace.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		log, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if loaded.Match(log) {
			return strings.TrimPrefix(filepath.Ext(file), ".")
		}
	}
	t.Fatalf("no trace of llama-completion among %d", len(files))
	return ""
}

// TestNoSystemCalls: the tap makes no system call per node or token; with room in its pool not even a futex.
func TestNoSystemCalls(t *testing.T) {
	testenv.NeedPrograms(t, "llama-completion", "llama-cli")
	const n = 60
	count := func(tokens int, tapped bool) syscalls {
		args := []string{"-m", testenv.Model(t), "-p", "func main() {", "-n", strconv.Itoa(tokens), "--temp", "0",
			"-t", "1", "-no-cnv", "--ignore-eos", "-c", "512"}
		if !tapped {
			return traced(t, append([]string{testenv.NeedTool(t, "llama-completion").Path}, args...)...)
		}
		// One layer of 120 tokens fits into the pool that is ready from the start: on a busy machine the collector
		// may not get on.
		tap := slices.Concat([]string{testenv.NeedBinary(t), "exec"}, everything, []string{"--tap-layers", "0",
			"--tap-memory", "256M", "--", "llama-completion"})
		return traced(t, append(tap, args...)...)
	}
	one, two := count(n, true), count(2*n, true)
	plain, plainTwo := count(n, false), count(2*n, false)
	for _, name := range slices.Sorted(maps.Keys(two)) {
		more, without := two[name]-one[name], plainTwo[name]-plain[name]
		// llama-completion's logger, a thread of its own, writes and sleeps as it comes.
		if name != "futex" && name != "write" && more-without > n/4 {
			t.Errorf("%d tokens more take %d more calls of %s with the tap, %d without", n, more, name, without)
		}
	}
	if shared := two["futex shared"]; shared > n/4 {
		t.Errorf("%d calls of futex by the tap, though its pool is never full", shared)
	}
	t.Log(fmt.Sprint("with the tap: ", two, ", without: ", plainTwo))
}
