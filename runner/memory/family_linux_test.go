package memory

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// A family is a program that forks two workers (testdata/family.c).
type family struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     io.Reader
	halves  uint64 // where the array lies
	workers [2]int64
}

const halfPages = 64

func newFamily(t *testing.T, args ...string) *family {
	t.Helper()
	program := filepath.Join(t.TempDir(), "family")
	tool(t, testenv.NeedCC(t), "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program,
		filepath.Join(testenv.Root(t), "runner", "memory", "testdata", "family.c"))
	f := &family{cmd: exec.Command(program, args...)}
	var err error
	if f.in, err = f.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if f.out, err = f.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	return f
}

// await waits until the workers are there.
func (f *family) await() error {
	line, err := bufio.NewReader(f.out).ReadString('\n')
	if err == nil {
		_, err = fmt.Sscanf(line, "%x %d %d", &f.halves, &f.workers[0], &f.workers[1])
	}
	return err
}

// work lets them touch their pages.
func (f *family) work() error {
	_, err := io.WriteString(f.in, "\n")
	return err
}

// check demands that each worker has touched its own pages, and nobody else any.
func (f *family) check(t *testing.T, dir, collector string) {
	t.Helper()
	trace := columns(t, filepath.Join(dir, rundir.TraceName), "addr", "size", "pid", "symbol", "data_symbol",
		"region_type", "collector")
	touched := map[int64]map[int]bool{}
	for i := range trace["addr"] {
		from := uint64(trace["addr"][i].(int64))
		if trace["collector"][i] != collector || from < f.halves || from >= f.halves+2*halfPages<<12 {
			continue
		}
		pid := trace["pid"][i].(int64)
		if touched[pid] == nil {
			touched[pid] = map[int]bool{}
		}
		for at := from; at == from || at < from+uint64(trace["size"][i].(int64)); at += 4096 {
			touched[pid][int(at-f.halves)>>12] = true
		}
		if trace["data_symbol"][i] != "halves" || trace["region_type"][i] != "static_data" || collector == "fault" &&
			trace["symbol"][i] != "touch_half" {
			t.Errorf("row %d at %x of process %d: %v by %v in %v", i, from, pid, trace["data_symbol"][i],
				trace["symbol"][i], trace["region_type"][i])
		}
	}
	for w, pid := range f.workers {
		want := map[int]bool{}
		for page := 0; page < halfPages; page += w + 1 {
			want[w*halfPages+page] = true
		}
		for page := range want {
			if !touched[pid][page] {
				t.Errorf("worker %d has touched page %d, which is not recorded", w, page)
			}
		}
		for page := range touched[pid] {
			if !want[page] {
				t.Errorf("page %d is recorded for worker %d, which did not touch it", page, w)
			}
		}
		delete(touched, pid)
	}
	if len(touched) > 0 {
		t.Errorf("others touched pages: %v", touched)
	}
}

