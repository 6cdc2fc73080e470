//go:build linux

package bpf_test

import (
	"bytes"
	"embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource/bpf"
)

//go:embed testdata/switches_*.o
var switches embed.FS

// openSwitches loads the program that counts switches. Its hook no_such_hook is in no kernel and optional.
func openSwitches(o bpf.Options) (*bpf.Set, error) {
	object, err := switches.ReadFile("testdata/switches_" + bpf.Processor + ".o")
	if err != nil {
		return nil, err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, err
	}
	o.Optional = append(o.Optional, "on_nothing")
	return bpf.Load(spec, o)
}

// switching starts a process that is switched away from some hundred times whenever poke is called, until the test
// ends.
func switching(t *testing.T, name string) (pid int, poke func()) {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	if err := os.Symlink("/bin/cat", program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	byte1 := make([]byte, 1)
	poke = func() {
		for range 300 { // cat waits for the next byte after each
			if _, err := in.Write([]byte{'x'}); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Read(byte1); err != nil {
				t.Fatal(err)
			}
		}
	}
	poke() // its name is there once it runs
	return cmd.Process.Pid, poke
}

// seen are the switches that were counted, by thread.
func seen(t *testing.T, s *bpf.Set) map[uint32]uint64 {
	t.Helper()
	all := map[uint32]uint64{}
	if err := bpf.Each(s.Map("threads"), func(tid uint32, n uint64) { all[tid] = n }); err != nil {
		t.Fatal(err)
	}
	return all
}

// joined puts a process into a new control group of a hierarchy and returns its folder, two levels below a new one.
func joined(t *testing.T, hierarchy string, pid int) string {
	t.Helper()
	top := filepath.Join(hierarchy, "llamatap-"+filepath.Base(t.TempDir())+t.Name()[strings.LastIndex(t.Name(),
		"/")+1:])
	group := filepath.Join(top, "inner")
	if err := os.MkdirAll(group, 0o755); err != nil {
		testenv.Beyond(t, "control groups that can be made in "+hierarchy, err.Error())
	}
	leave := func() {
		_ = os.WriteFile(filepath.Join(hierarchy, "cgroup.procs"), []byte("0"), 0) // this process never joined
		os.Remove(group)
		os.Remove(top)
	}
	t.Cleanup(leave)
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(itoa(pid)), 0); err != nil {
		testenv.Beyond(t, "control groups that can be joined in "+hierarchy, err.Error())
	}
	return top
}

func itoa(n int) string {
	var b [20]byte
	i := len(b)
	for ; n > 0; n /= 10 {
		i--
		b[i] = byte('0' + n%10)
	}
	return string(b[i:])
}

