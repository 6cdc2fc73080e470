// Package testenv says what a test needs from the machine.
//
// A test asks with a Need function. Where the thing is missing the test is skipped, with the way to
// get it; under LLAMATAP_CI=1 a thing that CI is known to have is a failure instead. What no
// installation can bring (a GPU, a PMU) stays a skip everywhere.
package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Words of skip texts that even CI accepts, see [Excused].
const (
	beyondMachine = "this machine cannot have it"
	nightlyOnly   = "runs in make nightly"
	notWithRace   = "not under the race detector"
)

// A need is one thing that tests ask for.
type need struct {
	what   string // as it stands after "needs"
	remedy string // how to get it; empty when no installation brings it
}

// The needs that tests may have. Those with a remedy are there in CI.
var (
	llama  = need{"llama.cpp in third_party/llama.cpp/dist", "make llama"}
	binary = need{"bin/llamatap", "make build"}
	root   = need{"root", "run the tests as root"}
	python = need{"Python modules of scripts/oracles.txt", "scripts/setup test"}
	cc     = need{"a C compiler", "scripts/setup build"}
	cxx    = need{"a C++ compiler", "scripts/setup test"}
	strace = need{"strace", "scripts/setup test"}
	jq     = need{"jq", "scripts/setup test"}
	fio    = need{"fio", "scripts/setup test"}
	netns  = need{"ip (iproute2) that may make network namespaces", "as root: LLAMATAP_NIGHTLY=1 scripts/setup test"}
	slurm  = need{"Slurm (slurmctld, slurmd, munge)", "LLAMATAP_NIGHTLY=1 scripts/setup test"}
	qemu   = need{"qemu-system-x86_64", "LLAMATAP_NIGHTLY=1 scripts/setup test"}
	perf   = need{"perf", "scripts/setup test"}

	chromium   = need{"chromium", "scripts/setup test"}
	mkfs       = need{"programs that make file systems", "LLAMATAP_NIGHTLY=1 scripts/setup test"}
	systemd    = need{"systemd-analyze", "LLAMATAP_NIGHTLY=1 scripts/setup test"}
	prometheus = need{"prometheus and promtool", "LLAMATAP_NIGHTLY=1 scripts/setup test"}
	vulkan     = need{"Mesa's software driver for Vulkan", "LLAMATAP_NIGHTLY=1 scripts/setup test"}
	java       = need{"java (17 or newer)", "LLAMATAP_NIGHTLY=1 scripts/setup test"}
	bpf        = need{"rights for BPF programs", "run the tests as root, outside of a sandbox that forbids bpf(2)"}
)

// CI reports whether this run is one where every need with a remedy must be met.
func CI() bool { return os.Getenv("LLAMATAP_CI") == "1" }

// EmulatedVariable is set to 1 in a machine whose processor is emulated. Time passes there as elsewhere, and
// everything takes tens of times longer.
const EmulatedVariable = "LLAMATAP_EMULATED"

// Emulated reports whether the processor is emulated: what the clock says is then no measure.
func Emulated() bool { return os.Getenv(EmulatedVariable) == "1" }

// miss ends the test: as a failure where CI should have had n, else as a skip.
func (n need) miss(t testing.TB, why string) {
	t.Helper()
	switch {
	case n.remedy == "":
		t.Skipf("needs %s: %s; %s", n.what, why, beyondMachine)
	case CI():
		t.Fatalf("needs %s: %s; CI must have it: %s", n.what, why, n.remedy)
	default:
		t.Skipf("needs %s: %s; get it: %s", n.what, why, n.remedy)
	}
}

// find returns the path of a program.
func (n need) find(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		n.miss(t, err.Error())
	}
	return path
}

// Beyond skips a test that needs what no installation brings to this machine, such as a GPU.
func Beyond(t testing.TB, what, why string) {
	t.Helper()
	need{what: what}.miss(t, why)
}

// Excused reports whether a skip with this text is accepted in CI.
func Excused(reason string) bool {
	for _, word := range []string{beyondMachine, nightlyOnly, notWithRace} {
		if strings.Contains(reason, word) {
			return true
		}
	}
	return false
}

// Nightly reports whether make nightly runs the tests.
func Nightly() bool { return os.Getenv("LLAMATAP_NIGHTLY") == "1" }

// ByDay is n of all, evenly spread and with the first, in make test; make nightly goes through all. It is for cases
// that prove one thing in many ways.
func ByDay[T any](all []T, n int) []T {
	if Nightly() || n >= len(all) {
		return all
	}
	some := make([]T, n)
	for i := range some {
		some[i] = all[i*len(all)/n]
	}
	return some
}

// Slow skips the test unless make nightly runs it.
func Slow(t testing.TB) {
	t.Helper()
	if !Nightly() {
		t.Skip("slow: " + nightlyOnly)
	}
}

// NotWithRace skips a test of what the race detector changes, such as allocation counts.
func NotWithRace(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("measures what the race detector changes: " + notWithRace)
	}
}

// NotShort skips a test that takes seconds where -short asks for those that do not, as make check does.
func NotShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds: runs without -short, in make test")
	}
}

// Brief is the first n of all with -short, which the race detector runs with. It is for what a test goes through
// whose goroutines are the same each time: what they do to each other shows in a few, and everything else is tested
// without the detector.
func Brief[T any](all []T, n int) []T {
	if testing.Short() {
		return all[:min(n, len(all))]
	}
	return all
}

// Once skips a test with -short that starts no goroutines but those that other tests start, which are named.
func Once(t testing.TB, others ...string) {
	t.Helper()
	switch {
	case !testing.Short():
	case len(others) == 0:
		t.Skip("it starts no goroutines: " + notWithRace)
	default:
		t.Skipf("it starts no other goroutines than %s: %s", strings.Join(others, " and "), notWithRace)
	}
}

// NeedRoot asks for root.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		root.miss(t, "this process is not root")
	}
}

// Model returns the path of the default model's file.
func Model(t testing.TB) string {
	t.Helper()
	return filepath.Join(Root(t), "models", "gopher-6m-q8_0.gguf")
}

// Root returns the root of the repository.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the working folder")
		}
		dir = filepath.Dir(dir)
	}
}
