package perf

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
)

// rate is the number of samples per second that must be read without loss.
const rate = 50_000

// TestRateWithoutLoss faults a fifth more often than that for some seconds, while a second goroutine drains.
func TestRateWithoutLoss(t *testing.T) {
	testenv.Slow(t)
	testenv.NotWithRace(t)
	const seconds, burst = 10, rate / 100 * 12 / 10
	s := open(t, Options{Events: []eventSpec{faults()}, Pages: 512})
	stop := make(chan bool)
	drained := make(chan error)
	go func() {
		var first error
		for ended := false; !ended; {
			select {
			case <-stop:
				ended = true
			default:
			}
			if _, err := s.Wait(20 * time.Millisecond); err != nil {
				first = errors.Join(first, err)
			}
			if _, err := s.Drain(func(*Record) error { return nil }); err != nil {
				first = errors.Join(first, err)
			}
		}
		drained <- first
	}()
	mem, _ := fresh(t, burst)
	begin := time.Now()
	for i := range 100 * seconds {
		for p := 0; p < len(mem); p += os.Getpagesize() {
			mem[p] = 1
		}
		if err := unix.Madvise(mem, unix.MADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(begin.Add(time.Duration(i+1) * 10 * time.Millisecond)))
	}
	took := time.Since(begin)
	close(stop)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Drain(func(*Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	agrees(t, s)
	if st := s.Stats(); st.Samples < 100*seconds*burst || st.Lost+st.LostSamples+st.Throttles != 0 {
		t.Errorf("of %d faults: %+v", 100*seconds*burst, st)
	}
	t.Logf("%.0f samples/s, none lost", float64(s.Stats().Samples)/took.Seconds())
}

// TestDrainAllocatesNothing: memory stays as it is, however many samples there are.
func TestDrainAllocatesNothing(t *testing.T) {
	testenv.NotWithRace(t)
	s := open(t, Options{Events: []eventSpec{faults()}, Pages: 64})
	mem, _ := fresh(t, 100)
	nothing := func(*Record) error { return nil }
	samples := s.stats.Samples
	if n := testing.AllocsPerRun(50, func() {
		unix.Madvise(mem, unix.MADV_DONTNEED)
		for p := 0; p < len(mem); p += os.Getpagesize() {
			mem[p] = 1
		}
		s.Drain(nothing)
	}); n != 0 {
		t.Errorf("%v allocations per drain of 100 samples", n)
	}
	if s.stats.Samples-samples < 50*100 {
		t.Errorf("only %d samples were drained", s.stats.Samples-samples)
	}
}

// BenchmarkDrain is the price of a sample from the ring to its fields; that of the fault is not in it.
func BenchmarkDrain(b *testing.B) {
	s, err := Open(Options{Events: []eventSpec{faults()}, Pages: 512})
	if err != nil {
		b.Skip(err)
	}
	defer s.Close()
	mem, _ := fresh(b, 4000)
	b.ReportAllocs()
	var spent time.Duration
	for b.Loop() {
		unix.Madvise(mem, unix.MADV_DONTNEED)
		for p := 0; p < len(mem); p += os.Getpagesize() {
			mem[p] = 1
		}
		begin := time.Now()
		s.Drain(func(*Record) error { return nil })
		spent += time.Since(begin)
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(s.stats.Samples), "ns/sample")
	runtime.KeepAlive(mem)
}
