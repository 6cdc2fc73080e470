//go:build linux

package filemap

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource/bpf"
)

// touching compiles testdata/touch.c once.
var touching = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "llamatap-touch-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "touch")
	if out, err := exec.Command("cc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program,
		"testdata/touch.c").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if program, err := touching(); err == nil {
		os.RemoveAll(filepath.Dir(program))
	}
	os.Exit(code)
}

// onDisk makes a file of random bytes that is on the disk.
func onDisk(t *testing.T, megabytes int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.bin")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(f, rand.Reader, int64(megabytes)<<20); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// touch is a byte that the program touched.
type touch struct {
	address     uint64
	began, took int64
}

// toucher runs the program: start begins to touch, and returns what it touched and its faults.
func toucher(t *testing.T, path, mode string, count int) (pid int,
	start func() (all []touch, minor, major, slept uint64)) {
	t.Helper()
	testenv.NeedCC(t)
	program, err := touching()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, path, mode, fmt.Sprint(count))
	cmd.Stderr = os.Stderr
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
	return cmd.Process.Pid, func() (all []touch, minor, major, slept uint64) {
		fmt.Fprintln(in)
		in.Close()
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var one touch
			if strings.HasPrefix(lines.Text(), "touch ") {
				if _, err := fmt.Sscanf(lines.Text(), "touch %x %d %d", &one.address, &one.began,
					&one.took); err != nil {
					t.Fatalf("%q: %v", lines.Text(), err)
				}
				all = append(all, one)
			} else if _, err := fmt.Sscanf(lines.Text(), "%d %d %d", &minor, &major, &slept); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		return all, minor, major, slept
	}
}

