package machine

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Memory is what MeasureMemory found.
type Memory struct {
	Triad      Rate  // of the best pass, by all threads together
	Copy       Rate  // of the best pass, by one thread
	Threads    int   // of Triad
	ArrayBytes int64 // of each of the three arrays
	CacheBytes int64 // of all last-level caches; 0: unknown
}

// Cached reports whether the arrays are too small for the caches, or these unknown.
func (m Memory) Cached() bool { return m.CacheBytes == 0 || m.ArrayBytes < 4*m.CacheBytes }

const smallestArray = 8 << 20

// MeasureMemory measures the memory on all processors that this process may use. The limit's bytes are those of all
// arrays.
func MeasureMemory(limit Limit) (Memory, error) {
	m := Memory{Threads: runtime.NumCPU(), CacheBytes: lastLevel("/sys/devices/system/cpu")}
	m.ArrayBytes = limit.Bytes / 3
	if m.CacheBytes > 0 {
		m.ArrayBytes = min(m.ArrayBytes, max(4*m.CacheBytes, 4*smallestArray))
	}
	if m.ArrayBytes < smallestArray {
		return Memory{}, fmt.Errorf("measure the memory: %d bytes are too few, it takes %d", limit.Bytes,
			3*smallestArray)
	}
	defer debug.FreeOSMemory()
	n := int(m.ArrayBytes / 8)
	m.ArrayBytes = int64(n) * 8
	a, b, c := make([]float64, n), make([]float64, n), make([]float64, n)
	team := start(m.Threads, n)
	defer team.stop()
	team.runAll(func(low, high int) { fill(a[low:high], b[low:high], c[low:high]) })
	// Filling counts: a third of the time is left to Copy.
	m.Triad = best(3*m.ArrayBytes, team.began, 2*limit.Time/3, func() {
		team.runAll(func(low, high int) { triad(a[low:high], b[low:high], c[low:high], 0.5) })
	})
	m.Copy = best(m.ArrayBytes, team.began, limit.Time, func() {
		team.runFirst(func() { copy(a, b) })
	})
	return m, nil
}

// best repeats a pass until the next one would end later than limit after began, and returns the fastest.
func best(bytes int64, began time.Time, limit time.Duration, pass func()) Rate {
	fastest := time.Duration(math.MaxInt64)
	for {
		at := time.Now()
		pass()
		took := max(time.Since(at), 1)
		fastest = min(fastest, took)
		if time.Since(began)+took > limit {
			return Rate{bytes, fastest}
		}
	}
}

// fill gives the arrays values, which is when they become memory.
func fill(a, b, c []float64) {
	for i := range a {
		a[i], b[i], c[i] = 0, 1, 2
	}
}

// triad is STREAM's, four elements at a time.
func triad(a, b, c []float64, s float64) {
	b, c = b[:len(a)], c[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		x, y, z := a[i:i+4:i+4], b[i:i+4:i+4], c[i:i+4:i+4]
		x[0], x[1], x[2], x[3] = y[0]+s*z[0], y[1]+s*z[1], y[2]+s*z[2], y[3]+s*z[3]
	}
	for ; i < len(a); i++ {
		a[i] = b[i] + s*c[i]
	}
}

// A team is one thread per processor; each has its part of the elements.
type team struct {
	began time.Time
	work  []chan func(low, high int)
	done  sync.WaitGroup
}

func start(threads, elements int) *team {
	t := &team{began: time.Now(), work: make([]chan func(low, high int), threads)}
	for i := range t.work {
		t.work[i] = make(chan func(low, high int))
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			for f := range t.work[i] {
				f(elements*i/threads, elements*(i+1)/threads)
				t.done.Done()
			}
		}()
	}
	return t
}

// runAll runs f on all threads, each with its part, and waits.
func (t *team) runAll(f func(low, high int)) {
	t.done.Add(len(t.work))
	for _, w := range t.work {
		w <- f
	}
	t.done.Wait()
}

// runFirst runs f on the first thread, and waits.
func (t *team) runFirst(f func()) {
	t.done.Add(1)
	t.work[0] <- func(int, int) { f() }
	t.done.Wait()
}

func (t *team) stop() {
	for _, w := range t.work {
		close(w)
	}
}

// lastLevel is the size of all last-level caches together, 0 where sysfs does not say.
func lastLevel(dir string) (total int64) {
	indexes, _ := filepath.Glob(filepath.Join(dir, "cpu[0-9]*", "cache", "index[0-9]*"))
	read := func(index, name string) string {
		text, _ := os.ReadFile(filepath.Join(index, name))
		return strings.TrimSpace(string(text))
	}
	level, caches := 0, map[string]int64{}
	for _, index := range indexes {
		at, err := strconv.Atoi(read(index, "level"))
		kib, isKiB := strings.CutSuffix(read(index, "size"), "K")
		size, wrong := strconv.ParseInt(kib, 10, 64)
		if err != nil || wrong != nil || !isKiB || at < level {
			continue
		}
		if at > level {
			level, caches = at, map[string]int64{}
		}
		caches[read(index, "shared_cpu_list")] = size << 10
	}
	for _, size := range caches {
		total += size
	}
	return total
}
