//go:build linux

package oracle

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/llamatap/llamatap/collect"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/gguf/synth"
	"github.com/llamatap/llamatap/inspect/host"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/filemap"
	"golang.org/x/sys/unix"
)

// waited is what a program waited for.
type waited struct {
	lines  []resource.WaitLine
	faults []resource.FaultLine
	text   string
}

// wait runs llama-completion under the tap, with a recorder of what it waits for. The command may be one that
// starts it. Nobody watches, so events may wait for a thread of the model that gets no processor between the
// beginning of a graph and telling of it.
func wait(t *testing.T, cold bool, cmd *exec.Cmd) *waited {
	t.Helper()
	region, err := collect.NewRegion(collect.Options{Start: collect.Wish{Off: true}, MemoryBytes: 16 << 20, Cold: cold})
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	var w waited
	c, err := filemap.Open(filemap.Options{
		Target: bpf.Target{Later: true},
		Line:   func(l *resource.WaitLine) error { w.lines = append(w.lines, *l); return nil },
		Fault:  func(f *resource.FaultLine) error { w.faults = append(w.faults, *f); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.ExtraFiles = []*os.File{region.File(), region.Life()}
	cmd.Env = append(cmd.Environ(), collect.FDVariable+"=3,4")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.AddPID(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	reader := collect.NewReader(region, ggmlhooks.NewAssembler(0, filemap.NewFollower(c.Recorder(), nil)))
	for running := true; running; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%s: %v: %s", cmd, err, out.String())
			}
			running = false
		default:
			reader.Sleep(time.Millisecond)
		}
		now := bpf.MonoNS()
		if _, err := reader.Drain(); err != nil {
			cmd.Process.Kill()
			t.Fatal(err)
		}
		c.Recorder().ReportedUpTo(now - int64(2*time.Minute)) // what the kernel reports comes sooner than that
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	w.text = out.String()
	w.check(t)
	return &w
}

// check holds the lines against each other: their sum is the total, and nothing was lost.
func (w *waited) check(t *testing.T) {
	t.Helper()
	var sum resource.WaitFigures
	for i := range w.lines[:len(w.lines)-1] {
		l := &w.lines[i]
		sum.Add(&l.WaitFigures)
		if l.Kind == resource.WaitGraph && l.StalledNS > l.DurationNS+int64(time.Millisecond) {
			t.Errorf("a graph of %d ns stood still for %d", l.DurationNS, l.StalledNS)
		}
	}
	total := &w.lines[len(w.lines)-1]
	if total.Kind != resource.WaitTotal || sum != total.WaitFigures {
		t.Errorf("lines add up to %+v, the total is %+v", sum, total)
	}
	for cause, n := range total.Lost {
		late := cause == "graphs_told_late" && testenv.Emulated() // the tap is read in time where it can be
		if cause != "faults_open" && cause != "faults_unknown" && cause != "request_ends_unseen" && !late {
			t.Errorf("lost: %s %d", cause, n)
		}
	}
	if len(total.Missing) > 0 {
		t.Errorf("missing %v", total.Missing)
	}
}

// graphs are the lines of executions, by phase.
func (w *waited) graphs(phase string) (all []*resource.WaitLine) {
	for i := range w.lines {
		if l := &w.lines[i]; l.Kind == resource.WaitGraph && l.Phase == phase {
			all = append(all, l)
		}
	}
	return all
}

// stockCompletion is a run of a stock llama-completion with the tap in it.
func stockCompletion(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	tap := filepath.Join(filepath.Dir(testenv.NeedBinary(t)), "libllamatap.so")
	cmd := testenv.NeedTool(t, "llama-completion").Command(args...)
	cmd.Args[1] += ":" + tap // behind --preload=
	return cmd
}

// emptied puts a file's pages out of the page cache.
func emptied(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 100 { // what somebody still holds, such as a batch of pages on their way to a list, stays
		if err := errors.Join(unix.Fdatasync(int(f.Fd())),
			unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
			t.Fatal(err)
		}
		// A machine for this test alone, whose kernel may keep parts of the file in large folios.
		if testenv.Emulated() {
			if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
				t.Fatal(err)
			}
		}
		if cachedPages(t, f) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// cachedPages is how many pages of a file are in the page cache.
func cachedPages(t *testing.T, f *os.File) (n int) {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	memory, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	pages := make([]byte, (len(memory)+os.Getpagesize()-1)/os.Getpagesize())
	if _, _, failed := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&memory[0])), uintptr(len(memory)),
		uintptr(unsafe.Pointer(&pages[0]))); failed != 0 {
		t.Fatal(failed)
	}
	for _, p := range pages {
		n += int(p & 1)
	}
	return n
}

