//go:build linux

package prof_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/prof"
)

func TestPolledReads(t *testing.T) {
	w := start(t, "many", "5000")
	later, err := prof.Open(prof.Options{Target: bpf.Target{Later: true}, Poll: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := later.AddPID(w.pid()); err != nil {
		t.Fatal(err)
	}
	c, err := prof.Open(prof.Options{Target: of(w), Poll: true})
	if err != nil {
		t.Fatal(err)
	}
	w.work()
	for _, one := range []*prof.Collector{c, later} {
		got := snapshot(t, one)
		read := got.calls()["read any"]
		// Ten thousand of a byte each, and those by which the C library opens what it needs.
		if read == nil || read.Count < 10000 || read.Count > 10050 || read.Bytes < 10000 || read.Callers != 1 ||
			read.Origin != resource.OriginProc {
			t.Fatalf("polled %+v", read)
		}
		if first := read.TopCallers[0]; first.PID != w.pid() || first.Comm != "workload" || first.Count != read.Count ||
			first.Bytes != read.Bytes || read.LatAvgUS != nil {
			t.Errorf("polled %+v", read)
		}
		if again := snapshot(t, one); len(again) > 0 {
			t.Errorf("polled again: %v", again.calls())
		}
	}
	w.end()
	if got := snapshot(t, c); len(got) > 0 {
		t.Errorf("polled of nobody: %v", got)
	}
	if _, err := prof.Open(prof.Options{Target: bpf.Target{Cgroup: "/x"}, Poll: true}); err == nil ||
		!strings.Contains(err.Error(), "use --pid") {
		t.Errorf("a control group is taken: %v", err)
	}
}

// childVariable makes the test binary run withoutRights alone.
const childVariable = "LLAMATAP_TEST_PROF_WITHOUT_RIGHTS"

// childSaid is what it prints.
type childSaid struct {
	Origin  string
	Missing []string
	Reads   uint64
	Refused string
}

// withoutRights counts its own reads without the rights for BPF programs, and ends the process.
func withoutRights() {
	var said childSaid
	c, err := prof.Open(prof.Options{Target: bpf.Target{PIDs: []int{os.Getpid()}}})
	if err == nil {
		for range 100 {
			_, _ = os.ReadFile("/proc/self/stat")
		}
		var got any
		if got, err = c.Snapshot(time.Now()); err == nil {
			for name, e := range events(bpf.LineOf(got).([]resource.ProfEvent)).calls() {
				if name == "read any" {
					said.Reads = e.Count
				}
			}
		}
		said.Origin, said.Missing = c.Origin(), c.Missing()
	}
	_, refused := prof.Open(prof.Options{Target: bpf.Target{Cgroup: "/sys/fs/cgroup/memory"}})
	said.Refused = fmt.Sprint(refused)
	if err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(said)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func TestWithoutRightsReadsArePolled(t *testing.T) {
	testenv.NeedRoot(t) // else there is no right to give up
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	var out []byte
	if err := testenv.OnThread(func() (err error) {
		for _, right := range []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_PERFMON, unix.CAP_BPF} {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, right, 0, 0, 0); err != nil {
				return err
			}
		}
		out, err = cmd.CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var said childSaid
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if said.Origin != resource.OriginProc || said.Reads < 100 {
		t.Errorf("said %+v", said)
	}
	if !slices.ContainsFunc(said.Missing, func(s string) bool {
		return strings.Contains(s, "only the numbers and bytes") && strings.Contains(s, "setcap")
	}) {
		t.Errorf("missing %q names no remedy", said.Missing)
	}
	if !strings.Contains(said.Refused, "setcap") {
		t.Errorf("refused a control group with %q", said.Refused)
	}
}
