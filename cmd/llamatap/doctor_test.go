//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/runner/doctor"
)

var updateDoctor = flag.Bool("update", false, "write golden files anew")

// examine runs llamatap doctor --json and returns its facts, its exit status and what it wrote.
func examine(t *testing.T, cmd *exec.Cmd) ([]doctor.Fact, int, []byte) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) || stderr.Len() > 0 {
		t.Fatalf("%v\n%s%s", err, out, stderr.String())
	}
	facts := []doctor.Fact{}
	if err := json.Unmarshal(out, &facts); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	states := []doctor.Status{doctor.OK, doctor.Missing, doctor.Limited, doctor.Unknown}
	for _, f := range facts {
		lacks := f.Status == doctor.Missing || f.Status == doctor.Limited
		if f.Value == "" || !slices.Contains(states, f.Status) || lacks != (f.Costs != "" && f.Remedy != "") {
			t.Errorf("%+v", f)
		}
	}
	return facts, cmd.ProcessState.ExitCode(), out
}

// statuses maps "topic name" to the status.
func statuses(facts []doctor.Fact) map[string]doctor.Status {
	all := map[string]doctor.Status{}
	for _, f := range facts {
		all[f.Topic+" "+f.Name] = f.Status
	}
	return all
}

// TestDoctor examines this machine, on which recording is known to work, and compares the form of the answer with a
// golden file.
func TestDoctor(t *testing.T) {
	out := t.TempDir()
	facts, code, text := examine(t, exec.Command(testenv.NeedBinary(t), "doctor", "--json", "--quick", "--tap-out",
		out))
	all := statuses(facts)
	if code != 0 {
		t.Errorf("exit status %d: %v", code, facts)
	}
	for _, name := range doctor.Essential {
		if all[name[0]+" "+name[1]] != "ok" {
			t.Errorf("%v is %q", name, all[name[0]+" "+name[1]])
		}
	}
	got := regexp.MustCompile(`("(status|value|costs|remedy)": )".*"`).ReplaceAll(text, []byte(`$1"…"`))
	golden := filepath.Join("testdata", "doctor.golden.json")
	if *updateDoctor {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("keys, topics or names have changed (go test ./cmd/llamatap -run TestDoctor -update):\n%s", got)
	}
}

// TestDoctorAsRoot wants what CI has: a kernel that explains itself.
func TestDoctorAsRoot(t *testing.T) {
	testenv.NeedRoot(t)
	facts, _, _ := examine(t, exec.Command(testenv.NeedBinary(t), "doctor", "--json", "--tap-out", t.TempDir()))
	all := statuses(facts)
	for _, name := range seenByRoot {
		if all[name] != "ok" {
			t.Errorf("%s is %q", name, all[name])
		}
	}
}

// seenByRoot are facts that hold on every machine of CI, for root.
var seenByRoot = []string{"kernel btf", "kernel psi", "kernel perf_event_paranoid", "rights CAP_BPF",
	"rights CAP_PERFMON", "sensors bpf program",
	"sensors bpf ring buffer", "memory samples faults", "sensors low priority", "speed buffered write", "speed memory"}

