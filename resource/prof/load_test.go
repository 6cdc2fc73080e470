//go:build linux

package prof_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/prof"
)

// goesOn runs the workload from beginning to end under a name of its own, by which it is watched, and returns what
// c counted of it.
func goesOn(t *testing.T, c *prof.Collector, program string, args ...string) map[string]*resource.ProfSyscall {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "WORKLOAD_GOES_ON=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("workload: %v\n%s", err, out)
	}
	return snapshot(t, c).calls()
}

// named is the workload under a name that no other process has.
func named(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	if err := os.Link(workload(t), program); err != nil {
		t.Fatal(err)
	}
	return program
}

func TestCallsAreCountedAsStraceCountsThem(t *testing.T) {
	strace := testenv.NeedStrace(t)
	program := named(t, "prof-and-strace")
	c := open(t, prof.Options{Target: bpf.Target{Comm: "prof-and-strace"}})
	file := filepath.Join(t.TempDir(), "file")
	got := goesOn(t, c, program, "calls", file)
	noLosses(t, c)

	counts := filepath.Join(t.TempDir(), "counts")
	cmd := exec.Command(strace, "-f", "-c", "-o", counts, program, "calls", file)
	cmd.Env = append(os.Environ(), "WORKLOAD_GOES_ON=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("strace: %v\n%s", err, out)
	}
	text, err := os.ReadFile(counts)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for row := range strings.Lines(string(text)) {
		f := strings.Fields(row) // share, seconds, µs a call, calls, errors where there are some, name
		if len(f) < 5 {
			continue
		}
		var said line
		said.calls, _ = strconv.ParseUint(f[3], 10, 64)
		if len(f) == 6 {
			said.errors, _ = strconv.ParseUint(f[4], 10, 64)
		}
		var counted line
		for _, op := range []string{"", " wait", " wake", " other"} {
			if e := got[f[len(f)-1]+op]; e != nil {
				counted.calls, counted.errors = counted.calls+e.Count, counted.errors+e.Errors
			}
		}
		if counted.calls == 0 {
			continue // not tracked, as execve
		}
		if compared++; counted != said {
			t.Errorf("%s: counted %v, strace %v", f[len(f)-1], counted, said)
		}
	}
	if compared < 30 {
		t.Errorf("compared %d calls\n%s", compared, text)
	}
}

func TestAStormOfProcesses(t *testing.T) {
	const processes = 1000
	program := named(t, "prof-storm")
	c := open(t, prof.Options{Target: bpf.Target{Comm: "prof-storm"}})
	goesOn(t, c, program, "forks", "1")
	before, err := prof.Kept(c)
	if err != nil {
		t.Fatal(err)
	}
	got := goesOn(t, c, program, "forks", strconv.Itoa(processes))
	for name, errno := range map[string]string{"close": "EBADF", "pread64": "EBADF"} {
		e := got[name]
		if e == nil || e.ErrorsBy[errno] != processes || e.Evicted != 0 || e.Callers < processes ||
			len(e.TopCallers) != 5 {
			t.Fatalf("%s: %+v", name, e)
		}
	}
	after, err := prof.Kept(c)
	if err != nil || !maps.Equal(before, after) {
		t.Errorf("kept %v before and %v after it, %v", before, after, err)
	}
	noLosses(t, c)
}

func TestProcessesThatFindNoRoom(t *testing.T) {
	const processes, room = 100, 40
	program := named(t, "prof-crowd")
	c := open(t, prof.WithCallers(prof.Options{Target: bpf.Target{Comm: "prof-crowd"}}, room))
	got := goesOn(t, c, program, "forks", strconv.Itoa(processes))
	var evicted, counted, reported uint64
	for _, e := range got {
		reported += e.Lost["caller"]
		evicted += e.Evicted
		counted += uint64(e.Callers)
		if e.Timed != e.Count {
			t.Errorf("%s: %d of %d timed", e.Syscall, e.Timed, e.Count)
		}
	}
	lost, err := c.Losses()
	if e := got["close"]; err != nil || e.ErrorsBy["EBADF"] != processes || evicted == 0 || lost["caller"] != evicted ||
		reported != evicted || counted > room {
		t.Errorf("closes %+v; %d evicted, %d of them reported, %d kept, lost %v, %v", e, evicted, reported, counted,
			lost, err)
	}
	// What has ended made room.
	if e := goesOn(t, c, program, "forks", "5")["close"]; e.ErrorsBy["EBADF"] != 5 || e.Evicted != 0 || e.Lost != nil {
		t.Errorf("afterwards %+v", e)
	}
}

// reads is how many reads each of the two threads makes under load.
func reads() int {
	if testenv.Nightly() {
		return 50_000_000
	}
	return 200_000
}

