package memory

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
)

// maxResident is how much memory an analysis may take, however long the trace is.
const maxResident = 512 << 20

// TestHundredMillion analyses a long trace in a process of its own, which takes no more memory than that of a short
// one, and less than 512 MiB.
func TestHundredMillion(t *testing.T) {
	testenv.Slow(t)
	if dir := os.Getenv("LLAMATAP_ANALYZE_RUN"); dir != "" {
		r := analyze(t, dir, Options{})
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("rows: %d\nread: %d\n%s\n", r.Rows, r.Type("weight").BytesRead, status)
		return
	}
	testenv.NotWithRace(t) // which takes memory of its own
	const long = 100_000_000
	peaks := make([]int64, 2)
	for i, rows := range []int64{1_000_000, long} {
		dir := t.TempDir()
		rows = longTrace(t, dir, rows)
		cmd := exec.Command(os.Args[0], "-test.run=^TestHundredMillion$")
		cmd.Env = append(os.Environ(), "LLAMATAP_ANALYZE_RUN="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		steps := rows / int64(len(stepOf()))
		if got := numberIn(t, out, "rows:"); got != rows {
			t.Errorf("%d rows of %d", got, rows)
		}
		if got := numberIn(t, out, "read:"); got != steps*layersOfTest*6*(4<<20) {
			t.Errorf("%d bytes of weights in %d steps", got, steps)
		}
		peaks[i] = numberIn(t, out, "VmHWM:") << 10
		t.Logf("%d rows: %d MiB", rows, peaks[i]>>20)
	}
	if peaks[1] > maxResident || peaks[1] > peaks[0]+128<<20 {
		t.Errorf("%d MiB for %d rows, %d MiB for a million", peaks[1]>>20, long, peaks[0]>>20)
	}
}

// numberIn is the number after a word at the beginning of a line.
func numberIn(t *testing.T, out []byte, word string) int64 {
	t.Helper()
	for line := range bytes.Lines(out) {
		if text, ok := strings.CutPrefix(string(line), word); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in %s", word, out)
	return 0
}

// TestLongTrace: what a trace of several thousand executions says of its caches, whose cells are used again, is
// what follows by hand.
func TestLongTrace(t *testing.T) {
	dir := t.TempDir()
	longTrace(t, dir, 1)
	one := analyze(t, dir, Options{})
	if one.Rows != int64(len(stepOf())) || one.Type("kv_cache").Writes != 2*layersOfTest {
		t.Errorf("%d rows", one.Rows)
	}
	if testing.Short() { // the batches between its goroutines come round a dozen times all the same
		dir, want := t.TempDir(), 200*one.Rows
		longTrace(t, dir, want)
		if r := analyze(t, dir, Options{}); r.Rows != want || r.Type("kv_cache").Writes != 200*2*layersOfTest {
			t.Errorf("%d rows of %d", r.Rows, want)
		}
		return
	}
	dir = t.TempDir()
	rows := longTrace(t, dir, 2148*int64(len(stepOf())))
	r := analyze(t, dir, Options{})
	steps := rows / int64(len(stepOf()))
	c := r.Type("kv_cache")
	// Each step writes a cell, and reads cells 0 to that one. So a cell is read as long as there are later ones,
	// and when the first 100 are written again, the rest are read no more.
	if q := c.Retention; steps != 2148 || q.Bytes != steps*2*layersOfTest*1024 || q.Max != 2047*0.025 ||
		*c.WriteOnce != float64(2048-100)/2048 {
		t.Errorf("%d steps: %+v, %v written once", steps, c.Retention, *c.WriteOnce)
	}
	if w := r.Type(memtrace.Weight.String()); w.Retention != nil || w.WriteOnce != nil || *w.IAI.P50 != 25e6 {
		t.Errorf("%+v", w.Figures)
	}
}
