package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
)

// faults are page faults with their addresses, each one sampled.
func faults() eventSpec {
	return eventSpec{Name: "page-faults", Attr: Attr{
		Type: typeSoftware, Config: swPageFaults, Period: 1,
		SampleType: sampleIP | sampleAddr | sampleCPU | samplePeriod,
	}}
}

func open(t *testing.T, o Options) *Session {
	t.Helper()
	s, err := Open(o)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		testenv.NeedRoot(t)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// fresh is memory that nobody has touched.
func fresh(t testing.TB, pages int) (mem []byte, base uint64) {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, pages*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil {
		t.Fatal(err)
	}
	return mem, uint64(uintptr(unsafe.Pointer(&mem[0])))
}

// TestFaultsOfOwnMemory checks that each page of new memory faults once, and the address and time of the samples.
func TestFaultsOfOwnMemory(t *testing.T) {
	const pages = 3000
	mem, base := fresh(t, pages)
	s := open(t, Options{Events: []eventSpec{faults()}, Pages: 256})
	var before, after unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &before)
	for i := range pages {
		mem[i*os.Getpagesize()+i%os.Getpagesize()] = 1
	}
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	var seen []uint64
	if _, err := s.Drain(func(r *Record) error {
		if a := r.Sample.Addr; r.Type == recordSample && a >= base && a < base+uint64(len(mem)) {
			seen = append(seen, (a-base)/uint64(os.Getpagesize()))
			if int64(r.Sample.Time) < before.Nano() || int64(r.Sample.Time) > after.Nano() ||
				int(r.Sample.PID) != os.Getpid() || r.Sample.IP == 0 {
				t.Errorf("%+v", r.Sample)
			}
			if a%uint64(os.Getpagesize()) != ((a-base)/uint64(os.Getpagesize()))%uint64(os.Getpagesize()) {
				t.Errorf("%#x is not where it was touched", a)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(seen)
	if len(seen) != pages || len(slices.Compact(seen)) != pages {
		t.Errorf("%d samples of %d pages; %+v", len(seen), pages, s.Stats())
	}
	agrees(t, s)
}

// counted is how often an event occurred in all threads that it was opened for, sampled or not.
func counted(s *Session) (uint64, error) {
	var sum uint64
	var b [8 * 5]byte // the count, and the other values of the attribute's ReadFormat
	for _, fd := range s.opened {
		if n, err := unix.Read(fd, b[:]); err != nil || n < 8 {
			return 0, fmt.Errorf("read an event's count: %d bytes: %w", n, err)
		}
		sum += binary.LittleEndian.Uint64(b[:])
	}
	return sum, nil
}

// agrees checks that the kernel's own count is what was read and what was lost.
func agrees(t *testing.T, s *Session) {
	t.Helper()
	st := s.Stats()
	total, err := counted(s)
	if err != nil || total != st.Samples+st.Lost+st.LostSamples+st.Twice || st.Bad != 0 {
		t.Errorf("%d events, %+v: %v", total, st, err)
	}
}

// TestLostIsCounted checks that records beyond a full ring are counted.
func TestLostIsCounted(t *testing.T) {
	mem, _ := fresh(t, 2000)
	// Records of new mappings and threads, such as the collector of garbage makes, can be among the lost ones.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	s := open(t, Options{Events: []eventSpec{faults()}, Pages: 1})
	for round := range 2 {
		for i := range 1000 {
			mem[(round*1000+i)*os.Getpagesize()] = 1
		}
		if _, err := s.Drain(func(*Record) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	mem[0]++ // the kernel reports lost records with the next that finds room
	if _, err := s.Drain(func(*Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	st := s.Stats()
	if st.Lost == 0 || st.Samples == 0 || st.Bad != 0 {
		t.Errorf("%+v", st)
	}
	if total, err := counted(s); err != nil || total < st.Samples+st.Lost {
		t.Errorf("%d events, %+v: %v", total, st, err)
	}
}

// TestThreadsOfAnother checks that threads that began after events were opened are sampled, and child processes only if
// asked for.
func TestThreadsOfAnother(t *testing.T) {
	for _, children := range []bool{false, true} {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), "PERFEVENT_TEST_CHILD=1")
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
		var b [1]byte
		if _, err := out.Read(b[:]); err != nil {
			t.Fatal(err)
		}
		s := open(t, Options{PID: cmd.Process.Pid, Events: []eventSpec{faults()}, Children: children, Pages: 512})
		in.Close()
		tids, pids := map[uint32]int{}, map[uint32]int{}
		for ended := false; !ended; {
			_, err := s.Wait(10 * time.Second)
			ended = errors.Is(err, ErrGone)
			if err != nil && !ended {
				t.Fatal(err)
			}
			if _, err := s.Drain(func(r *Record) error {
				if r.Type == recordSample {
					tids[r.Sample.TID]++
					pids[r.Sample.PID]++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		own := pids[uint32(cmd.Process.Pid)]
		if own < childPages || len(tids) < 3 || (len(pids) > 1) != children {
			t.Errorf("children %v: samples by process %v, by thread %v", children, pids, tids)
		}
		agrees(t, s)
	}
}

const childPages = 400

func TestMain(m *testing.M) {
	if os.Getenv("PERFEVENT_TEST_CHURN") != "" {
		churn()
	}
	if os.Getenv("PERFEVENT_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	os.Stdout.Write([]byte{1})
	os.Stdin.Read(make([]byte, 1)) // until it is closed
	done := make(chan bool)
	for range 4 {
		go func() {
			runtime.LockOSThread()
			mem, err := unix.Mmap(-1, 0, childPages/4*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE,
				unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			for i := 0; err == nil && i < len(mem); i += os.Getpagesize() {
				mem[i] = 1
			}
			done <- true
		}()
	}
	for range 4 {
		<-done
	}
	exec.Command("/bin/sh", "-c", "echo").Run()
	os.Exit(0)
}

// TestNoThreadCountsTwice opens events while threads begin and end all the time: each page of a thread's own faults
// once, and is sampled at most once. (A page that threads share may fault twice: the thread that comes second finds it
// changed, and tries again.)
func TestNoThreadCountsTwice(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "PERFEVENT_TEST_CHURN=1")
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
	defer cmd.Wait()
	defer in.Close()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	more, own, twice := 0, 0, uint64(0)
	for range 15 {
		s := open(t, Options{PID: cmd.Process.Pid, Events: []eventSpec{faults()}, Pages: 128})
		type fault struct {
			tid      uint32
			addr, ip uint64
		}
		seen := map[fault]uint64{} // when; memory may be given back, and used again later
		for s.stats.Samples < 300 {
			if _, err := s.Wait(20 * time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Drain(func(r *Record) error {
				if r.Type != recordSample || !strings.Contains(runtime.FuncForPC(uintptr(r.Sample.IP)).Name(),
					"churn") {
					return nil
				}
				own++
				now := fault{r.Sample.TID, r.Sample.Addr, r.Sample.IP}
				if last := seen[now]; last != 0 && max(last, r.Sample.Time)-min(last, r.Sample.Time) < 10_000 {
					t.Errorf("twice: %+v", r.Sample)
				}
				seen[now] = r.Sample.Time
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if s.more {
			more++
		}
		twice += s.stats.Twice
		s.Close()
	}
	t.Logf("%d samples; in %d of 15 sessions threads began meanwhile, %d samples came twice", own, more, twice)
	if own < 15*100 {
		t.Errorf("%d samples of pages that a thread touched alone, of 15 sessions of 300", own)
	}
}

// churn begins threads that begin threads, each of which touches pages of its own.
func churn() {
	os.Stdout.Write([]byte{1})
	go func() {
		os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	var begin func(left int)
	begin = func(left int) {
		runtime.LockOSThread() // and not unlocked: the thread ends with it
		if left > 0 {
			go begin(left - 1)
		}
		mem, err := unix.Mmap(-1, 0, 8*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		for i := 0; err == nil && i < len(mem); i += os.Getpagesize() {
			mem[i] = 1
		}
		unix.Munmap(mem)
		if left == 0 {
			go begin(50)
		}
	}
	go begin(50)
	select {}
}

// TestTwice: a thread that has events of its own and of its parent, because it began while events were opened,
// counts once on each CPU.
func TestTwice(t *testing.T) {
	s := &Session{more: true, chosen: map[seat]uint64{}}
	for _, c := range []struct {
		tid  uint32
		cpu  int
		id   uint64
		want bool
	}{{1, 0, 100, true}, {2, 0, 100, true}, {2, 0, 200, false}, {1, 0, 100, true}, {2, 1, 201, true},
		{2, 1, 101, false}, {2, 0, 100, true}} {
		if got := s.count(&Record{Type: recordSample, Sample: Sample{TID: c.tid, ID: c.id}}, c.cpu); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	s.count(&Record{Type: RecordExit, TID: 2}, 1)
	if !s.count(&Record{Type: recordSample, Sample: Sample{TID: 2, ID: 200}}, 0) {
		t.Error("another thread of the same number does not count")
	}
	if s.stats.Twice != 2 || s.stats.Samples != 6 {
		t.Errorf("%+v", s.stats)
	}
}

// TestClock: the same path with an event that comes by the clock, and is throttled where that is too often.
func TestClock(t *testing.T) {
	s := open(t, Options{Events: []eventSpec{{Name: "cpu-clock",
		Attr: Attr{Type: typeSoftware, Config: swCPUClock, Period: 100_000, SampleType: sampleIP}}, faults()}})
	var x uint64
	for s.stats.Samples < 20 {
		for i := range uint64(10_000_000) {
			x += i * x
		}
		if _, err := s.Drain(func(r *Record) error {
			if r.Type == recordSample && (r.Event == 0) != (r.Sample.Addr == 0) && r.Event == 0 {
				t.Errorf("a clock's sample with an address: %+v", r)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.KeepAlive(x)
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	for what, c := range map[string]struct {
		o    Options
		want string
	}{
		"no event":   {Options{}, "no event"},
		"odd ring":   {Options{Events: []eventSpec{faults()}, Pages: 3}, "power of two"},
		"no process": {Options{PID: 1 << 30, Events: []eventSpec{faults()}}, "gone"},
		"no PMU": {Options{Events: []eventSpec{{Name: "mem-loads", Attr: Attr{Type: 4711}}}},
			"sample page faults instead"},
	} {
		if s, err := Open(c.o); !errors.Is(err, ErrOpen) || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v %v", what, s, err)
		}
	}
}

// TestRemedies: what helps is said exactly.
func TestRemedies(t *testing.T) {
	for _, c := range []struct {
		userOnly bool
		err      error
		level    int
		want     string
	}{
		{false, unix.EACCES, 2, "sysctl kernel.perf_event_paranoid=1"},
		{true, unix.EACCES, 3, "sysctl kernel.perf_event_paranoid=2"},
		{true, unix.EPERM, 2, "somebody else"},
		{false, unix.EMFILE, 2, "ulimit -n"},
		{false, unix.EINVAL, 2, "5.13"},
		{false, unix.ENOSYS, 2, "CONFIG_PERF_EVENTS"},
		{false, unix.EBUSY, 2, "another program"},
	} {
		got := remedy(Options{UserOnly: c.userOnly}, c.err, c.level)
		if !strings.Contains(got, c.want) || c.level > 2 != strings.Contains(got, "kernel.perf_event_paranoid is 3") {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if err := explainRing(Options{Pages: 64}, 4096, unix.EPERM); !strings.Contains(err.Error(),
		"perf_event_mlock_kb=260") {
		t.Error(err)
	}
}

// TestWithoutRights opens events as a user who has none.
func TestWithoutRights(t *testing.T) {
	testenv.NeedRoot(t)
	level, _ := paranoid()
	if level < 2 {
		testenv.Beyond(t, "kernel.perf_event_paranoid of 2 or more", "it is less, everybody may sample")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOpensNothing$", "-test.v")
	cmd.Env = append(os.Environ(), "PERFEVENT_TEST_USER=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestOpensNothing") {
		t.Errorf("%s: %v", out, err)
	}
}

// TestOpensNothing runs in a process of a user without rights.
func TestOpensNothing(t *testing.T) {
	if os.Getenv("PERFEVENT_TEST_USER") == "" {
		return
	}
	_, err := Open(Options{Events: []eventSpec{faults()}})
	if !errors.Is(err, ErrOpen) || !errors.Is(err, unix.EACCES) ||
		!strings.Contains(err.Error(), "sysctl kernel.perf_event_paranoid=1") {
		t.Errorf("with the kernel's events: %v", err)
	}
	s, err := Open(Options{Events: []eventSpec{faults()}, UserOnly: true})
	if level, _ := paranoid(); level == 2 && err != nil || level > 2 && !errors.Is(err, unix.EACCES) {
		t.Errorf("user's events only, level %d: %v", level, err)
	}
	if err == nil {
		s.Close()
	}
}