// TestColdRun: of a model that nobody has read, the first token touches every tensor of the graph, in the order of
// the graph, and each waiting for the disk; the next ones touch hardly any.
func TestColdRun(t *testing.T) {
	testenv.NeedBPF(t)
	for name, arch := range map[string]string{"dense": "llama", "moe": "qwen3moe"} {
		t.Run(name, func(t *testing.T) {
			model := synthetic(t, arch, gguf.F16, func(c *synth.Config) { c.Layers, c.Width, c.FF = 8, 512, 1536 })
			emptied(t, model)
			w := wait(t, true, stockCompletion(t, "-m", model, "-p", "One two three", "-n", "4", "-no-cnv",
				"--temp", "0", "--no-warmup", "-t", "2", "--no-repack"))
			checkCold(t, w, model, arch == "llama")
		})
	}
}

// inOrder reports whether 99 % of the tensors were touched in the order of the graph, or all but one: two threads
// begin an operation at once, and may begin with pages that hold the ends of other tensors.
func inOrder(o *resource.WaitOrder) bool {
	return o.Tensors-o.InOrder <= max(1, o.Tensors/100)
}

func checkCold(t *testing.T, w *waited, model string, dense bool) {
	t.Helper()
	file, err := gguf.Open(model)
	if err != nil {
		t.Fatal(err)
	}
	prefill, decode := w.graphs("prefill"), w.graphs("decode")
	if len(prefill) != 1 || len(decode) != 3 {
		t.Fatalf("%d graphs of the prompt, %d of tokens: %+v", len(prefill), len(decode), w.lines)
	}
	p := prefill[0]
	touched := map[string]bool{}
	for i := range w.faults {
		if f := &w.faults[i]; f.Kind == "fault" && f.File == model && f.Tensor != "" &&
			!strings.HasPrefix(f.Tensor, "(") {
			touched[f.Tensor] = true
			if tensor, ok := file.Tensor(f.Tensor); !ok || *f.Offset < uint64(tensor.Offset) ||
				*f.Offset >= uint64(tensor.End()) {
				t.Fatalf("a fault in %s at %d of the file", f.Tensor, *f.Offset)
			}
		}
	}
	o := p.FirstFaults
	if o == nil {
		t.Fatalf("no tensor was touched first by the prompt: %+v", p)
	}
	t.Logf("%d of %d tensors touched; first faults of the prompt %+v; it waited %d of %d ms on %d faults (%d major), "+
		"p99 %d us, %d requests", len(touched), len(file.Tensors), *o,
		p.StalledNS/1e6, p.DurationNS/1e6, p.Faults, p.Major, p.P99NS/1000, p.Requests)
	if !inOrder(o) {
		t.Errorf("first faults are not in the graph's order: %+v", o)
	}
	// A tensor that is smaller than a page may share one with its neighbour, which then was read first.
	want := 0
	for i := range file.Tensors {
		if b := file.Tensors[i].Bytes; b >= 4*int64(os.Getpagesize()) && (dense ||
			!strings.Contains(file.Tensors[i].Name, "_exps")) {
			if want++; !touched[file.Tensors[i].Name] {
				t.Logf("%s of %d bytes was not touched", file.Tensors[i].Name, b)
				want += 1000 // recorded above
			}
		}
	}
	if want >= 1000 {
		t.Error("tensors of the model were never touched")
	}
	if p.Major == 0 || p.Requests == 0 || p.BlockedNS == 0 || p.BlockBytes < uint64(file.TensorBytes())/2 && dense {
		t.Errorf("the prompt waited for no disk: %+v", p.WaitFigures)
	}
	for _, d := range decode {
		if d.Faults*20 > p.Faults {
			t.Errorf("a later token took %d faults, the prompt %d", d.Faults, p.Faults)
		}
	}
}

