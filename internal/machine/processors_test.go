package machine

import (
	"os"
	"testing"
	"testing/fstest"
)

func procStat(text string) fstest.MapFS { return fstest.MapFS{"proc/stat": {Data: []byte(text)}} }

// TestReadTicks reads a text of /proc/stat whose shares are known.
func TestReadTicks(t *testing.T) {
	root := procStat("cpu  100 20 30 800 40 5 4 1 50 6\ncpu0 50 10 15 400 20 5 0 0 0 0\ncpu1 " +
		"50 10 15 400 20 0 4 1 0 0\nintr 1 2\n")
	all, each, err := ReadTicks(root)
	if err != nil || all != (Ticks{160, 1000}) || each[0] != (Ticks{80, 500}) || each[1] != (Ticks{80, 500}) {
		t.Fatalf("%+v %+v %v", all, each, err)
	}
	if share, ok := (Ticks{260, 1200}).Since(all); !ok || share != 0.5 {
		t.Errorf("%g, %v", share, ok)
	}
	if _, ok := all.Since(all); ok {
		t.Error("a share of no time")
	}
	for _, text := range []string{"", "cpu0 1 2 3 4\n", "cpu a b c d e\n"} {
		if _, _, err := ReadTicks(procStat(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	if _, _, err := ReadTicks(os.DirFS("/")); err != nil {
		t.Errorf("this machine: %v", err)
	}
}
