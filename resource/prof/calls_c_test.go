//go:build linux

package prof

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

var update = flag.Bool("update", false, "write testdata/calls.golden anew")

// runC compiles testdata/calls_test.c, which prints what calls.h does, and returns what it said, by its first word.
func runC(t *testing.T) map[string][]string {
	t.Helper()
	cc := testenv.NeedCC(t)
	ranC.Do(func() {
		program := filepath.Join(t.TempDir(), "calls")
		args := []string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined",
			"-fno-sanitize-recover", "-I.", "-o", program, "testdata/calls_test.c"}
		if saidC, errC = exec.Command(cc, args...).CombinedOutput(); errC == nil {
			saidC, errC = exec.Command(program).CombinedOutput()
		}
	})
	if errC != nil {
		t.Fatalf("%v\n%s", errC, saidC)
	}
	said := map[string][]string{}
	for text := range strings.Lines(string(saidC)) {
		what, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
		said[what] = append(said[what], rest)
	}
	return said
}

var (
	ranC  sync.Once
	saidC []byte
	errC  error
)

// checkGolden compares what the C said with what it said when somebody looked at it.
func checkGolden(t *testing.T, got []byte) {
	t.Helper()
	const golden = "testdata/calls.golden"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("calls.h does not do what %s says; look at the difference, and run go test -update where it is right",
			golden)
	}
}

// TestCallsOfC: the tables and bounds of this package are those of calls.h.
func TestCallsOfC(t *testing.T) {
	said := runC(t)
	checkGolden(t, saidC)
	if n := len(said["call"]); n != len(calls)-1 {
		t.Fatalf("%d calls in C, %d in Go", n, len(calls)-1)
	}
	for _, text := range said["call"] {
		var number, isWait, isSampled int
		var name string
		if _, err := fmt.Sscan(text, &number, &name, &isWait, &isSampled); err != nil {
			t.Fatal(err)
		}
		if c := calls[number]; c.name != name || c.waits != (isWait != 0) || c.sampled != (isSampled != 0) {
			t.Errorf("call %d is %q in C, %+v in Go", number, text, c)
		}
	}
	for _, text := range said["latency"] {
		var ns uint64
		var slot int
		if _, err := fmt.Sscan(text, &ns, &slot); err != nil {
			t.Fatal(err)
		}
		if low, high := latencyBounds(slot); ns < low || ns > high {
			t.Errorf("%d ns are in slot %d, from %d to %d", ns, slot, low, high)
		}
	}
	if want := fmt.Sprintf("%d %d %d", callSlots, latencySlots, errnoSlots); said["sizes"][0] != want {
		t.Errorf("sizes %s in C, %s in Go", said["sizes"][0], want)
	}
	for slot := range latencySlots - 1 {
		low, high := latencyBounds(slot)
		if next, _ := latencyBounds(slot + 1); next != high+1 || high-low >= max(64, low/4) {
			t.Errorf("slot %d from %d to %d, the next from %d", slot, low, high, next)
		}
	}
}

// TestNumbersOfCalls compares the numbers with those of golang.org/x/sys/unix, of both processors.
func TestNumbersOfCalls(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatal(err)
	}
	said := runC(t)
	for _, arch := range []string{"amd64", "arm64"} {
		known := numbers(t, filepath.Join(strings.TrimSpace(string(out)), "unix", "zsysnum_linux_"+arch+".go"))
		if len(said[arch]) < 35 {
			t.Fatalf("%d numbers of %s", len(said[arch]), arch)
		}
		seen := map[string]bool{}
		for _, text := range said[arch] {
			var number int
			var name string
			if _, err := fmt.Sscan(text, &number, &name); err != nil {
				t.Fatal(err)
			}
			if got := known[number]; got != name && !(name == "futex" && strings.HasPrefix(got, "futex_")) {
				t.Errorf("%s: number %d is %s, not %s", arch, number, got, name)
			}
			seen[name] = true
		}
		for _, name := range known { // what the processor has of the tracked ones is there
			for _, c := range calls[1:] {
				if c.name == name && !seen[name] {
					t.Errorf("%s has %s, which is not in its list", arch, name)
				}
			}
		}
	}
}

// numbers are the names of system calls by their numbers.
func numbers(t *testing.T, path string) map[int]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]string{}
	for _, m := range regexp.MustCompile(`\bSYS_(\w+)\s*=\s*(\d+)`).FindAllStringSubmatch(string(text), -1) {
		n, _ := strconv.Atoi(m[2])
		all[n] = strings.ToLower(m[1])
	}
	return all
}