func TestLoadWithoutLoss(t *testing.T) {
	w := start(t, "many", strconv.Itoa(reads()))
	c := open(t, prof.Options{Target: of(w)})
	w.resume()
	var count, bytes, timed, inBuckets uint64
	var longest, seconds float64
	var kept map[string]int
	for ended := false; !ended; {
		var status unix.WaitStatus
		if _, err := unix.Wait4(w.pid(), &status, unix.WUNTRACED|unix.WNOHANG, nil); err != nil {
			t.Fatal(err)
		}
		ended = status.Stopped()
		all := snapshot(t, c)
		now, err := prof.Kept(c)
		if err != nil || now["calls"] > 20 || now["opens"] > 2 || now["processes"] > 1 {
			t.Fatalf("kept %v, before %v, %v", now, kept, err)
		}
		kept = now
		if e := all.calls()["read"]; e != nil && e.Count > 0 {
			// each snapshot is whole, though the counters are written all the time
			if e.Timed != e.Count || e.Bytes != e.Count {
				t.Errorf("%d reads, %d timed, %d bytes", e.Count, e.Timed, e.Bytes)
			}
			count, bytes, timed = count+e.Count, bytes+e.Bytes, timed+e.Timed
			for _, b := range e.Latency {
				inBuckets += b.Count
			}
			longest, seconds = max(longest, *e.LatMaxUS), seconds+e.IntervalS
		}
	}
	want := w.end()["read"]
	noLosses(t, c)
	if count != want.calls || bytes != want.bytes || timed != count || inBuckets != count {
		t.Errorf("counted %d reads, %d bytes, %d timed, %d in buckets; made were %v", count, bytes, timed, inBuckets,
			want)
	}
	t.Logf("%d reads in %.2f s, %.0f a second, longest %.1f µs", count, seconds, float64(count)/seconds, longest)
}

func TestProcessesThatChangeTheirName(t *testing.T) {
	w := start(t, "renamed")
	c := open(t, prof.Options{Target: of(w)})
	w.work()
	got := snapshot(t, c).calls()["close"]
	w.end()
	if got == nil || len(got.TopCallers) != 1 || got.TopCallers[0].Comm != "another name" || got.Count != 2 {
		t.Errorf("closes %+v", got)
	}
}

// dark lists the fields that are zero in all of some structs of one type, those of structs within them too.
func dark(all []reflect.Value, path string) []string {
	var found []string
	for i := range all[0].NumField() {
		f := all[0].Type().Field(i)
		var values []reflect.Value
		for _, v := range all {
			if v = v.Field(i); v.Kind() == reflect.Pointer && !v.IsNil() {
				v = v.Elem()
			}
			switch {
			case v.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
				for j := range v.Len() {
					values = append(values, v.Index(j))
				}
			case v.Kind() == reflect.Struct || !v.IsZero():
				values = append(values, v)
			}
		}
		switch {
		case len(values) == 0:
			found = append(found, path+f.Name)
		case values[0].Kind() == reflect.Struct:
			found = append(found, dark(values, path+f.Name+".")...)
		}
	}
	return found
}

// lit checks that each field of one type of events but some is set in one of them at least.
func lit[E any](t *testing.T, all []*E, but ...string) {
	t.Helper()
	var values []reflect.Value
	for _, e := range all {
		values = append(values, reflect.ValueOf(e).Elem())
	}
	if len(values) == 0 {
		t.Fatal("no events")
	}
	for _, name := range dark(values, "") {
		if !slices.Contains(but, strings.TrimPrefix(name, "ProfHeader.")) {
			t.Errorf("%T: %s stays 0", all[0], name)
		}
	}
}

func TestEveryFieldOfCallsIsLit(t *testing.T) {
	stamper := prof.Stamper{Run: "run_1", Labels: map[string]string{"a": "b"}}
	var all []*resource.ProfSyscall
	take := func(c *prof.Collector) {
		for _, e := range snapshot(t, c).calls() {
			all = append(all, e)
		}
	}
	w := start(t, "calls", filepath.Join(t.TempDir(), "file"))
	c := open(t, prof.WithCallers(prof.Options{Target: of(w), SampledOneOf: 2, Stamper: stamper}, 20))
	w.work()
	take(c)
	w = start(t, "blocked")
	c = open(t, prof.Options{Target: of(w), Stamper: stamper})
	w.resume()
	untilBlocked(t, c)
	take(c)
	lit(t, all)
}

func TestWhatTheTargetStarts(t *testing.T) {
	const processes = 20
	for _, follow := range []bool{true, false} {
		w := start(t, "forks", strconv.Itoa(processes))
		c := open(t, prof.Options{Target: of(w), Follow: follow})
		w.work()
		got := snapshot(t, c).calls()["pread64"]
		watched, err := prof.Targets(c)
		if err != nil || watched != 1 {
			t.Errorf("%d processes are watched at the end, %v", watched, err)
		}
		w.end()
		noLosses(t, c)
		if !follow {
			if got != nil {
				t.Errorf("counted of nobody's: %+v", got)
			}
			continue
		}
		if got == nil || got.ErrorsBy["EBADF"] != processes || got.Callers != processes {
			t.Errorf("counted %+v of %d processes", got, processes)
		}
	}
}
