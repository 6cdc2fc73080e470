package perfmem

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/perfevent"
)

// TestFallsBack: without a PMU page faults are sampled, if that was asked for, and notes say why.
func TestFallsBack(t *testing.T) {
	if _, err := Find(os.DirFS(devices), Wish{}); !errors.Is(err, ErrNoPMU) {
		testenv.Beyond(t, "a machine without a PMU that samples memory", "this one has it, and runs TestHardware")
	}
	if s, err := Open(Options{}); !errors.Is(err, ErrNoPMU) {
		t.Fatalf("%+v: %v", s, err)
	}
	s, err := Open(Options{Sources: []Source{Hardware, Faults}})
	if err != nil {
		testenv.NeedRoot(t)
		t.Fatal(err)
	}
	defer s.Close()
	if s.Source() != Faults || len(s.Notes()) == 0 || !strings.Contains(s.Notes()[0], "perf: no PMU") {
		t.Errorf("%s: %q", s.Source(), s.Notes())
	}
	if _, err := Open(Options{Sources: []Source{Hardware, "prayer"}}); !errors.Is(err, ErrNoPMU) || !strings.Contains(err.Error(), "prayer") || strings.Contains(err.Error(), "\n") {
		t.Errorf("no source: %v", err)
	}
}

// TestHardware samples loads and stores of known memory. No machine of the project runs it.
func TestHardware(t *testing.T) {
	p, err := Find(os.DirFS(devices), Wish{})
	if err != nil || p.Aux {
		testenv.Beyond(t, "a PMU that samples memory", "there is none in "+devices)
	}
	s, err := Open(Options{Wish: Wish{Period: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mem := make([]uint64, 1<<22)
	ops := map[memtrace.AccessOp]int{}
	for round := 0; round < 1000 && (ops[memtrace.OpRead] < 100 || ops[memtrace.OpWrite] < 100); round++ {
		for i := range mem {
			mem[i] += mem[(i*8191)%len(mem)]
		}
		if _, err := s.Drain(func(a memtrace.Access) error {
			ops[a.Op]++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if ops[memtrace.OpRead] < 100 || ops[memtrace.OpWrite] < 100 {
		t.Errorf("%v, %+v", ops, s.Stats())
	}
}

// TestStart: a command is sampled from its first instruction on; as many faults are told as the kernel counts in
// the end.
func TestStart(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "x=1; while [ $x -lt 2000 ]; do x=$((x+1)); done; exit 3")
	s, err := Start(cmd, Options{Sources: []Source{Faults}, Pages: 128})
	if err != nil {
		testenv.NeedRoot(t)
		t.Fatal(err)
	}
	defer s.Close()
	told := 0
	for ended := false; !ended; {
		_, err := s.Wait(10 * time.Second)
		if ended = errors.Is(err, perfevent.ErrGone); err != nil && !ended {
			t.Fatal(err)
		}
		if _, err := s.Drain(func(a memtrace.Access) error {
			told++
			if int(a.PID) != cmd.Process.Pid || a.Weight != 1 || a.Collector != memtrace.CollectorFault {
				t.Errorf("%+v", a)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("its status: %v", err)
	}
	// What it counts before its execve, and in it, nobody told.
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	counted := usage.Minflt + usage.Majflt
	if int64(told) > counted || int64(told) < counted-150 || told < 50 {
		t.Errorf("%d faults were told, the kernel counts %d; %+v", told, counted, s.Stats())
	}
}

// TestStartFails: a command that cannot be sampled does not run on.
func TestStartFails(t *testing.T) {
	marker := t.TempDir() + "/ran"
	cmd := exec.Command("/bin/sh", "-c", "touch "+marker)
	if s, err := Start(cmd, Options{Sources: []Source{"prayer"}}); err == nil {
		t.Errorf("%+v", s)
	}
	if cmd.ProcessState == nil {
		t.Error("it was not waited for")
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("it ran")
	}
	if s, err := Start(exec.Command("/no/such/program"), Options{}); err == nil {
		t.Errorf("%+v", s)
	}
}

// TestWithLessRights: who may not see the kernel's part samples without it, and is told.
func TestWithLessRights(t *testing.T) {
	testenv.NeedRoot(t)
	if level, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid"); err != nil || strings.TrimSpace(string(level)) != "2" {
		testenv.Beyond(t, "kernel.perf_event_paranoid of 2", "it is "+string(level))
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestLess$", "-test.v")
	cmd.Env = append(os.Environ(), "PERFMEM_TEST_USER=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestLess") {
		t.Errorf("%s: %v", out, err)
	}
}

// TestLess runs in a process of a user without rights.
func TestLess(t *testing.T) {
	if os.Getenv("PERFMEM_TEST_USER") == "" {
		return
	}
	s, err := Open(Options{Sources: []Source{Hardware, Faults}, Wish: Wish{PhysAddr: true}, Pages: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := s.Notes(); len(n) == 0 || !strings.Contains(n[len(n)-1], "without what the kernel does") || !strings.Contains(n[len(n)-1], "sysctl kernel.perf_event_paranoid=1") {
		t.Errorf("%q", n)
	}
}