// TestDoctorWithLittle runs a build without llama.cpp in a folder that its user may not write to, and in a root
// without /proc and /sys: it says what is missing, and of what it cannot see that it is unknown.
func TestDoctorWithLittle(t *testing.T) {
	testenv.Slow(t) // it links a program
	testenv.NeedRoot(t)
	dir, err := os.MkdirTemp("", "doctor") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "llamatap"), ".")
	// as scripts/test compiles without llama.cpp
	build.Env = append(os.Environ(), "CGO_ENABLED=0",
		"GOFLAGS="+strings.Replace(regexp.MustCompile(`'-ldflags=[^']*'`).
			ReplaceAllString(os.Getenv("GOFLAGS"), ""), "=llama,", "=", 1))
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for name, c := range map[string]struct {
		path, dir string
		as        syscall.SysProcAttr
		want      map[string]doctor.Status
	}{
		"nobody": {filepath.Join(dir, "llamatap"), dir,
			syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, map[string]doctor.Status{
				"llama.cpp library": doctor.Missing, "tap object": doctor.Missing, "output folder": doctor.Missing,
				"rights CAP_BPF":     doctor.Missing,
				"speed direct write": doctor.Unknown}},
		"empty root": {"/llamatap", "/", syscall.SysProcAttr{Chroot: dir}, map[string]doctor.Status{
			"llama.cpp library": doctor.Missing, "tap object": doctor.Unknown, "output folder": doctor.OK,
			"rights CAP_BPF": doctor.Unknown,
			"kernel btf":     doctor.Unknown, "kernel psi": doctor.Unknown,
			"kernel perf_event_paranoid": doctor.Unknown,
			"counters pmu":               doctor.Unknown,
			"sensors bpf program":        doctor.OK, "memory samples perf": doctor.Missing,
			"speed memory": doctor.Unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(c.path, "doctor", "--json")
			cmd.Dir, cmd.Env, cmd.SysProcAttr = c.dir, []string{"PATH=/usr/bin:/bin"}, &c.as
			facts, code, _ := examine(t, cmd)
			if code != 1 {
				t.Errorf("exit status %d", code)
			}
			all := statuses(facts)
			for fact, want := range c.want {
				if all[fact] != want {
					t.Errorf("%s is %q, want %q", fact, all[fact], want)
				}
			}
		})
	}
}

