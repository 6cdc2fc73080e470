package machine

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var short = Limit{Time: 50 * time.Millisecond, Bytes: 4 << 20}

// TestDisk writes to a disk for real: the file is gone afterwards, and no round was larger than its limit.
func TestDisk(t *testing.T) {
	dir := t.TempDir()
	for name, measure := range map[string]func(string, Limit) (Rate, error){"buffered": Buffered, "direct": Direct} {
		r, err := measure(dir, short)
		if errors.Is(err, errors.ErrUnsupported) && name == "direct" {
			continue
		}
		if err != nil || r.Bytes < firstRound || r.Bytes > short.Bytes || r.Time <= 0 || r.PerSecond() <= 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if _, err := measure(filepath.Join(dir, "none"), short); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a folder that is not there gives %v", name, err)
		}
		if _, err := measure(dir, Limit{time.Second, firstRound - 1}); err == nil {
			t.Errorf("%s: nothing was too few bytes", name)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestRounds has disks of known speed: the sizes double, and the limits are kept.
func TestRounds(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		perSecond int64
		limit     Limit
		want      int64
	}{
		"fast":               {10 << 30, Limit{time.Second, 128 << 20}, 128 << 20},
		"not a power of two": {10 << 30, Limit{time.Second, 100 << 20}, 64 << 20},
		// 63 MiB so far, and 64 more are 1.27 s
		"slow":      {100 << 20, Limit{time.Second, 128 << 20}, 32 << 20},
		"very slow": {1 << 20, Limit{time.Second, 128 << 20}, 1 << 20},
	} {
		var clock time.Duration
		next := int64(firstRound)
		r, err := rounds(c.limit, func() time.Duration { return clock }, func(n int64) (time.Duration, error) {
			if n != next {
				t.Errorf("%s: a round of %d bytes, want %d", name, n, next)
			}
			next *= 2
			took := time.Duration(n * int64(time.Second) / c.perSecond)
			clock += took
			return took, nil
		})
		if err != nil || r.Bytes != c.want || math.Abs(r.PerSecond()/float64(c.perSecond)-1) > 1e-6 {
			t.Errorf("%s: %+v, %v, want %d bytes", name, r, err, c.want)
		}
	}
	if _, err := rounds(short, func() time.Duration { return 0 },
		func(int64) (time.Duration, error) { return 0, failed }); !errors.Is(err, failed) {
		t.Errorf("a failing write gives %v", err)
	}
}

func TestMemory(t *testing.T) {
	m, err := MeasureMemory(Limit{Time: 100 * time.Millisecond, Bytes: 3 * smallestArray})
	if err != nil || m.ArrayBytes != smallestArray || m.Triad.Bytes != 3*m.ArrayBytes || m.Copy.Bytes != m.ArrayBytes ||
		m.Threads < 1 {
		t.Errorf("%+v, %v", m, err)
	}
	if m.Triad.PerSecond() <= 0 || m.Copy.PerSecond() <= 0 {
		t.Errorf("%+v", m)
	}
	if _, err := MeasureMemory(Limit{time.Second, 3*smallestArray - 1}); err == nil {
		t.Error("nothing was too few bytes")
	}
}

// TestTriad computes every element, once, at lengths that four does not divide too.
func TestTriad(t *testing.T) {
	for n := range 11 {
		a, b, c := make([]float64, n+1), make([]float64, n), make([]float64, n)
		for i := range n {
			b[i], c[i] = float64(i), float64(10*i)
		}
		triad(a[:n], b, c, 0.5)
		for i := range n {
			if a[i] != 6*float64(i) {
				t.Errorf("of %d elements, %d is %v", n, i, a[i])
			}
		}
		if a[n] != 0 {
			t.Errorf("of %d elements, the one behind them was written", n)
		}
	}
}

// TestTeam wants every element to belong to exactly one thread.
func TestTeam(t *testing.T) {
	const threads, elements = 3, 10
	team := start(threads, elements)
	defer team.stop()
	var seen [elements]int
	team.runAll(func(low, high int) {
		for i := low; i < high; i++ {
			seen[i]++
		}
	})
	for i, n := range seen {
		if n != 1 {
			t.Errorf("element %d was visited %d times", i, n)
		}
	}
}

// TestLastLevel counts each cache of the last level once.
func TestLastLevel(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"cpu0/cache/index2": "2 1024K 0", "cpu1/cache/index2": "2 1024K 1", "cpu2/cache/index2": "2 1024K 2",
		"cpu0/cache/index3": "3 32768K 0-1", "cpu1/cache/index3": "3 32768K 0-1", "cpu2/cache/index3": "3 16384K 2",
	} {
		index := filepath.Join(dir, path)
		if err := os.MkdirAll(index, 0o755); err != nil {
			t.Fatal(err)
		}
		parts := strings.Fields(text)
		for i, name := range []string{"level", "size", "shared_cpu_list"} {
			if err := os.WriteFile(filepath.Join(index, name), []byte(parts[i]+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := lastLevel(dir); got != 48<<20 {
		t.Errorf("%d bytes", got)
	}
	if got := lastLevel(t.TempDir()); got != 0 || !(Memory{ArrayBytes: 1 << 40}).Cached() {
		t.Errorf("where caches are unknown, there are %d bytes", got)
	}
}
