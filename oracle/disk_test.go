//go:build linux

package oracle

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"golang.org/x/sys/unix"
)

// generate is a run of so many tokens.
func generate(n int) []string {
	return []string{"-p", "func main() {", "-n", strconv.Itoa(n), "--temp", "0", "-t", "1", "--ignore-eos"}
}

// verified is what llamatap verify --json says.
type verified struct {
	OK       bool  `json:"ok"`
	Sealed   bool  `json:"sealed"`
	Packets  int   `json:"packets"`
	Tokens   int64 `json:"tokens"`
	Findings []struct{ Kind, What string }
}

func verifyJSON(t *testing.T, dir string) (v verified) {
	t.Helper()
	o := llamatap(t, "verify", "--json", dir)
	if err := json.Unmarshal([]byte(o.stdout), &v); err != nil {
		t.Fatalf("%v: %s%s", err, o.stdout, o.stderr)
	}
	return v
}

// kinds lists the kinds of findings, each once.
func (v verified) kinds() []string {
	var kinds []string
	for _, f := range v.Findings {
		kinds = append(kinds, f.Kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// TestSegments compares a run in segments with the same run in one: every tensor of every token, and the tokens
// themselves; each segment by itself is a run like any other.
func TestSegments(t *testing.T) {
	tap := []string{"--tap-tensors", "l_out,kqv_out,result_output"}
	whole := record(t, tap, generate(120)...).sealed(t)
	o := llamatap(t, slices.Concat([]string{"run", "--tap-segment", "128K", "--tap-preallocate", "64M"}, tap,
		generate(120))...).good(t)
	if len(o.dirs) != 1 || o.stdout != whole.stdout {
		t.Fatalf("%d directories, text %q, want %q", len(o.dirs), o.stdout, whole.stdout)
	}
	run := o.dirs[0]
	segments, err := rundir.Segments(run)
	if err != nil || len(segments) < 2 {
		t.Fatalf("segments %v, %v", segments, err)
	}
	if v := verifyJSON(t, run); !v.OK || !v.Sealed || v.Packets != len(whole.packets) ||
		v.Tokens != int64(len(whole.tokens)) {
		t.Errorf("%+v, want %d packets, %d tokens", v, len(whole.packets), len(whole.tokens))
	}
	for _, name := range []string{"l_out-0", "kqv_out-3", "result_output"} {
		for _, format := range []string{"json", "text"} {
			args := []string{"cat", "", "--tensor", name, "--format", format}
			args[1] = whole.dir
			want := llamatap(t, args...).good(t).stdout
			args[1] = run
			if got := llamatap(t, args...).good(t).stdout; got != want {
				t.Errorf("%s as %s differs", name, format)
			}
		}
	}
	var tokens []rundir.TokenRecord
	packets, time := 0, rundir.TimeAccount{}
	m := metadata(t, run)
	for i, name := range segments {
		v := verifyJSON(t, filepath.Join(run, name))
		part := metadata(t, filepath.Join(run, name))
		if !v.OK || !v.Sealed || part.Segment == nil || part.Segment.Name != name ||
			m.Segments[i].Packets != uint64(v.Packets) ||
			*part.Segment.FirstToken != int64(len(tokens)) || part.RunID != m.RunID+"/"+name {
			t.Errorf("%s: %+v, %+v", name, v, part.Segment)
		}
		var file struct{ Tokens []rundir.TokenRecord }
		readJSON(t, filepath.Join(run, name, "activations_tokens.json"), &file)
		tokens, packets = append(tokens, file.Tokens...), packets+v.Packets
		time.WallNS, time.Tokens = time.WallNS+part.Account.Time.WallNS, time.Tokens+part.Account.Time.Tokens
	}
	// What the tap did and the model waited for behind the last graph is known of the run alone.
	if all := m.Account.Time; time.Tokens != all.Tokens || time.WallNS > all.WallNS || time.WallNS < all.WallNS/2 {
		t.Errorf("the segments took %d ns for %d tokens, the run %d ns for %d", time.WallNS, time.Tokens, all.WallNS,
			all.Tokens)
	}
	if got, want := fmt.Sprint(describe(tokens)), fmt.Sprint(describe(whole.tokens)); got != want ||
		packets != len(whole.packets) {
		t.Errorf("tokens %s, want %s; %d packets", got, want, packets)
	}
	if m.Tokens == nil || *m.Tokens != *whole.meta.Tokens || m.Lossy ||
		m.Streams[0].BytesRaw != whole.meta.Streams[0].BytesRaw {
		t.Errorf("metadata %+v, %+v", m.Tokens, m.Streams)
	}
}

// describe writes tokens out, pointers followed.
func describe(tokens []rundir.TokenRecord) (all []string) {
	for i := range tokens {
		text, _ := json.Marshal(tokens[i])
		all = append(all, string(text))
	}
	return all
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func metadata(t *testing.T, dir string) (m rundir.Metadata) {
	t.Helper()
	readJSON(t, filepath.Join(dir, "metadata.json"), &m)
	return m
}

// TestMaxDisk watches the run directory while it is written: it never becomes larger than it may. What stops says
// where and how much is missing; what rotates keeps the newest segments.
func TestMaxDisk(t *testing.T) {
	const bound = 4 << 20
	whole := llamatap(t, "run", "--tap-preset", "balanced", "-p", "a", "-n", "1", "--temp", "0", "-t", "1").good(t)
	perGraph := int64(verifyJSON(t, whole.dirs[0]).Packets) // the prompt's, which is all that one token takes
	for _, action := range []string{"stop", "rotate"} {
		out := t.TempDir()
		cmd := command(t, slices.Concat([]string{"run", "--tap-preset", "balanced", "--tap-max-disk", "4M:" + action},
			generate(150))...)
		stop, largest := make(chan bool), make(chan int64)
		go func() {
			most := int64(0)
			for done := false; !done; {
				select {
				case done = <-stop:
				case <-time.After(time.Millisecond):
				}
				most = max(most, bytesBelow(out))
			}
			largest <- most
		}()
		o := finish(t, cmd, out).good(t)
		stop <- true
		if most := <-largest; most > bound || most < bound/4 {
			t.Errorf("%s: %d bytes at one time, %d are allowed", action, most, int64(bound))
		}
		m, v := metadata(t, o.dirs[0]), verifyJSON(t, o.dirs[0])
		if action == "stop" {
			checkStopped(t, m, v, "max_disk", 150, perGraph)
			continue
		}
		removed, a := *m.Rotated.Packets, m.Account
		last := m.Segments[len(m.Segments)-1]
		// Every packet of tokens is recorded, so the account is what 150 graphs of as many packets take.
		if first := m.Segments[0]; m.Rotated.Segments+len(m.Segments) != last.Number ||
			first.Number != m.Rotated.Segments+1 || *first.FirstToken != m.Rotated.Tokens ||
			m.Rotated.Causes["max_disk"] != m.Rotated.Segments || a.Rotated == nil ||
			a.Selected.Packets != uint64(150*perGraph) || a.Captured.Packets != uint64(v.Packets) ||
			a.Captured.Packets+a.Rotated.Packets != a.Selected.Packets || len(a.Violations) > 0 {
			t.Errorf("rotate: %+v, segments from %+v, account %+v", m.Rotated, first, a)
		}
		// Where the model waited during its warm-up, that was written before it was known to be one.
		total, want := removed+uint64(v.Packets), uint64(150*perGraph)
		if !v.OK || removed == 0 || total != want && total != want+uint64(perGraph) || last.LastToken == nil ||
			*last.LastToken < 150 || m.Lossy {
			t.Errorf("rotate: %+v, %d packets removed, lossy %v, last %+v", v, removed, m.Lossy, last)
		}
	}
}

// checkStopped demands a sealed run in which nothing is wrong but that recording stopped, and that every graph is
// accounted for.
func checkStopped(t *testing.T, m rundir.Metadata, v verified, cause string, graphs, perGraph int64) {
	t.Helper()
	if !v.Sealed || v.OK || !slices.Equal(v.kinds(), []string{"loss"}) || !m.Lossy || m.Stopped == nil ||
		m.Stopped.Cause != cause {
		t.Fatalf("%+v, lossy %v, stopped %+v", v, m.Lossy, m.Stopped)
	}
	missing := int64(0)
	for _, l := range m.Losses {
		missing += int64(l.Packets)
		if l.Cause != cause {
			t.Errorf("a loss by %s", l.Cause)
		}
	}
	if got := int64(v.Packets) + missing; got != graphs*perGraph || m.Stopped.GraphsAfter != 0 ||
		len(m.Account.Violations) > 0 {
		t.Errorf("%d packets recorded, %d missing, %d graphs of which nothing is known; want %d; %q", v.Packets,
			missing, m.Stopped.GraphsAfter, graphs*perGraph, m.Account.Violations)
	}
	if m.Stopped.LastToken == nil || *m.Stopped.LastToken != v.Tokens-1 {
		t.Errorf("last token %v of %d", m.Stopped.LastToken, v.Tokens)
	}
}

// bytesBelow is the size of all files below a folder, as they are listed.
func bytesBelow(folder string) (n int64) {
	filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// smallDisk mounts a file system of a size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	testenv.NeedRoot(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size="+size); err != nil {
		testenv.Beyond(t, "a file system of its own", err.Error())
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	return disk
}

// TestDiskFull fills the disk at many places: before the run directory is complete, in the stream, the index, the
// tokens. The program goes on to its end, and what is left is a sealed run that lacks only what it says, or
// nothing; the exit status reports it.
func TestDiskFull(t *testing.T) {
	tap := []string{"run", "--tap-preset", "balanced", "--tap-min-free", "0"}
	free := llamatap(t, slices.Concat(tap, generate(40))...).good(t)
	perGraph := int64(verifyJSON(t, free.dirs[0]).Packets) / 40
	sizes := []int{40, 260, 700, 1500, 2100, 2700, 3100}
	if testenv.Nightly() {
		for kib := 16; kib < 3800; kib += 52 {
			sizes = append(sizes, kib)
		}
	}
	sealed := 0
	for _, kib := range sizes {
		disk := smallDisk(t, fmt.Sprint(kib, "k"))
		o := llamatapIn(t, disk, slices.Concat(tap, generate(40))...)
		if o.stdout != free.stdout {
			t.Errorf("%d KiB: text %q\n%s", kib, o.stdout, o.stderr)
		}
		complete := false
		for _, dir := range o.dirs {
			v := verifyJSON(t, dir)
			if complete = v.OK; complete {
				if stopped := metadata(t, dir).Stopped; stopped != nil && !stopped.Whole {
					t.Errorf("%d KiB: verify finds nothing missing, and %+v", kib, stopped)
				}
			} else {
				checkStopped(t, metadata(t, dir), v, "disk_full", 40, perGraph)
			}
			sealed++
		}
		if status := map[bool]int{true: 0, false: 3}[complete]; o.status != status ||
			!complete && !strings.Contains(o.stderr, "is not whole") {
			t.Errorf("%d KiB: status %d, want %d\n%s", kib, o.status, status, o.stderr)
		}
		if times := strings.Count(o.stderr, "is full; free room there"); times != 1 && !complete {
			t.Errorf("%d KiB: reported %d times\n%s", kib, times, o.stderr)
		}
		if len(o.dirs) == 0 && len(everythingBelow(t, disk)) > 0 {
			t.Errorf("%d KiB: left %q", kib, everythingBelow(t, disk))
		}
	}
	if sealed < 3 {
		t.Errorf("%d of %d disks hold a run", sealed, len(sizes))
	}
}

// TestDiskFullBesideEvents: where other recorders run, too, a run whose disk filled up is sealed, and the exit status
// and verify agree on whether it lacks something.
func TestDiskFullBesideEvents(t *testing.T) {
	testenv.Slow(t)
	tap := []string{"run", "--tap-preset", "balanced", "--tap-resource-level", "MINIMAL", "--tap-min-free", "0"}
	sizes := []int{700, 2700, 3100}
	if testenv.Nightly() {
		for kib := 300; kib < 3800; kib += 40 {
			sizes = append(sizes, kib)
		}
	}
	for _, kib := range sizes {
		o := llamatapIn(t, smallDisk(t, fmt.Sprint(kib, "k")), slices.Concat(tap, generate(40))...)
		for _, dir := range o.dirs {
			if v := verifyJSON(t, dir); v.OK != (o.status == 0) || !v.Sealed {
				t.Errorf("%d KiB: status %d, %+v, %+v\n%s", kib, o.status, v, metadata(t, dir).Stopped, o.stderr)
			}
		}
	}
}

// TestDiskFullAtOnce: not even the first file fits, and a collector of the host has lines for another one.
func TestDiskFullAtOnce(t *testing.T) {
	disk := smallDisk(t, "4k")
	tap := []string{"run", "--tap-preset", "balanced", "--tap-host", "system", "--tap-min-free", "0"}
	o := llamatapIn(t, disk, slices.Concat(tap, generate(4))...)
	if left := everythingBelow(t, disk); o.status != 3 || o.stdout == "" || len(left) > 0 {
		t.Errorf("status %d, text %q, left %q\n%s", o.status, o.stdout, left, o.stderr)
	}
}

// TestDiskFullStops: with --tap-on-failure stop the program ends with its recording, and what was recorded is kept.
func TestDiskFullStops(t *testing.T) {
	for _, args := range [][]string{
		slices.Concat([]string{"run"}, everything, endless),
		slices.Concat([]string{"exec"}, everything, []string{"--", "llama-completion", "-no-cnv",
			"-m", testenv.Model(t)}, endless),
	} {
		disk := smallDisk(t, "3m")
		args = slices.Insert(args, 1, "--tap-on-failure", "stop", "--tap-min-free", "0")
		o := llamatapIn(t, disk, args...)
		if o.status == 0 || !oneLine(lastLine(o.stderr), "full", "--tap-out") {
			t.Errorf("%q: status %d\n%s", args[:1], o.status, o.stderr)
		}
		for _, dir := range o.dirs {
			if v := verifyJSON(t, dir); v.OK || !v.Sealed || v.Packets == 0 ||
				!slices.Equal(v.kinds(), []string{"loss"}) {
				t.Errorf("%+v", v)
			}
		}
	}
}

// TestMinFree: the run leaves free what it shall, and does not begin where less is free already.
func TestMinFree(t *testing.T) {
	disk := smallDisk(t, "8m")
	o := llamatapIn(t, disk, slices.Concat([]string{"run", "--tap-preset", "balanced", "--tap-min-free", "5M"},
		generate(150))...).good(t)
	var statfs unix.Statfs_t
	if err := unix.Statfs(disk, &statfs); err != nil || statfs.Bavail*uint64(statfs.Bsize) < 5<<20 {
		t.Errorf("%v, %d blocks are free", err, statfs.Bavail)
	}
	if v := verifyJSON(t, o.dirs[0]); metadata(t, o.dirs[0]).Stopped.Cause != "min_free" ||
		!slices.Equal(v.kinds(), []string{"loss"}) || v.Packets == 0 {
		t.Errorf("%+v", v)
	}
	o = llamatapIn(t, disk, slices.Concat([]string{"run", "--tap-preset", "balanced", "--tap-min-free", "7M"},
		generate(4))...)
	if o.status != 1 || o.stdout != "" || !oneLine(o.stderr, "--tap-min-free", "--tap-out") {
		t.Errorf("status %d, %q\n%s", o.status, o.stdout, o.stderr)
	}
}

// TestSegmentsKilled kills the collector in the middle of a run: every segment before the last is a result, and the
// run can be read.
func TestSegmentsKilled(t *testing.T) {
	out := t.TempDir()
	cmd := command(t, slices.Concat([]string{"run", "--tap-preset", "balanced", "--tap-segment", "256K",
		"--tap-on-failure", "stop"}, endless)...)
	cmd.Env = append(cmd.Environ(), "LLAMATAP_OUT="+out)
	cmd.WaitDelay = testenv.Patience()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	manifests := func() []string {
		files, _ := filepath.Glob(filepath.Join(out, "*", "run_*", "seg-*", "manifest.json"))
		return files
	}
	testenv.Until(t, "two segments are sealed", func() bool { return len(manifests()) >= 2 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	sealed := manifests()
	packets := 0
	for _, manifest := range sealed {
		v := verifyJSON(t, filepath.Dir(manifest))
		if packets += v.Packets; !v.OK {
			t.Errorf("%s: %+v", manifest, v)
		}
	}
	run := filepath.Dir(filepath.Dir(sealed[0]))
	if v := verifyJSON(t, run); v.OK || v.Sealed || v.Packets < packets {
		t.Errorf("the run: %+v, %d packets are sealed", v, packets)
	}
	llamatap(t, "inspect", run).good(t)
	llamatap(t, "cat", run, "--tensor", "l_out-0", "--token", "3").good(t)
}

// TestRunsSideBySide: runs that begin together in one folder each make a directory of their own.
func TestRunsSideBySide(t *testing.T) {
	out := t.TempDir()
	var together sync.WaitGroup
	for i := range 4 {
		together.Go(func() {
			llamatapIn(t, out, slices.Concat([]string{"run", "--tap-tensors", "l_out"}, generate(5+i))...).good(t)
		})
	}
	together.Wait()
	packets := map[int]bool{}
	for _, dir := range runDirs(t, out) {
		v := verifyJSON(t, dir)
		if packets[v.Packets] = true; !v.OK {
			t.Errorf("%s: %+v", dir, v)
		}
	}
	if len(packets) != 4 {
		t.Errorf("runs of %v packets", packets)
	}
}
