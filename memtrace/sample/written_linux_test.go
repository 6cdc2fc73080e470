package sample

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
)

// child is a process that writes pages on command.
type child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	base uint64
}

// made is where what was compiled lies, for all tests.
var made string

func TestMain(m *testing.M) {
	var err error
	if made, err = os.MkdirTemp("", "pagefault"); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(made)
	os.Exit(status)
}

// compiled is a program or an object made by the C compiler, once.
func compiled(t testing.TB, out string, args ...string) string {
	t.Helper()
	out = filepath.Join(made, out)
	if _, err := os.Stat(out); err == nil {
		return out
	}
	args = append([]string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", out}, args...)
	if text, err := exec.Command(testenv.NeedCC(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// start runs the child, with the tap's part that lets it be watched.
func start(t testing.TB, env ...string) *child {
	t.Helper()
	return startHeld(t, nil, env...)
}

// startHeld is start; the child is held until ready, which may be nil, has returned.
func startHeld(t testing.TB, ready func(pid int) error, env ...string) *child {
	t.Helper()
	program := compiled(t, "child", "testdata/child.c")
	object := compiled(t, "written.so", "-shared", "-fPIC",
		filepath.Join(testenv.Root(t), "cgo", "tap", "tap_written.c"))
	c := &child{cmd: exec.Command(program)}
	c.cmd.Env = append(os.Environ(), append(env, "LD_PRELOAD="+object)...)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if ready == nil {
		err = c.cmd.Start()
	} else {
		err = perf.StartHeld(c.cmd, ready)
	}
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			testenv.NeedRoot(t)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.in.Close()
		c.cmd.Wait()
	})
	return c
}

// do has the child do something with n pages, and waits until it has.
func (c *child) do(t testing.TB, what byte, from, n int) {
	t.Helper()
	if _, err := fmt.Fprintf(c.in, "%c %d %d\n", what, from, n); err != nil {
		t.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if c.base, err = strconv.ParseUint(strings.TrimSpace(line), 16, 64); err != nil {
		t.Fatal(err)
	}
}

func watch(t testing.TB, c *child) *Written {
	t.Helper()
	c.do(t, 'r', 0, 0) // it runs: its constructors have
	w, err := Watch(c.cmd.Process.Pid)
	if err != nil {
		testenv.NeedRoot(t)
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// pages are the numbers of pages in ranges, those that are gone as their negative.
func (c *child) pages(ranges []Range) (all []int) {
	for _, r := range ranges {
		for a := r.Start; a < r.End; a += 4096 {
			n := int(a-c.base) / 4096
			if r.Gone {
				n = -n
			}
			all = append(all, n)
		}
	}
	return all
}

func (c *child) all(n int) Range { return Range{Start: c.base, End: c.base + uint64(n)*4096} }

// TestWrittenPages checks, for each kind of memory, that exactly those pages are found that the process wrote, or the
// kernel for it; not those of its child.
func TestWrittenPages(t *testing.T) {
	const n = 2048
	for kind, what := range map[byte]string{'a': "anonymous", 'h': "huge pages", 's': "shared"} {
		t.Run(what, func(t *testing.T) {
			c := start(t, WrittenEnv)
			w := watch(t, c)
			c.do(t, kind, 0, n)
			if err := w.Add(c.all(n)); err != nil {
				t.Fatal(err)
			}
			for _, step := range []struct {
				what    byte
				from, n int
				want    []int
			}{
				{'w', 5, 2, []int{5, 6}}, {'w', 700, 1, []int{700}}, {'r', 0, n, nil}, {'w', 5, 1, []int{5}},
				{'k', 20, 3, []int{20, 21, 22}},
				{'f', 40, 0, nil}, {'w', 40, 1, []int{40}}, {'w', n - 1, 1, []int{n - 1}},
			} {
				c.do(t, step.what, step.from, step.n)
				got, err := w.Scan(nil, c.all(n))
				if err != nil || !slices.Equal(c.pages(got), step.want) {
					t.Errorf("%c %d %d: pages %v, want %v: %v", step.what, step.from, step.n, c.pages(got), step.want,
						err)
				}
			}
			c.do(t, 'w', 0, n)
			got, err := w.Scan(nil, c.all(n))
			if err != nil || len(got) != 1 || got[0] != c.all(n) {
				t.Errorf("all of it: %v: %v", got, err)
			}
			if got, err = w.Scan(nil, c.all(n)); err != nil || len(got) != 0 {
				t.Errorf("nothing since: %v: %v", got, err)
			}
		})
	}
}

// TestGonePages checks that pages that were given back are found as such, and can be written again; a range that was
// mapped anew is an error.
func TestGonePages(t *testing.T) {
	const n = 64
	c := start(t, WrittenEnv)
	w := watch(t, c)
	c.do(t, 'a', 0, n)
	c.do(t, 'w', 0, n)
	if err := w.Add(c.all(n)); err != nil {
		t.Fatal(err)
	}
	c.do(t, 'd', 30, 4)
	c.do(t, 'w', 34, 1)
	if got, err := w.Scan(nil, c.all(n)); err != nil || !slices.Equal(c.pages(got), []int{-30, -31, -32, -33, 34}) {
		t.Errorf("%v: %v", c.pages(got), err)
	}
	c.do(t, 'w', 31, 1)
	if got, err := w.Scan(nil, c.all(n)); err != nil || !slices.Equal(c.pages(got), []int{31}) {
		t.Errorf("%v: %v", c.pages(got), err)
	}
	c.do(t, 'm', 0, 8)
	if got, err := w.Scan(nil, c.all(n)); !errors.Is(err, ErrRange) {
		t.Errorf("mapped anew: %v: %v", c.pages(got), err)
	}
	if err := w.Add(c.all(n)); err != nil {
		t.Fatal(err)
	}
	c.do(t, 'w', 3, 1)
	if got, err := w.Scan(nil, c.all(n)); err != nil || !slices.Equal(c.pages(got), []int{3}) {
		t.Errorf("after it was added again: %v: %v", c.pages(got), err)
	}
}

// TestScanOfManyPieces scans more pieces than one call of the kernel returns.
func TestScanOfManyPieces(t *testing.T) {
	const n = 4 * regions
	c := start(t, WrittenEnv)
	w := watch(t, c)
	c.do(t, 'a', 0, n)
	if err := w.Add(c.all(n)); err != nil {
		t.Fatal(err)
	}
	var want []int
	rng := rand.New(rand.NewPCG(3, 4))
	for i := 0; i < n; i += 3 + rng.IntN(2) {
		want = append(want, i)
	}
	var lines strings.Builder
	for _, i := range want {
		fmt.Fprintf(&lines, "w %d 1\n", i)
	}
	go io.WriteString(c.in, lines.String())
	for range want {
		if _, err := c.out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	got, err := w.Scan(nil, c.all(n))
	if err != nil || !slices.Equal(c.pages(got), want) || len(want) < regions {
		t.Errorf("%d of %d pages: %v", len(got), len(want), err)
	}
}

func TestWatchSaysWhatIsWrong(t *testing.T) {
	c := start(t)
	c.do(t, 'a', 0, 1)
	for what, pid := range map[string]int{"opened none": c.cmd.Process.Pid, "gone": 1 << 30} {
		if w, err := Watch(pid); !errors.Is(err, ErrWatch) || !strings.Contains(err.Error(), what) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v %v", what, w, err)
		}
	}
	c = start(t, WrittenEnv)
	w := watch(t, c)
	if err := w.Add(Range{Start: 4096, End: 8192}); !errors.Is(err, ErrWatch) {
		t.Errorf("memory that is not there: %v", err)
	}
	c.do(t, 'a', 0, 8)
	if err := w.Add(c.all(8)); err != nil {
		t.Fatal(err)
	}
	c.in.Close()
	c.cmd.Wait()
	if got, err := w.Scan(nil, c.all(8)); !errors.Is(err, ErrWatch) || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a process that has ended: %v %v", got, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestRangeInWords(t *testing.T) {
	r := around(Range{Start: 4100, End: 8200}, 4096)
	want := memtrace.Access{TimeNS: 7, Addr: 4096, Size: 8192, PID: 3, TID: 3, CPU: -1, Weight: 1, Op: memtrace.OpWrite,
		Collector: memtrace.CollectorPage}
	if got := r.Access(3, 7); got != want {
		t.Errorf("%+v", got)
	}
	r.Gone = true
	if got := r.Access(3, 7); got.Op != memtrace.OpFree {
		t.Errorf("%+v", got)
	}
}

// BenchmarkScan is the price of a scan: of 256 MiB of which nothing, some or all pages were written.
func BenchmarkScan(b *testing.B) {
	const n = 256 << 20 / 4096
	c := start(b, WrittenEnv)
	w := watch(b, c)
	c.do(b, 'a', 0, n)
	c.do(b, 'w', 0, n)
	if err := w.Add(c.all(n)); err != nil {
		b.Fatal(err)
	}
	for _, written := range []int{0, 64, n} {
		b.Run(fmt.Sprintf("written=%d", written), func(b *testing.B) {
			var dst []Range
			for b.Loop() {
				b.StopTimer()
				c.do(b, 'w', 0, written)
				b.StartTimer()
				var err error
				if dst, err = w.Scan(dst[:0], c.all(n)); err != nil || len(c.pages(dst)) != written {
					b.Fatalf("%d pages: %v", len(c.pages(dst)), err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/page")
		})
	}
}
