//go:build linux

package oracle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestResumeDiskFull fills the disk in the middle of a run, makes room, and goes on: what is there then is what a
// run leaves that always had room. The program continues, or ends, when the disk is full; it makes no difference. A
// resume that finds no room at all leaves the run as it was.
func TestResumeDiskFull(t *testing.T) {
	testenv.Slow(t)
	args := []string{"run", "--tap-tensors", "l_out*,attn_norm,ffn_out", "--checkpoint-every", "5",
		"--tap-min-free", "0", "-t", "1", "-s", "5",
		"-p", "func main() {", "-n", "120", "--ignore-eos"}
	whole := llamatap(t, args...).good(t)
	want := whole.capture(t)
	type disk struct {
		kib  int
		more []string
	}
	disks := []disk{{500, []string{"--tap-on-failure", "continue"}}, {900, []string{"--tap-on-failure", "stop"}},
		{1800, []string{"--tap-on-failure", "continue", "--checkpoint-state"}}}
	if testenv.Nightly() {
		for kib := 420; kib < 1500; kib += 60 {
			disks = append(disks, disk{kib, disks[0].more}, disk{kib, disks[1].more}, disk{kib * 2, disks[2].more})
		}
	}
	gone := 0
	for _, d := range disks {
		t.Run(fmt.Sprint(d.kib, d.more), func(t *testing.T) {
			disk := smallDisk(t, fmt.Sprint(d.kib, "k"))
			o := llamatapIn(t, disk, slices.Concat(args, d.more)...)
			if len(runDirs(t, disk)) == 0 || !resumes(t, disk) {
				t.Logf("nothing could be recorded, or all: status %d\n%s", o.status, o.stderr)
				return
			}
			if want := map[string]int{"continue": 3, "stop": 1}[d.more[1]]; o.status != want {
				t.Errorf("status %d, want %d\n%s", o.status, want, o.stderr)
			}
			filler, err := os.Create(filepath.Join(disk, "filler"))
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = filler.Write(make([]byte, 4096))
			}
			filler.Close()
			if full := finish(t, command(t, "run", "--tap-resume", dirOf(t, disk)), disk); full.status == 0 ||
				!resumes(t, disk) {
				t.Fatalf("resumed on a full disk: status %d\n%s", full.status, full.stderr)
			}
			os.Remove(filler.Name())
			if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
				t.Fatal(err)
			}
			got := finish(t, command(t, "run", "--tap-resume", dirOf(t, disk)), disk).good(t)
			if got.stdout != whole.stdout {
				t.Errorf("the text is\n%q, and with room\n%q", got.stdout, whole.stdout)
			}
			run := got.capture(t)
			sameRun(t, run, want)
			if run.meta.Lossy || run.meta.Stopped != nil || run.meta.Resumed == nil {
				t.Errorf("lossy %v, stopped %+v, resumed %+v", run.meta.Lossy, run.meta.Stopped, run.meta.Resumed)
			}
			t.Logf("%d tokens were not computed again", run.meta.Resumed.NotComputed)
			llamatap(t, "verify", dirOf(t, disk)).good(t)
			gone++
		})
	}
	if gone < 2 {
		t.Errorf("%d runs were resumed", gone)
	}
}
