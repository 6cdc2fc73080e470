package perf

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
)

// TestWithoutPMU checks the error on a machine without a PMU that samples memory.
func TestWithoutPMU(t *testing.T) {
	if _, err := findPMU(os.DirFS(devices), PMUConfig{}); !errors.Is(err, ErrNoPMU) {
		testenv.Beyond(t, "a machine without a PMU that samples memory", "this one has it, and runs TestHardware")
	}
	if s, err := OpenSampler(SamplerOptions{}); !errors.Is(err, ErrNoPMU) {
		t.Fatalf("%+v: %v", s, err)
	}
}

// TestHardware samples loads and stores of known memory. No machine of the project runs it.
func TestHardware(t *testing.T) {
	p, err := findPMU(os.DirFS(devices), PMUConfig{})
	if err != nil || p.Aux {
		testenv.Beyond(t, "a PMU that samples memory", "there is none in "+devices)
	}
	s, err := OpenSampler(SamplerOptions{PMUConfig: PMUConfig{Period: 1000}})
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

// softwarePMU returns a PMU whose events are page faults, which every machine has.
func softwarePMU(c PMUConfig) (*PMU, error) {
	a := Attr{Type: typeSoftware, Config: swPageFaults, Period: max(c.Period, 1),
		SampleType: sampleIP | sampleAddr | sampleCPU}
	if c.PhysAddr {
		a.SampleType |= samplePhysAddr
	}
	return &PMU{Family: "software", Collector: memtrace.CollectorFault,
		Events: []eventSpec{{Name: "page-faults", Attr: a}}}, nil
}

// TestStartHeld samples a command from its first instruction: the number of samples is the kernel's fault count.
func TestStartHeld(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "x=1; while [ $x -lt 2000 ]; do x=$((x+1)); done; exit 3")
	var s *Sampler
	err := StartHeld(cmd, func(pid int) (err error) {
		s, err = openSampler(SamplerOptions{PID: pid, Pages: 128}, softwarePMU)
		return err
	})
	if err != nil {
		testenv.NeedRoot(t)
		t.Fatal(err)
	}
	defer s.Close()
	sampled := 0
	for ended := false; !ended; {
		_, err := s.Wait(10 * time.Second)
		if ended = errors.Is(err, ErrGone); err != nil && !ended {
			t.Fatal(err)
		}
		if _, err := s.Drain(func(a memtrace.Access) error {
			sampled++
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
	// Faults before and in execve are counted, but not sampled.
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	counted := usage.Minflt + usage.Majflt
	if int64(sampled) > counted || int64(sampled) < counted-150 || sampled < 50 {
		t.Errorf("%d faults were sampled, the kernel counts %d; %+v", sampled, counted, s.Stats())
	}
}

// TestStartHeldFails checks that a command that cannot be sampled is killed before it runs.
func TestStartHeldFails(t *testing.T) {
	marker := t.TempDir() + "/ran"
	cmd := exec.Command("/bin/sh", "-c", "touch "+marker)
	failed := errors.New("cannot be sampled")
	if err := StartHeld(cmd, func(int) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	if cmd.ProcessState == nil {
		t.Error("it was not waited for")
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("it ran")
	}
	if err := StartHeld(exec.Command("/no/such/program"), func(int) error { return nil }); err == nil {
		t.Error("a missing program was started")
	}
}

// TestFewerPermissions checks that a user without permission for the kernel's part samples without it, with a note.
func TestFewerPermissions(t *testing.T) {
	testenv.NeedRoot(t)
	if level, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid"); err != nil ||
		strings.TrimSpace(string(level)) != "2" {
		testenv.Beyond(t, "kernel.perf_event_paranoid of 2", "it is "+string(level))
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestAsOtherUser$", "-test.v")
	cmd.Env = append(os.Environ(), "PERFEVENT_TEST_USER=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestAsOtherUser") {
		t.Errorf("%s: %v", out, err)
	}
}

// TestAsOtherUser is the part of TestFewerPermissions that runs as another user.
func TestAsOtherUser(t *testing.T) {
	if os.Getenv("PERFEVENT_TEST_USER") == "" {
		return
	}
	s, err := openSampler(SamplerOptions{PMUConfig: PMUConfig{PhysAddr: true}, Pages: 16}, softwarePMU)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := s.Notes; len(n) != 2 || !strings.HasPrefix(n[0], "without physical addresses: ") ||
		!strings.HasPrefix(n[1], "without what the kernel does") ||
		!strings.Contains(n[1], "sysctl kernel.perf_event_paranoid=1") {
		t.Errorf("%q", n)
	}
}
