package host

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestBoundedMemory reads 800,000 snapshots of either kind, three times as many as are held against each other, in
// less than 256 MiB, and counts all of them.
func TestBoundedMemory(t *testing.T) {
	testenv.Slow(t)
	const n = 800_000
	dir := t.TempDir()
	write := func(name string, line func(i int) string) string {
		path := filepath.Join(dir, name)
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		out := bufio.NewWriter(file)
		for i := range n {
			fmt.Fprintln(out, line(i))
		}
		if err := out.Flush(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	o := Options{Lag: 3}
	o.Block = write("b", func(i int) string {
		return fmt.Sprintf(
			`{"timestamp":%d,"interval_s":1,"latency_histogram":[{"device_id":7,"device_name":"sda","total":2,`+
				`"buckets":[{"slot":%d,"count":2}]}],"inflight":[]}`, 1e9+i, 3+i%7)
	})
	o.System = write("s", func(i int) string {
		return fmt.Sprintf(
			`{"timestamp":%d,"interval_s":1,"off_cpu_ns":{"%d":%d},"page_faults":{"1":%d},`+
				`"pressure":{"io":{"some":{"avg10":%d}}}}`, 1e9+i, i, i%7*1000, i%5, i%3)
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := analyzed(t, o)
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 256<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	if r.All.Requests != 2*n || r.Block.Snapshots != n || r.Importance.LeftOut != 2*(n-maxSamples) ||
		*r.Importance.Rows[0].R < 0.1 && r.Importance.Rows[0].N != maxSamples ||
		!strings.Contains(strings.Join(r.Notes, "\n"), "are not held against each other") {
		t.Errorf("%+v, %d left out, %q", r.All.Requests, r.Importance.LeftOut, r.Notes)
	}
}