// processesOf lists the processes in a run's metadata.
func processesOf(t *testing.T, dir string) (all []followed) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, rundir.MetadataName))
	if err != nil {
		t.Fatal(err)
	}
	var m rundir.Metadata
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(m.Extra["processes"], &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRecordFollowsForks: what a program forks is sampled too, each process for itself.
func TestRecordFollowsForks(t *testing.T) {
	f := newFamily(t)
	done := make(chan error, 1)
	go func() {
		err := f.await()
		if err == nil {
			err = f.work()
		}
		done <- err
	}()
	result, err := Record(context.Background(), Options{Choices: [][]string{{"faults"}}, Command: f.cmd,
		Out: t.TempDir()})
	allowed(t, err)
	<-result.Ended
	if err := <-done; err != nil || result.Exit().ExitCode() != 7 || result.Use.Lossy || result.Use.Others != 0 {
		t.Fatalf("%v, %v, %+v", err, result.Exit(), result.Use)
	}
	f.check(t, result.Dir, "fault")
	all := processesOf(t, result.Dir)
	if len(all) != 3 {
		t.Fatalf("%+v", all)
	}
	for i, p := range all {
		first := int32(f.cmd.Process.Pid)
		if i > 0 && (p.Parent != first || int64(p.PID) != f.workers[i-1] || p.Name != "family" || p.Begin == 0 ||
			p.End < p.Begin || p.Samples < 32) || i == 0 && p.PID != first {
			t.Errorf("%+v", p)
		}
	}
}

// TestRecordAlone checks that child processes are omitted if asked for.
func TestRecordAlone(t *testing.T) {
	f := newFamily(t)
	go func() {
		if f.await() == nil {
			f.work()
		}
	}()
	result, err := Record(context.Background(), Options{Choices: [][]string{{"faults"}}, Command: f.cmd, Alone: true,
		Out: t.TempDir()})
	allowed(t, err)
	<-result.Ended
	pids := columns(t, filepath.Join(result.Dir, rundir.TraceName), "pid")["pid"]
	for _, pid := range pids {
		if pid != int64(f.cmd.Process.Pid) {
			t.Errorf("a row of process %d", pid)
		}
	}
	if len(pids) < 20 || len(processesOf(t, result.Dir)) != 1 {
		t.Errorf("%d rows, %+v", len(pids), processesOf(t, result.Dir))
	}
}

// TestRecordFindsChildren: of a process that runs, the children that it has already are sampled too.
func TestRecordFindsChildren(t *testing.T) {
	f := newFamily(t)
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer f.cmd.Wait()
	defer f.in.Close()
	if err := f.await(); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	worked := make(chan error, 1)
	go func() {
		for { // the directory is made when the events are open
			if runs, _ := filepath.Glob(filepath.Join(out, "*", "run_*")); len(runs) > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		worked <- f.work()
	}()
	result, err := Record(context.Background(), Options{Choices: [][]string{{"faults"}}, PID: f.cmd.Process.Pid,
		Out: out})
	allowed(t, err)
	<-result.Ended
	if err := <-worked; err != nil || result.Use.Lossy {
		t.Fatalf("%v, %+v", err, result.Use)
	}
	f.check(t, result.Dir, "fault")
}

// TestRecordPagesOfForks checks that written pages are recorded by process.
func TestRecordPagesOfForks(t *testing.T) {
	object := filepath.Join(t.TempDir(), "written.so")
	tool(t, testenv.NeedCC(t), "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", object,
		filepath.Join(testenv.Root(t), "cgo", "tap", "tap_written.c"))
	f := newFamily(t, "150")
	done := make(chan error, 1)
	go func() {
		err := f.await()
		if err == nil {
			time.Sleep(200 * time.Millisecond) // some scans; what is written before the first one is not recorded
			err = f.work()
		}
		done <- err
	}()
	result, err := Record(context.Background(), Options{Choices: [][]string{{"pages"}}, Command: f.cmd,
		Out: t.TempDir(), Interval: 50 * time.Millisecond, Tap: object})
	allowed(t, err)
	<-result.Ended
	if err := <-done; err != nil || len(result.Use.Missing) > 0 {
		t.Fatalf("%v, %+v", err, result.Use)
	}
	f.check(t, result.Dir, "page")
	seen := map[int64]bool{}
	for _, l := range monitored(t, result.Dir) {
		for _, c := range l.Children {
			seen[int64(c.PID)] = true
		}
	}
	if !seen[f.workers[0]] || !seen[f.workers[1]] {
		t.Errorf("process.jsonl has %v, not %v", seen, f.workers)
	}
}

// TestRecordFollowsPrograms: a shell starts two programs at a time: each sample has the process that it is of, and
// the names of that process's program.
func TestRecordFollowsPrograms(t *testing.T) {
	cc, dir := testenv.NeedCC(t), t.TempDir()
	var lines []string
	for _, name := range []string{"first", "second"} {
		source := filepath.Join(dir, name+".c")
		text := fmt.Sprintf(`#include <stdio.h>
#include <unistd.h>
__attribute__((aligned(4096))) char %[1]s_array[100 * 4096];
__attribute__((noinline)) void %[1]s_touch(int i) { *(volatile char *) (%[1]s_array + i * 4096) = 1; }
int main(void) {
    for (int i = 0; i < 100; i++) {
        %[1]s_touch(i);
    }
    printf("%[1]s %%d\n", (int) getpid());
    return 0;
}`, name)
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		tool(t, cc, "-std=gnu11", "-O1", "-Wall", "-o", filepath.Join(dir, name), source)
		lines = append(lines, filepath.Join(dir, name)+" &")
	}
	var said bytes.Buffer
	cmd := exec.Command("sh", "-c", strings.Join(lines, " ")+" wait; exit 5")
	cmd.Stdout = &said
	result, err := Record(context.Background(), Options{Choices: [][]string{{"faults"}}, Command: cmd,
		Out: t.TempDir()})
	allowed(t, err)
	<-result.Ended
	if result.Exit().ExitCode() != 5 || result.Use.Lossy {
		t.Fatalf("%v, %+v", result.Exit(), result.Use)
	}
	program := map[int64]string{}
	for line := range strings.Lines(said.String()) {
		var name string
		var pid int64
		if _, err := fmt.Sscan(line, &name, &pid); err != nil {
			t.Fatal(err)
		}
		program[pid] = name
	}
	trace := columns(t, filepath.Join(result.Dir, rundir.TraceName), "pid", "symbol", "data_symbol")
	pages := map[string]int{}
	for i, pid := range trace["pid"] {
		variable, function := trace["data_symbol"][i].(string), trace["symbol"][i].(string)
		name, _, ours := strings.Cut(variable, "_array")
		if !ours {
			continue
		}
		pages[name]++
		if program[pid.(int64)] != name || function != name+"_touch" {
			t.Errorf("%s touches %s in process %d, which is %q", function, variable, pid, program[pid.(int64)])
		}
	}
	if pages["first"] != 100 || pages["second"] != 100 || len(program) != 2 {
		t.Errorf("%v, %v", pages, program)
	}
	checkUses(t, result.Dir, program)
	names := []string{}
	for _, p := range processesOf(t, result.Dir) {
		names = append(names, p.Name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"", "first", "second"}) &&
		!slices.Equal(names, []string{"first", "second", "sh"}) {
		t.Errorf("processes %q", names)
	}
}
