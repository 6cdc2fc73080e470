package sched

import (
	"os"
	"os/exec"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource/bpf"
)

// TestEndedAreForgotten: what is known of processes that have ended goes with them, here and in the kernel, however
// many there were.
func TestEndedAreForgotten(t *testing.T) {
	testenv.NeedBPF(t)
	for name, o := range sources {
		t.Run(name, func(t *testing.T) {
			o.Target, o.Follow = bpf.Target{PIDs: []int{os.Getpid()}}, true
			c := opened(t, o)
			for range 3 {
				if out, err := exec.Command("/bin/sh", "-c",
					`i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done`).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				snap(t, c)
			}
			snap(t, c) // one that ended unseen is taken for ended the second time that it is not there
			snap(t, c)
			const some = 150 // of the threads of this process, and of what a child of it is
			n := 0
			if c.programs != nil {
				n = len(c.programs.history)
			}
			if n > some || len(c.poller.polled) > some {
				t.Errorf("%d and %d threads are remembered", n, len(c.poller.polled))
			}
			if c.programs == nil {
				return
			}
			places, claims := 0, 0
			if err := c.programs.table.each(func(uint32, threadKey) error { places++; return nil }); err != nil {
				t.Fatal(err)
			}
			if err := bpf.Each(c.programs.table.claims, func(threadKey, uint8) { claims++ }); err != nil {
				t.Fatal(err)
			}
			if places > some || claims > 2*some {
				t.Errorf("%d places and %d claims are taken", places, claims)
			}
		})
	}
}
