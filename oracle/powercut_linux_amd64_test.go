package oracle

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// TestPowerCuts records on ext4, and on XFS, on a disk that logs its writes, and cuts the power at every flush: once
// just after it, and once later, when a random part of the blocks that were written since is on the medium as well. The
// file system can be mounted, one repair leaves a sealed run, as after a kill, and everything is there whose sync had
// ended: every commit of a stream that was synced before its index, every complete table, and sealed segments
// unchanged, without a repair.
func TestPowerCuts(t *testing.T) {
	testenv.Slow(t)
	for i := range killedRuns {
		t.Run("ext4/"+killedRuns[i].name, func(t *testing.T) {
			newPowerCuts(t, i, newLoggedDisk(t, 512, "mkfs.ext4", "-q", "-F")).all(t)
		})
		// Where a directory's block of 4 KiB was written in part, XFS finds its checksum wrong and cannot be mounted.
		t.Run("xfs/"+killedRuns[i].name, func(t *testing.T) {
			newPowerCuts(t, i, newLoggedDisk(t, 4096, "mkfs.xfs", "-q", "-f", "-s", "size=4096")).all(t)
		})
	}
}

// powerCuts are those of one run.
type powerCuts struct {
	*kills
	disk     *loggedDisk
	promises []promise
	run      string                   // the run directory, below the mount
	whole    string                   // a copy of it
	prefixes map[string]stream.Totals // of indexes up to some byte
}

// A promise is what a sync ended with.
type promise struct {
	made   int      // the length of the disk's log then
	folder string   // below the mount
	names  []string // of files in it, if the folder was synced
	index  int64    // bytes that were in the index when a sync of the stream began, after which the index was synced
}

