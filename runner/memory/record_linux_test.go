package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// toucher is a program that touches known pages of its memory, by what its standard input says.
func toucher(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "touch")
	source := filepath.Join("testdata", "touch.c")
	if text, err := exec.Command(testenv.NeedCC(t), "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program,
		source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return program
}

// columns reads some columns of a table, by name; a number that is null is -1, a text "".
func columns(t *testing.T, path string, names ...string) map[string][]any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := table.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]any{}
	for group := range r.Groups() {
		for _, name := range names {
			v, err := r.Column(group, name)
			if err != nil {
				t.Fatal(err)
			}
			for i, valid := range v.Valid {
				switch {
				case v.Texts != nil:
					all[name] = append(all[name], v.Texts[i])
				case valid:
					all[name] = append(all[name], v.Ints[i])
				default:
					all[name] = append(all[name], int64(-1))
				}
			}
		}
	}
	return all
}

// allowed skips a test whose error is that this user may not sample.
func allowed(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		testenv.NeedRoot(t)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRecordOfKnownAccesses: of a program that touches known pages exactly those are rows, with their function and
// the region of the map that they lie in.
func TestRecordOfKnownAccesses(t *testing.T) {
	var said bytes.Buffer
	cmd := exec.Command(toucher(t), "4096")
	cmd.Stdin, cmd.Stdout = strings.NewReader("10 3 700\n2500 1 90\n"), &said
	result, err := Record(context.Background(), Options{Choices: [][]string{{"faults"}}, Command: cmd, Out: t.TempDir(),
		Echo: []string{"llamatap", "memory", "record"}})
	allowed(t, err)
	<-result.Ended
	if state := result.Exit(); state.ExitCode() != 7 || result.Use.Lossy {
		t.Errorf("%v, %+v", state, result.Use)
	}
	base, err := strconv.ParseInt(strings.Fields(said.String())[0], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	trace := columns(t, filepath.Join(result.Dir, rundir.TraceName), "addr", "region_id", "region_type", "symbol",
		"collector", "ts_ns", "tid", "phase")
	regions := columns(t, filepath.Join(result.Dir, rundir.RegionsName), "region_id", "region_type", "start_addr",
		"end_addr")
	byID := map[any]int{}
	for i, id := range regions["region_id"] {
		byID[id] = i
	}
	var pages, want []int
	for i := range trace["addr"] {
		addr := trace["addr"][i].(int64)
		if at, ok := byID[trace["region_id"][i]]; ok {
			if regions["region_type"][at] != trace["region_type"][i] || addr < regions["start_addr"][at].(int64) ||
				addr >= regions["end_addr"][at].(int64) {
				t.Errorf("%x lies in %v of %v", addr, trace["region_id"][i], regions["start_addr"][at])
			}
		} else if trace["region_id"][i] != int64(-1) {
			t.Errorf("no region %v", trace["region_id"][i])
		}
		if addr < base || addr >= base+4096<<12 {
			continue
		}
		pages = append(pages, int(addr-base)>>12)
		if trace["symbol"][i] != "touch_page" || trace["region_type"][i] != "runtime" ||
			trace["collector"][i] != "fault" || trace["region_id"][i] == int64(-1) ||
			time.Since(time.Unix(0, trace["ts_ns"][i].(int64))) > time.Hour ||
			trace["tid"][i].(int64) != int64(cmd.Process.Pid) || trace["phase"][i] != "" {
			t.Errorf("row %d: %v in %v by %v", i, trace["region_type"][i], trace["region_id"][i], trace["symbol"][i])
		}
	}
	for i := range 700 {
		want = append(want, 10+3*i)
	}
	for i := range 90 {
		want = append(want, 2500+i)
	}
	if slices.Sort(pages); !slices.Equal(pages, want) {
		t.Errorf("%d pages sampled, %d touched", len(pages), len(want))
	}
	checkSealed(t, result.Dir, 7)
}

// checkSealed holds a run directory against its manifest and metadata.
func checkSealed(t *testing.T, dir string, status int) rundir.Metadata {
	t.Helper()
	report, err := rundir.Verify(dir)
	if err != nil || !report.Sealed || len(report.Missing)+len(report.Changed)+len(report.Extra) > 0 {
		t.Errorf("%v, %+v", err, report)
	}
	text, err := os.ReadFile(filepath.Join(dir, rundir.MetadataName))
	if err != nil {
		t.Fatal(err)
	}
	var m rundir.Metadata
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if m.Exit == nil || m.Exit.Status != status || m.Clock.UnixNS == 0 || m.Host.Cores == 0 {
		t.Errorf("%+v", m)
	}
	lines, err := os.ReadFile(filepath.Join(dir, rundir.ProcessName))
	if err != nil || !bytes.Contains(lines, []byte(`"collector":{`)) {
		t.Errorf("%v: %s", err, lines)
	}
	return m
}

// onWrite calls a function when something is written.
type onWrite func()

func (f onWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// TestRecordEnds: a recording ends with its time, its context, or its process, and is sealed; the program is not hurt.
func TestRecordEnds(t *testing.T) {
	program := toucher(t)
	start := func() (*exec.Cmd, io.WriteCloser) {
		cmd := exec.Command(program, "64")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		return cmd, in
	}
	cmd, in := start()
	ctx, cancel := context.WithCancel(context.Background())
	cmd.Stdout = onWrite(cancel)
	result, err := Record(ctx, Options{Choices: [][]string{{"faults"}}, Command: cmd, Out: t.TempDir()})
	allowed(t, err)
	if result.Exit() != nil {
		t.Error("the program has ended with its recording")
	}
	in.Close()
	<-result.Ended
	if result.Exit().ExitCode() != 7 || len(columns(t, filepath.Join(result.Dir, rundir.TraceName),
		"addr")["addr"]) == 0 {
		t.Errorf("%v", result.Exit())
	}
	cmd, in = start()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	result, err = Record(context.Background(), Options{Choices: [][]string{{"faults"}}, PID: cmd.Process.Pid,
		Duration: 100 * time.Millisecond, Out: t.TempDir()})
	allowed(t, err)
	if _, err := os.Stat(filepath.Join(result.Dir, rundir.ManifestName)); err != nil {
		t.Error(err)
	}
	out := t.TempDir()
	go func() { // once it is recorded
		for begun := []string(nil); len(begun) == 0; time.Sleep(time.Millisecond) {
			begun, _ = filepath.Glob(filepath.Join(out, "*", "*", rundir.SocketName))
		}
		cmd.Process.Kill()
	}()
	result, err = Record(context.Background(), Options{Choices: [][]string{{"faults"}}, PID: cmd.Process.Pid, Out: out})
	if err != nil {
		cmd.Process.Kill()
	}
	allowed(t, err)
	<-result.Ended
	in.Close()
	cmd.Wait()
}

// TestRecordRefusals checks that each error is one line with a remedy, and leaves nothing behind.
func TestRecordRefusals(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	faults, pages := [][]string{{"faults"}}, [][]string{{"pages"}}
	for _, c := range []struct {
		name string
		o    Options
		is   []error
		want string
	}{
		{"no process", Options{Choices: faults, PID: gone.Process.Pid}, []error{ErrProcess},
			"does not run: give the number of one that does"},
		{"a thread of the kernel", Options{Choices: faults, PID: 2}, []error{ErrProcess}, "has no memory of its own"},
		{"pages of a process that runs", Options{Choices: pages, PID: os.Getpid()}, nil,
			"leave pages out, or let this command start the program"},
		{"no program of a name", Options{Choices: faults, Command: exec.Command("no-such-program-anywhere")},
			[]error{ErrStart, fs.ErrNotExist}, "give its path"},
		{"no program at a path", Options{Choices: faults, Command: exec.Command(filepath.Join(dir, "none"))},
			[]error{ErrStart, fs.ErrNotExist}, "give a program's path"},
		{"a file that is not executable", Options{Choices: faults,
			Command: exec.Command(write("plain", "text", 0o600))}, []error{ErrStart, fs.ErrPermission}, "chmod +x"},
		{"a script without interpreter", Options{Choices: faults,
			Command: exec.Command(write("script", "echo", 0o700))}, []error{ErrStart, syscall.ENOEXEC},
			"names no interpreter"},
		{"an output folder that is a file", Options{Choices: faults, Command: exec.Command("true"),
			Out: write("file", "", 0o600)}, nil, "choose another with -o"},
	} {
		out := t.TempDir()
		if c.o.Out == "" {
			c.o.Out = out
		}
		_, err := Record(context.Background(), c.o)
		if c.o.PID == 2 && (errors.Is(err, ErrProcess) && strings.Contains(fmt.Sprint(err), "does not run") ||
			errors.Is(err, os.ErrPermission)) {
			continue // a process namespace without the kernel's threads, or that hides them
		}
		if errors.Is(err, syscall.EACCES) && c.is == nil && os.Geteuid() != 0 {
			continue // this user may not sample
		}
		text := fmt.Sprint(err)
		if err == nil || !strings.Contains(text, c.want) || strings.Contains(text, "\n") {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, is := range c.is {
			if !errors.Is(err, is) {
				t.Errorf("%s: %v is not %v", c.name, err, is)
			}
		}
		if left, _ := os.ReadDir(out); len(left) != 0 {
			t.Errorf("%s left %v", c.name, left)
		}
	}
}

// TestRecordRefused: what cannot be sampled is not run, and leaves nothing.
func TestRecordRefused(t *testing.T) {
	out := t.TempDir()
	mark := filepath.Join(t.TempDir(), "ran")
	_, err := Record(context.Background(), Options{Choices: [][]string{{"perv"}}, Command: exec.Command("touch", mark),
		Out: out})
	if err == nil || !strings.Contains(err.Error(), "perv") {
		t.Error(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the program has run")
	}
	if left, _ := os.ReadDir(out); len(left) != 0 {
		t.Errorf("it left %v", left)
	}
}

// TestRecordOfPages checks that written pages of a program's own memory are recorded in the interval of the write.
func TestRecordOfPages(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "my tools") // a space ends a name in the loader's list
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	object := filepath.Join(folder, "written.so")
	if text, err := exec.Command(testenv.NeedCC(t), "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", object,
		filepath.Join(testenv.Root(t), "cgo", "tap", "tap_written.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	cmd := exec.Command(toucher(t), "4096")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var base uint64
	done := make(chan error, 1)
	go func() {
		var word string
		buf := make([]byte, 256)
		n, err := out.Read(buf)
		if word = strings.TrimSpace(string(buf[:n])); err == nil {
			base, err = strconv.ParseUint(word, 16, 64)
		}
		for i := 0; i < 400 && err == nil; i++ { // the same pages, until the end: some interval has them
			time.Sleep(5 * time.Millisecond)
			if _, err = io.WriteString(in, "100 2 50\n"); err == nil {
				_, err = out.Read(buf)
			}
		}
		in.Close()
		done <- err
	}()
	result, err := Record(context.Background(), Options{Choices: [][]string{{"pages"}}, Command: cmd, Out: t.TempDir(),
		Interval: 50 * time.Millisecond, Tap: object})
	allowed(t, err)
	<-result.Ended
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(result.Use.Missing) > 0 {
		t.Fatal(result.Use.Missing)
	}
	trace := columns(t, filepath.Join(result.Dir, rundir.TraceName), "addr", "size", "collector", "op", "window_ns")
	pages := map[uint64]bool{}
	for i := range trace["addr"] {
		addr, size := uint64(trace["addr"][i].(int64)), uint64(trace["size"][i].(int64))
		if trace["collector"][i] != "page" || trace["op"][i] == "" || trace["window_ns"][i].(int64) <= 0 {
			t.Errorf("row %d: %v", i, trace["op"][i])
		}
		for at := addr; at < addr+size; at += 4096 {
			if at >= base && at < base+4096<<12 {
				pages[(at-base)>>12] = true
			}
		}
	}
	for i := range uint64(50) {
		if !pages[100+2*i] {
			t.Errorf("page %d was written and not found", 100+2*i)
		}
		delete(pages, 100+2*i)
	}
	if len(pages) > 0 {
		t.Errorf("%d pages were found written that were not: %v", len(pages), pages)
	}
}

// loader is a program that maps a model's file, which is made too.
func loader(t *testing.T) (program, model string) {
	t.Helper()
	dir := t.TempDir()
	program, model = filepath.Join(dir, "loader"), filepath.Join(dir, "model.gguf")
	source := filepath.Join(testenv.Root(t), "runner", "memory", "testdata", "loader.c")
	if text, err := exec.Command(testenv.NeedCC(t), "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program,
		source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if err := os.WriteFile(model, bytes.Repeat([]byte{1}, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return program, model
}

// TestRecordOfLoader: in a program that maps a model's file that is weight, its heap runtime, its libraries code;
// and each has metrics.
func TestRecordOfLoader(t *testing.T) {
	program, model := loader(t)
	result, err := Record(context.Background(), Options{Choices: [][]string{{"faults"}},
		Command: exec.Command(program, model), Out: t.TempDir()})
	allowed(t, err)
	<-result.Ended
	regions := columns(t, filepath.Join(result.Dir, rundir.RegionsName), "region_id", "region_type", "name")
	types := map[string]any{}
	for i, name := range regions["name"] {
		types[name.(string)] = regions["region_type"][i]
	}
	if types[model] != "weight" || types["[heap]"] != "runtime" {
		t.Errorf("the model is %v, the heap %v", types[model], types["[heap]"])
	}
	report, err := memory.Analyze(t.Context(), result.Dir, memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"weight", "runtime", "code"} {
		if kind := report.Type(name); kind == nil || kind.Observed == nil || kind.Observed.Pages == 0 {
			t.Errorf("%s: %+v", name, kind)
		}
	}
}
