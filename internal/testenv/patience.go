package testenv

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// Limits of a wait. They end a hang and measure nothing.
const (
	idlePatience = 2 * time.Minute
	mostPatience = 20 * time.Minute
)

// Patience is how long a test waits for an event before it calls that a hang: two minutes on an idle machine, and
// proportionally longer the more threads want each processor.
func Patience() time.Duration {
	wanting := 0.0
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Sscan(string(text), &wanting)
	}
	busy := max(wanting/float64(runtime.NumCPU()), 1)
	if Emulated() {
		busy *= 10
	}
	return min(time.Duration(busy*float64(idlePatience)), mostPatience)
}

// Until waits for an event: it returns once is reports true, and fails the test where that takes longer than Patience.
func Until(t testing.TB, event string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience()); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", event)
		}
	}
}