// newPowerCuts records a run.
func newPowerCuts(t *testing.T, i int, d *loggedDisk) *powerCuts {
	t.Helper()
	p := &powerCuts{kills: &kills{name: killedRuns[i].name, power: true}, disk: d,
		prefixes: map[string]stream.Totals{}}
	cmd := exec.Command(testenv.NeedBinary(t), killedArgs(i)...)
	cmd.Env = append(os.Environ(), "LLAMATAP_OUT="+d.mount)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	begun := map[int]promise{}    // by thread
	streams := map[string]int64{} // by folder: of the index, when the stream's last sync began
	status := traceCalls(t, cmd, func(c tracedCall) {
		within, err := filepath.Rel(d.mount, c.path)
		if err != nil || !filepath.IsLocal(within) || c.name != "fsync" && c.name != "fdatasync" {
			return
		}
		if c.returned {
			done := begun[c.tid]
			done.made = d.logged()
			switch {
			case filepath.Base(within) == "activations.stream":
				streams[done.folder] = done.index
			case filepath.Base(within) == "activations.stream.idx":
				done.index = streams[done.folder]
				p.promises = append(p.promises, done)
			case done.names != nil:
				p.promises = append(p.promises, done)
			}
			return
		}
		now := promise{folder: filepath.Dir(within)}
		if info, err := os.Stat(c.path); err == nil && info.IsDir() {
			now.folder, now.names = within, []string{}
			entries, _ := os.ReadDir(c.path)
			for _, e := range entries {
				if e.Type().IsRegular() {
					now.names = append(now.names, e.Name())
				}
			}
		} else if info, err := os.Stat(filepath.Join(d.mount, now.folder, "activations.stream.idx")); err == nil {
			now.index = info.Size()
		}
		begun[c.tid] = now
	})
	if status.ExitStatus() != 0 {
		t.Fatalf("status %d\n%s", status.ExitStatus(), printed.String())
	}
	dirs := runDirs(t, d.mount)
	if len(dirs) != 1 {
		t.Fatalf("runs %q", dirs)
	}
	p.run, _ = filepath.Rel(d.mount, dirs[0])
	p.whole = filepath.Join(t.TempDir(), filepath.Base(p.run))
	copyRun(t, dirs[0], p.whole)
	p.compareWith(t, p.whole, i)
	if err := unix.Unmount(d.mount, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

// all cuts the power at every flush.
func (p *powerCuts) all(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	flushes := p.disk.flushes()
	folder := filepath.Join(t.TempDir(), "after")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	images := p.disk.cuts(t)
	cuts, kept, sealed := 0, 0, 0
	for i, flushed := range flushes {
		later := len(p.disk.log)
		if i+1 < len(flushes) {
			later = flushes[i+1] - 1
		}
		at := []int{flushed}
		if later > flushed {
			at = append(at, flushed+1+r.IntN(later-flushed))
		}
		for _, cut := range at {
			mountLoop(t, images.cut(t, flushed, cut, r.Float64(), r), folder)
			what := fmt.Sprintf("cut %d, at %d of %d after the flush at %d", cuts, cut, len(p.disk.log), flushed)
			k, s := p.checkCut(t, what, folder, cut)
			kept, sealed = kept+k, sealed+s
			if err := unix.Unmount(folder, 0); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if t.Failed() {
				t.FailNow()
			}
			cuts++
		}
	}
	if cuts < 100 || kept == 0 {
		t.Errorf("%d cuts, in which %d commits were promised: too few", cuts, kept)
	}
	t.Logf("%d flushes, %d cuts; %d promises, by which %d commits and %d sealed folders had to be there", len(flushes),
		cuts, len(p.promises), kept, sealed)
}

// checkCut checks what is below a folder after a power cut, and counts commits and sealed folders that had to be
// there.
func (p *powerCuts) checkCut(t *testing.T, what, mount string, cut int) (commits, sealed int) {
	t.Helper()
	var due []promise
	for _, promise := range p.promises {
		if promise.made <= cut {
			due = append(due, promise)
		}
	}
	for _, promise := range due {
		for _, name := range promise.names {
			want, err := os.ReadFile(filepath.Join(p.whole, within(p.run, promise.folder), name))
			if err != nil {
				continue // was removed later
			}
			got, err := os.ReadFile(filepath.Join(mount, promise.folder, name))
			complete := strings.HasSuffix(name, ".parquet") || slices.Contains(promise.names, rundir.ManifestName)
			if err != nil || complete && !bytes.Equal(got, want) {
				t.Errorf("%s: %s in %s, whose folder was synced: %v; equal: %v", what, name, promise.folder, err,
					bytes.Equal(got, want))
			}
		}
		if slices.Contains(promise.names, rundir.ManifestName) {
			sealed++
			if v := verifyJSON(t, filepath.Join(mount, promise.folder)); !v.OK {
				t.Errorf("%s: %s was sealed: %+v", what, promise.folder, v)
			}
		}
	}
	for _, dir := range runDirs(t, mount) {
		p.check(t, what, dir)
	}
	least := map[string]int64{}
	for _, promise := range due {
		least[promise.folder] = max(least[promise.folder], promise.index)
	}
	for folder, index := range least {
		if index > 0 {
			commits += p.checkPart(t, what, within(p.run, folder), filepath.Join(mount, folder), index)
		}
	}
	return commits, sealed
}

// checkPart compares a repaired run or segment with what the first bytes of its index promised.
func (p *powerCuts) checkPart(t *testing.T, what, part, dir string, index int64) (commits int) {
	t.Helper()
	want := p.upTo(t, part, index)
	s, err := stream.Open(filepath.Join(dir, "activations.stream"))
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return 0
	}
	defer s.Close()
	got, whole := tokensOf(t, dir), tokensOf(t, filepath.Join(p.whole, part))
	bytesLeft := content(t, filepath.Join(dir, "activations.stream"))
	if s.Info().Totals.Commits < want.Commits || len(got) < int(want.Rows) || len(bytesLeft) < int(want.StreamBytes) {
		t.Errorf("%s: %d commits, %d tokens and %d bytes in %q, and %+v were synced", what, s.Info().Totals.Commits,
			len(got), len(bytesLeft), part, want)
		return 0
	}
	for i := range int(want.Rows) {
		if timeless(got[i]) != timeless(whole[i]) {
			t.Errorf("%s: token %d in %q is %s, want %s", what, i, part, timeless(got[i]), timeless(whole[i]))
		}
	}
	if whole := content(t, filepath.Join(p.whole, part, "activations.stream")); !bytes.HasPrefix(whole,
		bytesLeft[:want.StreamBytes]) {
		t.Errorf("%s: the %d bytes of stream in %q that were synced have changed", what, want.StreamBytes, part)
	}
	return int(want.Commits)
}

// within is a path relative to the run.
func within(run, path string) string {
	relative, err := filepath.Rel(run, path)
	if err != nil {
		return path
	}
	return relative
}

// upTo is what the first bytes of an index of the whole run hold up to their last commit.
func (p *powerCuts) upTo(t *testing.T, part string, index int64) stream.Totals {
	t.Helper()
	key := fmt.Sprint(part, index)
	if found, ok := p.prefixes[key]; ok {
		return found
	}
	from, to := filepath.Join(p.whole, part, "activations.stream"), filepath.Join(t.TempDir(), "activations.stream")
	for name, data := range map[string][]byte{to: content(t, from), to + ".idx": content(t, from+".idx")[:index]} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stream.Repair(to, stream.Assumed{}); err != nil {
		t.Fatal(err)
	}
	s, err := stream.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p.prefixes[key] = s.Info().Totals
	return p.prefixes[key]
}