// heard opens a source that keeps the events of a process.
func heard(t *testing.T, o sourceOptions) (*source, *[]Event) {
	t.Helper()
	var all []Event
	o.Take = func(e *Event) { all = append(all, *e) }
	s, err := openSource(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, &all
}

func quantile(values []int64, q float64) int64 {
	slices.Sort(values)
	return values[int(q*float64(len(values)-1))]
}

// TestAgainstUserSpace: each fault that a program can time from outside is recorded once, lies within what the
// program measured, and takes nearly as long; none is lost, and their number is the kernel's.
func TestAgainstUserSpace(t *testing.T) {
	testenv.NeedBPF(t)
	path := onDisk(t, 40)
	key, err := keyOf(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, plain := range []bool{false, true} {
		for _, mode := range testenv.Brief([]string{"cold", "warm", "anon", "threads"}, 1) {
			t.Run(fmt.Sprintf("%s-plain=%v", mode, plain), func(t *testing.T) {
				pid, start := toucher(t, path, mode, 4000)
				s, events := heard(t, sourceOptions{Plain: plain, Target: bpf.Target{PIDs: []int{pid}}})
				touches, minor, major, _ := start()
				s.Stop()
				checkTouches(t, *events, touches, mode, key)
				checkCounts(t, s, *events, minor, major)
			})
		}
	}
}

// checkTouches joins what the program saw with what was recorded.
func checkTouches(t *testing.T, events []Event, touches []touch, mode string, key fileKey) {
	t.Helper()
	byAddress := map[uint64]*Event{}
	for i := range events {
		if e := &events[i]; e.Kind == Fault {
			byAddress[e.At] = e
		}
	}
	var outside []int64
	var seen, waited, blocked int64
	joined := 0
	first := touches[0].address &^ uint64(os.Getpagesize()-1) // page of the file 13
	for _, o := range touches {
		e := byAddress[o.address]
		if e == nil {
			continue
		}
		joined++
		outside = append(outside, o.took-e.WaitNS())
		seen, waited = seen+o.took, waited+e.WaitNS()
		if e.BeginNS < o.began || e.EndNS > o.began+o.took {
			t.Fatalf("a fault from %d to %d, touched from %d for %d", e.BeginNS, e.EndNS, o.began, o.took)
		}
		if e.BlockedNS+e.PreemptedNS > e.WaitNS() {
			t.Errorf("a fault of %d ns was %d off the processor", e.WaitNS(), e.BlockedNS+e.PreemptedNS)
		}
		if mode == "anon" {
			if e.File.Dev != 0 {
				t.Errorf("anonymous memory is of file %+v", e.File)
			}
			continue
		}
		blocked += e.BlockedNS
		page := uint64((int64(o.address)-5-int64(first))/int64(os.Getpagesize()) + 13)
		if e.File != key || page < e.First || page > e.Last {
			t.Fatalf("page %d of %+v, recorded %d to %d of %+v", page, key, e.First, e.Last, e.File)
		}
		if mode == "cold" && (e.Flags&Slow == 0 || e.First != page || e.Flags&Major == 0) {
			t.Errorf("a cold page: %+v", e)
		}
	}
	if want := len(touches); mode != "warm" && joined != want || joined < want/100 {
		t.Errorf("%d of %d touches have a fault", joined, want)
	}
	t.Logf("%d faults; the program saw p50 %d p99 %d ns more, in all %.1f %%", joined, quantile(outside, .5),
		quantile(outside, .99), 100*float64(seen-waited)/float64(seen))
	if mode == "cold" && blocked < waited/4 {
		t.Errorf("%d ns waited for the disk, %d off the processor", waited, blocked)
	}
	if quantile(outside, 0) < 0 {
		t.Errorf("a fault took longer than touching: %d", quantile(outside, 0))
	}
}

// checkCounts compares with the kernel's count. The program ends with some more faults than it counted itself.
func checkCounts(t *testing.T, s *source, events []Event, minor, major uint64) {
	t.Helper()
	var got [2]uint64
	for i := range events {
		if e := &events[i]; e.Kind == Fault {
			got[e.Flags&Major]++
		}
	}
	lost, err := s.Lost()
	if err != nil {
		t.Fatal(err)
	}
	if got[1] < major || got[1] > major+20 || got[0] < minor || got[0] > minor+200 ||
		lost.Ring+lost.Threads+lost.Requests > 0 {
		t.Errorf("%d minor and %d major faults, the kernel counted %d and %d; lost %+v", got[0], got[1], minor, major,
			lost)
	}
}

// TestReads: what is read without a fault is seen by pages, by waits in the system call, and by block requests.
func TestReads(t *testing.T) {
	testenv.NeedBPF(t)
	path := onDisk(t, 24)
	key, err := keyOf(path)
	if err != nil {
		t.Fatal(err)
	}
	for mode, call := range map[string]string{"read": "read", "populate": "mmap", "direct": "read"} {
		t.Run(mode, func(t *testing.T) {
			pid, start := toucher(t, path, mode, 0)
			s, events := heard(t, sourceOptions{Target: bpf.Target{PIDs: []int{pid}}})
			_, _, _, slept := start()
			s.Stop()
			files := newFiles()
			if _, err := files.AddPath(path); err != nil {
				t.Fatal(err)
			}
			var pages, requested, direct, resolved, calls uint64
			for i := range *events {
				e := &(*events)[i]
				switch {
				case e.Kind == Request && e.File.Dev == 0 && mode == "direct":
					direct += e.Bytes
					if h := files.Resolve(e); h.Place >= 0 && e.File == key {
						resolved += e.Bytes
						files.spread(key, h.Offset, e.Bytes, func(_ int, n uint64) { requested += n })
					}
				case e.Kind == Call && callName(e.Syscall) == call && (e.File == key || mode == "direct"):
					calls++
				case e.File != key:
				case e.Kind == Read:
					pages += e.Last - e.First + 1
				case e.Kind == Request:
					requested += e.Bytes
				}
			}
			lost, err := s.Lost()
			if err != nil || lost.Ring+lost.Threads+lost.Requests > 0 {
				t.Errorf("lost %+v: %v", lost, err)
			}
			want := uint64(24 << 20)
			if mode == "direct" {
				if direct < want || calls == 0 && slept > 3 {
					t.Errorf("%d bytes past the page cache, %d waits of %d; want %d bytes", direct, calls, slept, want)
				}
				if _, err := extentsOf(path); err != nil {
					t.Logf("the file of requests is unknown here: %v", err)
				} else if resolved != want || requested != want {
					t.Errorf("%d bytes were found to be the file's, %d in its places; want %d", resolved, requested,
						want)
				}
				return
			}
			// Where others empty the page cache meanwhile, some of it is read twice.
			if got := pages * uint64(os.Getpagesize()); got < want || got > want+want/8 || requested != got ||
				calls == 0 && slept > 3 {
				t.Errorf("%d pages, %d bytes requested, %d waits in %s of %d; want %d bytes", pages, requested, calls,
					call, slept, want)
			}
		})
	}
}

// TestAbsent: this kernel has every hook.
func TestAbsent(t *testing.T) {
	testenv.NeedBPF(t)
	s, _ := heard(t, sourceOptions{})
	for name, err := range s.absent() {
		t.Errorf("%s is missing: %v", name, err)
	}
	if !strings.HasPrefix(s.Origin(), "bpf") {
		t.Error(s.Origin())
	}
}

// TestLoad: 50,000 faults a second are all recorded, and what the recorder keeps does not grow with them. Behind
// LLAMATAP_NIGHTLY it goes on for a minute.
func TestLoad(t *testing.T) {
	testenv.NeedBPF(t)
	count := 50_000
	if testenv.Nightly() {
		count = 3_000_000
	}
	pid, start := toucher(t, onDisk(t, 1), "flood", count)
	files := newFiles()
	r := newRecorder(recorderOptions{Files: files, BeginNS: bpf.MonoNS(), Intervals: true})
	held := 0
	s, err := openSource(sourceOptions{
		Target: bpf.Target{PIDs: []int{pid}}, Take: r.Take,
		Upto: func(now int64) {
			r.Upto(now)
			held = max(held, len(r.pending))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, minor, _, _ := start()
	s.Stop()
	lost, err := s.Lost()
	if err != nil {
		t.Fatal(err)
	}
	line := r.interval(bpf.MonoNS())
	if line.Faults < uint64(count) || line.Faults < minor || line.Faults > minor+300 ||
		lost.Ring+lost.Threads+lost.Requests > 0 {
		t.Errorf("%d faults recorded, the kernel counted %d; lost %+v", line.Faults, minor, lost)
	}
	if f := line.Memory[memoryAnonymous]; f == nil || f.Faults < uint64(count) {
		t.Errorf("of anonymous memory: %+v", f)
	}
	if len(files.places) > 100 || len(line.Places) > defaultTop {
		t.Errorf("%d places, %d in the line", len(files.places), len(line.Places))
	}
	t.Logf("%d faults; at most %d events waited", line.Faults, held)
}

// TestFork: what a wanted process starts is wanted; what has ended is not, whatever gets its number.
func TestFork(t *testing.T) {
	testenv.NeedBPF(t)
	testenv.NeedCC(t)
	program, err := touching()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", `read -r go; echo | "$0" "$1" anon 100 >"$2"; :`, program, onDisk(t, 1),
		os.DevNull)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s, events := heard(t, sourceOptions{Target: bpf.Target{PIDs: []int{cmd.Process.Pid}}})
	fmt.Fprintln(in)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := bpf.Each(s.set.Map("target_pids"), func(uint32, uint8) { left++ }); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	byProcess := map[uint32]int{}
	for i := range *events {
		if e := &(*events)[i]; e.Kind == Fault {
			byProcess[e.PID]++
		}
	}
	most := 0
	for pid, n := range byProcess {
		if int(pid) != cmd.Process.Pid {
			most = max(most, n)
		}
	}
	if most < 100 || left != 0 {
		t.Errorf("faults by process %v of %d; %d processes are wanted still", byProcess, cmd.Process.Pid, left)
	}
}
