package memory

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// monitored are the lines of a run's process.jsonl.
func monitored(t *testing.T, dir string) (all []resource.MonitorLine) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, rundir.ProcessName))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var l resource.MonitorLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// recordFamily records a family until each of its workers stands in process.jsonl, or would if it were followed,
// and then lets it end.
func recordFamily(t *testing.T, o Options) (*family, []resource.MonitorLine) {
	t.Helper()
	f := newFamily(t)
	o.Command, o.Out, o.Interval, o.Choices = f.cmd, t.TempDir(), 50*time.Millisecond, [][]string{{"faults"}}
	done := make(chan error, 1)
	go func() {
		err := f.await()
		for enough := false; err == nil && !enough; time.Sleep(time.Millisecond) {
			paths, _ := filepath.Glob(filepath.Join(o.Out, "*", "run_*", rundir.ProcessName))
			for _, path := range paths {
				text, _ := os.ReadFile(path)
				enough = strings.Count(string(text), `"parent_pid"`) >= 4 || o.Alone &&
					strings.Count(string(text), `"model"`) >= 4
			}
		}
		if err == nil {
			err = f.work()
		}
		done <- err
	}()
	result, err := Record(context.Background(), o)
	allowed(t, err)
	<-result.Ended
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return f, monitored(t, result.Dir)
}

// TestRecordTellsOfEach: process.jsonl has a record for each process that was sampled, and their sum.
func TestRecordTellsOfEach(t *testing.T) {
	f, lines := recordFamily(t, Options{})
	seen := map[int64]int{}
	for _, l := range lines {
		if l.Model == nil {
			continue
		}
		rss, threads := l.Model.RSSBytes, l.Model.Threads
		if l.Model.PID != f.cmd.Process.Pid || l.Model.Name != "family" || l.Total == nil ||
			l.Total.Processes != 1+len(l.Children) {
			t.Fatalf("%+v, total %+v", l.Model, l.Total)
		}
		for _, c := range l.Children {
			seen[int64(c.PID)]++
			rss, threads = rss+c.RSSBytes, threads+c.Threads
			if c.Parent != f.cmd.Process.Pid || c.Name != "family" || c.RSSBytes == 0 {
				t.Errorf("%+v", c)
			}
		}
		if l.Total.RSSBytes != rss || l.Total.Threads != threads {
			t.Errorf("%+v is no sum", l.Total)
		}
	}
	if len(seen) != 2 || seen[f.workers[0]] < 2 || seen[f.workers[1]] < 2 {
		t.Errorf("workers %v, lines of %v", f.workers, seen)
	}
}

// TestRecordOfOne checks that process.jsonl contains the program when its children are omitted.
func TestRecordOfOne(t *testing.T) {
	_, lines := recordFamily(t, Options{Alone: true})
	for _, l := range lines {
		if len(l.Children) > 0 || l.Total != nil {
			t.Errorf("%+v, %+v", l.Children, l.Total)
		}
	}
}

// checkUses demands that the report on a run shows what each of its programs, by process, did to 100 pages of its
// array, and in which function.
func checkUses(t *testing.T, dir string, programs map[int64]string) {
	t.Helper()
	r, err := memory.Analyze(context.Background(), dir, memory.Options{Uses: true})
	if err != nil {
		t.Fatal(err)
	}
	for pid, name := range programs {
		found := 0
		for _, u := range r.Processes {
			if u.PID != nil && *u.PID == pid && u.Program == name && u.Samples > 100 {
				found++
			}
		}
		for _, u := range r.DataSymbols {
			if u.DataSymbol == name+"_array" && u.Samples == 100 && *u.PagesSeen == 100 && u.Source == memory.Measured {
				found++
			}
		}
		for _, u := range r.Symbols {
			if u.Symbol == name+"_touch" && u.Samples >= 100 {
				found++
			}
		}
		if found != 3 {
			t.Errorf("%s in process %d: %+v", name, pid, r.Processes)
		}
	}
}