func TestTargets(t *testing.T) {
	testenv.NeedBPF(t)
	for _, plain := range []bool{false, true} {
		for name, target := range map[string]func(t *testing.T, pid int) bpf.Target{
			"all":   func(*testing.T, int) bpf.Target { return bpf.Target{} },
			"later": func(*testing.T, int) bpf.Target { return bpf.Target{Later: true} },
			"pid":   func(_ *testing.T, pid int) bpf.Target { return bpf.Target{PIDs: []int{pid}} },
			"comm":  func(*testing.T, int) bpf.Target { return bpf.Target{Comm: "switcher-of-lla"} },
			"v1": func(t *testing.T, pid int) bpf.Target {
				return bpf.Target{Cgroup: joined(t, "/sys/fs/cgroup/memory", pid)}
			},
			"v2": func(t *testing.T, pid int) bpf.Target {
				for _, hierarchy := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
					if _, err := os.Stat(filepath.Join(hierarchy, "cgroup.controllers")); err == nil {
						return bpf.Target{Cgroup: joined(t, hierarchy, pid)}
					}
				}
				testenv.Beyond(t, "cgroup v2", "it is not mounted")
				return bpf.Target{}
			},
		} {
			t.Run(map[bool]string{true: "plain-", false: "btf-"}[plain]+name, func(t *testing.T) {
				pid, poke := switching(t, "switcher-of-llamatap")
				other, pokeOther := switching(t, "other")
				s, err := openSwitches(bpf.Options{Plain: plain, Target: target(t, pid)})
				if plain && name == "v1" {
					if err == nil || !strings.Contains(err.Error(), "--pid") {
						t.Fatalf("a cgroup of version 1 without BTF: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if name == "later" {
					if err := s.AddPID(pid); err != nil {
						t.Fatal(err)
					}
				}
				poke()
				pokeOther()
				got := seen(t, s)
				if got[uint32(pid)] < 100 {
					t.Errorf("%d switches of the wanted process, want 100 at least", got[uint32(pid)])
				}
				if n, all := got[uint32(other)], name == "all"; (n >= 100) != all {
					t.Errorf("%d switches of the other process", n)
				}
				if name != "all" && len(got) != 1 {
					t.Errorf("counted threads %v, want %d alone", got, pid)
				}
				if s.Plain != plain || plain == (s.Absent["on_nothing"] != nil) {
					t.Errorf("plain %v, absent %v", s.Plain, s.Absent)
				}
			})
		}
	}
}

func TestAddPID(t *testing.T) {
	testenv.NeedBPF(t)
	pid, poke := switching(t, "a")
	late, pokeLate := switching(t, "b")
	s, err := openSwitches(bpf.Options{Target: bpf.Target{PIDs: []int{pid}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pokeLate()
	if err := s.AddPID(late); err != nil {
		t.Fatal(err)
	}
	if n := seen(t, s)[uint32(late)]; n != 0 {
		t.Errorf("%d switches before it was added", n)
	}
	poke()
	pokeLate()
	if got := seen(t, s); got[uint32(pid)] < 100 || got[uint32(late)] < 100 {
		t.Errorf("switches %v of %d and %d", got, pid, late)
	}
}

func TestPrograms(t *testing.T) {
	testenv.NeedBPF(t)
	counting, err := bpf.EnableStats()
	if err != nil {
		t.Fatal(err)
	}
	defer counting.Close()
	pid, poke := switching(t, "counted")
	s, err := openSwitches(bpf.Options{Target: bpf.Target{PIDs: []int{pid}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	poke()
	stats, err := s.Programs()
	if err != nil {
		t.Fatal(err)
	}
	if len(stats) != 1 || stats[0].Name != "on_switch" || stats[0].Runs < 100 || stats[0].PerNS <= 0 {
		t.Errorf("cost %+v", stats)
	}
	sum := uint64(0)
	for slot := range uint32(32) {
		n, err := bpf.Sum(s.Map("switches"), slot)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	total := uint64(0)
	for _, n := range seen(t, s) {
		total += n
	}
	if sum < 100 || total < sum { // a switch may have come between
		t.Errorf("%d switches by slot, %d by thread", sum, total)
	}
}

// TestWrongTargets: what cannot be meant is refused with the remedy.
func TestWrongTargets(t *testing.T) {
	testenv.NeedBPF(t)
	for want, target := range map[string]bpf.Target{
		"15 of a thread's name": {Comm: "a-name-of-sixteen"},
		"there is no folder":    {Cgroup: "no/such/group"},
	} {
		if _, err := openSwitches(bpf.Options{Target: target}); err == nil || !strings.Contains(err.Error(), want) &&
			!strings.Contains(err.Error(), "no hierarchy of version 2") {
			t.Errorf("%+v: %v, want %q", target, err, want)
		}
	}
}

// TestWithoutRights checks that the error for a process without permissions names the remedy.
func TestWithoutRights(t *testing.T) {
	if os.Getenv("LLAMATAP_TEST_CHILD") != "" {
		_, err := openSwitches(bpf.Options{})
		if !errors.Is(err, bpf.ErrMissing) || !strings.Contains(err.Error(), "setcap") {
			t.Fatalf("without rights: %v", err)
		}
		return
	}
	testenv.NeedBPF(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestWithoutRights$", "-test.v")
	cmd.Env = append(os.Environ(), "LLAMATAP_TEST_CHILD=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
