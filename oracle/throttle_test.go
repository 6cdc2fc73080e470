//go:build linux

package oracle

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestThrottledDisk records to a disk of at most 20 MiB/s what is made three times as fast or faster. With the policy
// block the model waits and nothing is lost; with drop it does not, and what is recorded and what is lost add up. Both
// processes together take no more memory than was allowed.
func TestThrottledDisk(t *testing.T) {
	testenv.Slow(t)
	const memory = 128
	args := []string{"-p", prompt, "-n", "450", "--temp", "0", "--ignore-eos", "-t", "1", "-c", "512"}
	plain := llamatap(t, slices.Concat([]string{"run"}, args)...).good(t)
	base := untracedPeak(t, args)
	whole := record(t, everything, args...)
	rate := min(20<<20, int64(bytesOf(whole))*int64(time.Second)/3/whole.meta.Account.Time.WallNS)
	for _, policy := range []string{"block", "drop"} {
		t.Run(policy, func(t *testing.T) {
			out := t.TempDir()
			cmd := command(t, slices.Concat([]string{"run"}, everything, []string{"--tap-memory", "128M",
				"--tap-overflow", policy, "--tap-workers", "1"}, args)...)
			testenv.Throttle(t, cmd, out, rate)
			o := finish(t, cmd, out)
			if o.stdout != plain.stdout {
				t.Errorf("text %q, want %q", o.stdout, plain.stdout)
			}
			c := o.capture(t)
			var lost uint64
			for _, l := range c.meta.Losses {
				lost += l.Bytes
			}
			if got, want := bytesOf(c)+lost, bytesOf(whole); got != want {
				t.Errorf("%d bytes are recorded or lost, want %d", got, want)
			}
			waited := c.meta.Account.Time.WaitNS
			if share, ok := c.meta.Account.Time.Overhead(); !ok ||
				share*float64(c.meta.Account.Time.WallNS) < float64(waited) {
				t.Errorf("an overhead of %v %v, and %d ns of waiting", share, ok, waited)
			}
			switch {
			case policy == "block" && (o.status != 0 || lost != 0 || waited == 0):
				t.Errorf("status %d, %d bytes lost, the model waited for %d ns: want 0, 0 and more", o.status,
					lost, waited)
			case policy == "drop" && (o.status != 3 || lost == 0):
				t.Errorf("status %d, %d bytes lost: the disk was fast enough, or the loss was not reported\n%s",
					o.status, lost, o.stderr)
			}
			var use struct {
				Collector int64 `json:"collector_peak_rss_kib"`
				Shared    int64 `json:"collector_shared_kib"`
				Model     int64 `json:"model_peak_rss_kib"`
			}
			if err := json.Unmarshal(c.meta.Extra["processes"], &use); err != nil {
				t.Fatal(err)
			}
			if extra := use.Collector - use.Shared + use.Model - base; extra > memory<<10 {
				t.Errorf("both processes together take %d MiB more than the model alone, at their peaks, and %d are "+
					"allowed: %+v, %d KiB alone",
					extra>>10, memory, use, base)
			}
		})
	}
}

// untracedPeak is the largest resident size, in KiB, of a run that is not recorded.
func untracedPeak(t *testing.T, args []string) int64 {
	t.Helper()
	cmd := command(t, append([]string{"run"}, args...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, strings.TrimSpace(said.String()))
	}
	return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
}
