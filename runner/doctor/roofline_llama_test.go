//go:build llama

package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// busyMachine is one whose processors others use by a share: each look at it is a second later.
type busyMachine struct {
	percent, looks int
}

func (m *busyMachine) Open(name string) (fs.File, error) {
	m.looks++
	busy := m.looks * m.percent
	return fstest.MapFS{
		"proc/stat":    {Data: fmt.Appendf(nil, "cpu %d 0 0 %d\n", busy, m.looks*100-busy)},
		"proc/meminfo": {Data: []byte("MemAvailable: 400000 kB\n")},
	}.Open(name)
}

// TestRooflineOfBusyMachine: what was measured beside other programs is shown and not kept.
func TestRooflineOfBusyMachine(t *testing.T) {
	whole := rooflineTime
	t.Cleanup(func() { rooflineTime = whole })
	rooflineTime = 20 * time.Millisecond
	for percent, kept := range map[int]bool{0: true, 9: true, 11: false, 60: false} {
		path := filepath.Join(t.TempDir(), "roofline.json")
		facts, err := Roofline(&busyMachine{percent: percent}, path)
		if len(facts) < 3 || (err == nil) != kept ||
			err != nil && !strings.Contains(err.Error(), fmt.Sprintf("used %d %% of the processors", percent)) {
			t.Errorf("%d %%: %v, %v", percent, facts, err)
		}
		if _, err := os.Stat(path); (err == nil) != kept {
			t.Errorf("%d %%: kept: %v", percent, err)
		}
	}
}
