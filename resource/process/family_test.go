package process

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// tree is a made-up /proc.
type tree struct {
	t        *testing.T
	root     string
	clock    int64
	children []int
	m        *Monitor
}

// put makes a process: user and waited are CPU times in ticks, its own and that of children that it has waited for;
// each tick comes with a fault and 10 bytes read.
func (r *tree) put(pid, parent int, start uint64, state string, user, waited int64) {
	r.write(pid, "stat", fmt.Sprintf("%d (p%d) %s %d 1 1 0 -1 0 %d %d 0 0 %d 0 %d 0 20 0 2 0 %d 8192 1\n", pid, pid,
		state, parent, user, waited, user, waited, start))
	r.write(pid, "statm", "3 2 1 0 0 0 0\n")
	r.write(pid, "io", fmt.Sprintf("rchar: %d\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\n",
		10*(user+waited)))
}

func (r *tree) path(pid int, name string) string {
	return filepath.Join(r.root, "proc", strconv.Itoa(pid), name)
}

func (r *tree) write(pid int, name, text string) {
	err := os.MkdirAll(r.path(pid, ""), 0o700)
	if err == nil {
		err = os.WriteFile(r.path(pid, name), []byte(text), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *tree) end(pids ...int) {
	for _, pid := range pids {
		if err := os.RemoveAll(r.path(pid, "")); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *tree) snapshot(t *testing.T) resource.MonitorLine {
	t.Helper()
	r.clock += 1e9
	line, err := r.m.Snapshot(time.Unix(100, 0))
	if err != nil {
		t.Fatal(err)
	}
	return line.(resource.MonitorLine)
}

// newTree watches process 10 and what it starts.
func newTree(t *testing.T, follow bool) *tree {
	t.Helper()
	r := &tree{t: t, root: t.TempDir(), clock: 1}
	self := syscall.Getpid()
	r.put(self, 1, 5, "S", 0, 0)
	o := Options{Model: func() int { return 10 }, Interval: time.Second, Now: func() int64 { return r.clock },
		Root: r.root}
	if follow {
		o.Children = func() []int { return r.children }
	}
	var err error
	if r.m, err = Open(o); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFamily: every process has its record from its first line to its last, and the total is what all of them took,
// whoever has ended meanwhile.
func TestFamily(t *testing.T) {
	if runtime.GOOS != "linux" {
		testenv.Beyond(t, "Linux", "it reads process numbers")
	}
	r := newTree(t, true)
	check := func(what string, l resource.MonitorLine, children []int, ticks int64) {
		t.Helper()
		var pids []int
		sum := 0
		if l.Model != nil {
			sum = l.Model.Threads
		}
		for _, c := range l.Children {
			pids = append(pids, c.PID)
			sum += c.Threads
			if c.Name != fmt.Sprintf("p%d", c.PID) || c.Parent == 0 {
				t.Errorf("%s: %+v", what, c)
			}
		}
		u := l.Total
		if !reflect.DeepEqual(pids, children) || u == nil || u.UserNS != ticks*tickNS || u.Minor != uint64(ticks) ||
			u.Threads != sum || u.RSSBytes != uint64(2*u.Processes*os.Getpagesize()) || u.IO == nil ||
			u.IO.ReadBytes != uint64(10*ticks) {
			reply, _ := json.Marshal(l)
			t.Errorf("%s: want children %v and %d ticks in all: %s", what, children, ticks, reply)
		}
	}
	r.put(10, 1, 100, "S", 7, 3)
	r.children = []int{10, 11}
	r.put(11, 10, 110, "S", 5, 0)
	first := r.snapshot(t)
	check("their lives before", first, []int{11}, 15)
	if first.Model.UserNS != 7*tickNS || first.Total.CPUShare != nil || first.Total.Processes != 2 {
		t.Errorf("%+v", first.Total)
	}
	r.children = []int{10, 11, 12}
	r.put(10, 1, 100, "S", 8, 3)
	r.put(11, 10, 110, "S", 9, 0)
	r.put(12, 11, 120, "S", 2, 0)
	second := r.snapshot(t)
	check("another one", second, []int{11, 12}, 1+4+2)
	if c := second.Children; *c[0].CPUShare != 0.04 || c[1].CPUShare != nil || c[1].Parent != 11 ||
		*second.Total.CPUShare != 0.07 {
		t.Errorf("%+v", second)
	}
	// 11 has ended with 11 ticks, and nobody has waited for it so far; 12 has gone on to 3; 10 has started and waited
	// for one that used 20 and that is in no line.
	r.put(10, 1, 100, "S", 8, 23)
	r.put(11, 10, 110, "Z", 11, 0)
	r.put(12, 1, 120, "S", 3, 0)
	r.children = []int{10, 12}
	check("one that ended", r.snapshot(t), []int{12}, 20+2+1)
	// Now it has been waited for.
	r.put(10, 1, 100, "S", 8, 34)
	r.end(11)
	check("one that was waited for", r.snapshot(t), []int{12}, 0)
	// 12's number belongs to another process. What it took last is lost with it: its parent has ended before it.
	r.put(12, 10, 999, "S", 50, 0)
	replaced := r.snapshot(t)
	check("the same number again", replaced, []int{12}, 50)
	if replaced.Children[0].CPUShare != nil {
		t.Errorf("%+v", replaced.Children[0])
	}
	// Both a process and its child are gone, one waited for by the other.
	r.put(13, 12, 1000, "S", 4, 0)
	r.children = []int{12, 13}
	check("two", r.snapshot(t), []int{12, 13}, 4)
	r.end(12, 13)
	r.put(10, 1, 100, "S", 8, 34+50+4+6)
	r.children = nil
	check("a chain", r.snapshot(t), nil, 6)
	r.end(10)
	if l := r.snapshot(t); l.Model != nil || l.Total != nil {
		t.Errorf("nobody is left: %+v", l)
	}
}

// TestFamilyBounds checks the limit of processes in a line, and a line without children.
func TestFamilyBounds(t *testing.T) {
	if runtime.GOOS != "linux" {
		testenv.Beyond(t, "Linux", "it reads process numbers")
	}
	r := newTree(t, true)
	r.m.most = 5
	r.put(10, 1, 100, "S", 1, 0)
	for i := range r.m.most + 7 {
		r.children = append(r.children, 100_000_000+i)
		r.put(100_000_000+i, 10, 200, "S", 1, 0)
	}
	if l := r.snapshot(t); len(l.Children) != r.m.most || l.LeftOut != 7 || l.Total.Processes != r.m.most+1 {
		t.Errorf("%d children, %d left out, %+v", len(l.Children), l.LeftOut, l.Total)
	}
	r.end(r.children[0])
	r.write(r.children[1], "stat", "torn")
	if err := os.Remove(r.path(r.children[2], "io")); err != nil {
		t.Fatal(err)
	}
	if l := r.snapshot(t); len(l.Children) != r.m.most-2 || l.Children[0].PID != 100_000_002 ||
		l.Children[0].IO != nil || l.Total.IO != nil {
		t.Errorf("%d children, %+v", len(l.Children), l.Total)
	}
	alone := newTree(t, false)
	alone.put(10, 1, 100, "S", 1, 9)
	if l := alone.snapshot(t); l.Model == nil || l.Model.UserNS != tickNS || l.Children != nil || l.Total != nil {
		t.Errorf("%+v", l)
	}
}