// limited makes a memory cgroup of so many bytes that the command starts in.
func limited(t *testing.T, bytes int64, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	dir, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if text, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil &&
		slices.Contains(strings.Fields(string(text)), "memory") {
		dir, limit = "/sys/fs/cgroup", "memory.max"
	}
	group := filepath.Join(dir, fmt.Sprintf("llamatap-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err := os.Mkdir(group, 0o755); err != nil {
		testenv.Beyond(t, "a memory cgroup that can be made", err.Error())
	}
	t.Cleanup(func() { os.Remove(group) })
	if err := os.WriteFile(filepath.Join(group, limit), []byte(fmt.Sprint(bytes)), 0); err != nil {
		testenv.Beyond(t, "a memory cgroup that can be limited", err.Error())
	}
	in := exec.Command("/bin/sh", append([]string{"-c", `echo 0 > "$0/cgroup.procs" && exec "$@"`, group},
		cmd.Args...)...)
	in.Args[4] = cmd.Path
	in.Env = cmd.Env
	return in
}

// TestShortOfMemory: a model that does not fit into its memory is read again for each token; where the time goes is
// by tensor.
func TestShortOfMemory(t *testing.T) {
	testenv.Slow(t)
	testenv.NeedBPF(t)
	layers, tokens := 10, "5"
	if testenv.Emulated() {
		layers, tokens = 5, "3"
	}
	model := synthetic(t, "llama", gguf.F16, func(c *synth.Config) { c.Layers, c.Width, c.FF = layers, 768, 3072 })
	info, err := os.Stat(model)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-m", model, "-p", "One two three", "-n", tokens, "-no-cnv", "--temp", "0", "--no-warmup",
		"-t", "2", "-c", "256", "--no-repack"}
	free := wait(t, false, stockCompletion(t, args...))
	emptied(t, model) // pages that are there are charged to nobody
	short := wait(t, false, limited(t, info.Size()/2+(24<<20), stockCompletion(t, args...)))
	was, is := free.graphs("decode"), short.graphs("decode")
	if len(was) == 0 || len(was) != len(is) {
		t.Fatalf("%d and %d tokens", len(was), len(is))
	}
	var slower, stalled, faults int64
	for i := range is {
		slower += is[i].DurationNS - was[i].DurationNS
		stalled += is[i].StalledNS
		faults += int64(is[i].Faults)
		if is[i].Faults == 0 || is[i].WaitNS == 0 || len(is[i].Places) == 0 {
			t.Errorf("a token without faults: %+v", is[i])
			continue
		}
		top := is[i].Places[0]
		if top.File != model || top.Tensor == "" || top.Faults == 0 {
			t.Errorf("most was waited for at %+v", top)
		}
		var named, all int64
		for _, p := range is[i].Places {
			if p.File == model {
				named += p.WaitNS
			}
		}
		if all = is[i].WaitNS; is[i].Others != nil {
			all -= is[i].Others.WaitNS
		}
		if named*10 < all*9 {
			t.Errorf("%d of %d ns are the model's", named, all)
		}
	}
	n := int64(len(is))
	t.Logf("per token: %d faults, %.1f ms with a thread waiting, %.1f ms slower than with room; most on %s", faults/n,
		float64(stalled/n)/1e6, float64(slower/n)/1e6, is[0].Places[0].Tensor)
	if before := was[len(was)-1]; before.Faults*10 > is[len(is)-1].Faults {
		t.Errorf("with room a token takes %d faults, without %d", before.Faults, is[len(is)-1].Faults)
	}
}

// TestWaitsOfRun: a run that is recorded with --tap-host waits records the same as the recorder alone, and the
// command shows it.
func TestWaitsOfRun(t *testing.T) {
	testenv.NeedPrograms(t, "llama-completion", "llama-cli")
	testenv.NeedBPF(t)
	binary, out := testenv.NeedBinary(t), t.TempDir()
	model := synthetic(t, "llama", gguf.F16, func(c *synth.Config) { c.Layers, c.Width, c.FF = 4, 256, 768 })
	emptied(t, model)
	run := exec.Command(binary, "llama-completion", "--tap-cold", "--tap-host", "waits", "--tap-host-details",
		"--tap-out", out,
		"-m", model, "-p", "One two three", "-n", "3", "-no-cnv", "--temp", "0", "--no-warmup", "-t", "1",
		"--no-repack") // one thread: of two, one may wait for a processor while the other goes ahead
	if text, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	dirs, err := filepath.Glob(filepath.Join(out, "*", "run_*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%d runs: %v", len(dirs), err)
	}
	w, err := host.ReadWaits(dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	var sum resource.WaitFigures
	phases := map[string]*host.WaitPhase{}
	for i := range w.Phases {
		sum.Add(&w.Phases[i].WaitFigures)
		phases[w.Phases[i].Phase] = &w.Phases[i]
	}
	if !w.Sealed || sum != w.Total.WaitFigures {
		t.Errorf("sealed %v; phases add up to %+v, the total is %+v", w.Sealed, sum, w.Total.WaitFigures)
	}
	p := phases["prefill"]
	if p == nil || p.Major == 0 || p.Requests == 0 || w.Order == nil || !inOrder(w.Order) {
		t.Errorf("the prompt: %+v; order %+v", p, w.Order)
	}
	text, err := exec.Command(binary, "host", "waits", dirs[0]).CombinedOutput()
	if err != nil || !strings.Contains(string(text), ".weight") || !strings.Contains(string(text), " waited ") {
		t.Errorf("%v\n%s", err, text)
	}
}