// mounts counts the mounts of a copy of mountinfo by root, mount point and file system. Ids and options are left
// out: the kernel may change those of a mounted file system at any time. So are mounts on folders of tests that run
// at the same time: whoever removes such a folder removes its mounts from every mount namespace.
func mounts(t *testing.T, file string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil || len(text) == 0 {
		t.Fatalf("%d bytes of mountinfo (%v)", len(text), err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		mount, filesystem, _ := strings.Cut(line, " - ")
		words, kind := strings.Fields(mount), strings.Fields(filesystem)
		if len(words) < 5 || len(kind) == 0 {
			t.Fatalf("a line of mountinfo: %q", line)
		}
		if strings.HasPrefix(words[4], os.TempDir()) {
			continue
		}
		counts[words[3]+" "+words[4]+" "+kind[0]]++
	}
	return counts
}

// TestDoctorMountsNothing examines a machine without tracefs, with the collectors for kernels with BTF and with
// those that need tracepoints: the mounts stay as they are, and no line calls a collector ok that a missing tracefs
// stops.
func TestDoctorMountsNothing(t *testing.T) {
	testenv.NeedBPF(t)
	const script = `
while umount /sys/kernel/tracing 2>/dev/null || umount /sys/kernel/debug/tracing 2>/dev/null; do :; done
cat /proc/self/mountinfo >"$1/before"
"$0" doctor --json --quick --tap-out "$1"
status=$?
cat /proc/self/mountinfo >"$1/after"
exit $status`
	for _, programs := range []string{"", "plain"} {
		dir := t.TempDir()
		cmd := exec.Command("sh", "-c", script, testenv.NeedBinary(t), dir)
		cmd.Env = append(os.Environ(), "LLAMATAP_BPF="+programs)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		facts, _, _ := examine(t, cmd)
		before, after := mounts(t, filepath.Join(dir, "before")), mounts(t, filepath.Join(dir, "after"))
		for m, n := range before {
			if after[m] != n {
				t.Errorf("LLAMATAP_BPF=%s: doctor leaves %d mounts %q of %d", programs, after[m], m, n)
			}
		}
		for m, n := range after {
			if before[m] == 0 {
				t.Errorf("LLAMATAP_BPF=%s: doctor mounted %q %d times", programs, m, n)
			}
		}
		all := statuses(facts)
		stopped := programs == "plain" || all["kernel btf"] != "ok"
		if stopped && all["host collectors block"] == "ok" || !stopped && all["host collectors block"] != "ok" {
			t.Errorf("LLAMATAP_BPF=%s without tracefs: collector block is %q", programs, all["host collectors block"])
		}
		if all["kernel tracefs"] == "ok" || !stopped && all["kernel tracefs"] != "limited" {
			t.Errorf("tracefs that is not mounted is %q", all["kernel tracefs"])
		}
	}
}

// TestDoctorAsNobody runs the very build as nobody, where nobody may read it: llama.cpp is there, the kernel's
// events are not.
func TestDoctorAsNobody(t *testing.T) {
	testenv.NeedRoot(t)
	cmd := exec.Command(testenv.NeedBinary(t), "doctor", "--json", "--quick", "--tap-out", os.TempDir())
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	probe := exec.Command(cmd.Path, "help")
	probe.Dir, probe.SysProcAttr = cmd.Dir, cmd.SysProcAttr
	if err := probe.Run(); err != nil {
		testenv.Beyond(t, "a checkout that every user may read", err.Error())
	}
	facts, code, _ := examine(t, cmd)
	all := statuses(facts)
	if code != 0 || all["llama.cpp devices"] != "ok" || all["tap shared memory"] != "ok" ||
		all["rights CAP_BPF"] != "missing" {
		t.Errorf("exit status %d: %v", code, facts)
	}
}

// TestDoctorLimits lowers the size that files may have below the tap's default memory, and below any.
func TestDoctorLimits(t *testing.T) {
	for _, c := range []struct {
		blocks string
		status doctor.Status
		code   int
	}{{"100", doctor.Missing, 1}, {"20000", doctor.Limited, 0}} {
		cmd := exec.Command("sh", "-c", "ulimit -f "+c.blocks+` && exec "$0" doctor --json --quick --tap-out "$1"`,
			testenv.NeedBinary(t), t.TempDir())
		facts, code, _ := examine(t, cmd)
		if got := statuses(facts)["tap shared memory"]; got != c.status || code != c.code {
			t.Errorf("ulimit -f %s: %s, exit status %d", c.blocks, got, code)
		}
	}
}

// TestDoctorColours wants colours on a terminal whose user does not forbid them.
func TestDoctorColours(t *testing.T) {
	for _, c := range []struct {
		variable string
		colours  bool
	}{{"NO_COLOR=", true}, {"NO_COLOR=1", false}, {"TERM=dumb", false}} {
		cmd := exec.Command(testenv.NeedBinary(t), "doctor", "--quick", "--tap-out", t.TempDir())
		cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=", c.variable)
		terminal := testenv.OnTerminal(t, cmd)
		if status := terminal.Wait(); status.ExitStatus() != 0 {
			t.Errorf("%s: status %d", c.variable, status.ExitStatus())
		}
		if screen := terminal.Screen(); strings.Contains(screen, "\x1b[32mok") != c.colours ||
			!strings.Contains(screen, "can record here (") {
			t.Errorf("%s:\n%q", c.variable, screen)
		}
	}
}

// TestDoctorUsage wants help on stdout, and one line for wrong use.
func TestDoctorUsage(t *testing.T) {
	help, err := self("doctor", "--help").Output()
	if err != nil || !strings.Contains(string(help), "entry points graphs") ||
		!strings.Contains(string(help), "-tap-out DIR") {
		t.Errorf("%v\n%s", err, help)
	}
	for _, args := range [][]string{{"doctor", "--nonsense"}, {"doctor", "more"}} {
		cmd := self(args...)
		said, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 2 || bytes.Count(said, []byte("\n")) != 1 {
			t.Errorf("%q: %v\n%s", args, err, said)
		}
	}
	plain, _ := self("doctor", "--quick").Output() // a pipe is no terminal; the test binary has no tap beside it
	if bytes.Contains(plain, []byte("\x1b")) || !slices.Contains(strings.Fields(string(plain)), "missing") ||
		!regexp.MustCompile(`cannot record here without: .*tap object`).Match(plain) {
		t.Errorf("%s", plain)
	}
}
