package tensors

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// packetsPerToken is how many tensors longIndex has of a token.
const packetsPerToken = 8

// longIndex makes a run of so many tokens, of whose stream the index is the larger part, and returns its folder and
// the index's size.
func longIndex(t *testing.T, tokens int) (string, int64) {
	t.Helper()
	dir, err := rundir.Create(t.TempDir(), "model", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	list, err := rundir.NewTokensWriter(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir.Path(), rundir.StreamName)
	w, err := stream.Create(name, stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range tokens {
		row := label.Row{Index: int64(i), Token: int32(i % 5000), Pos: int32(i), Seqs: []int32{0},
			Phase: label.PhaseDecode, Request: label.RequestUnknown}
		err := w.AppendExecution(&stream.Execution{Exec: uint64(i), Phase: row.Phase, TokenFirst: row.Index,
			Rows: []label.Row{row}})
		for k := range packetsPerToken {
			p := stream.Packet{Name: fmt.Sprint("l_out-", k), Layer: int32(k), Op: "ADD", Rows: label.RowsTokens,
				RowDim: 1, Phase: row.Phase,
				Exec: uint64(i), NE: [4]int64{1, 1, 1, 1}, TokenFirst: row.Index, TokenCount: 1}
			if err == nil {
				err = w.Append(&p, []byte{0, 0, byte(i), 0x40}, nil)
			}
		}
		if err == nil {
			err = w.Commit()
		}
		record := rundir.TokenRecord{Index: row.Index, ID: row.Token, Phase: rundir.Phase(row.Phase.String()),
			Pos: row.Pos}
		record.SetPiece([]byte("a piece of text " + strconv.Itoa(int(row.Token))))
		record.SetSeqs(row.Seqs)
		if err == nil {
			err = list.Append(record)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := list.Close(time.Second); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name + stream.IndexSuffix)
	if err != nil {
		t.Fatal(err)
	}
	return dir.Path(), info.Size()
}

// readings are what a child of TestBounded does.
var readings = map[string]func(r *Run) error{
	"inspect": func(r *Run) error {
		s, err := Summarize(r, Filter{})
		if err == nil && s.PacketsPerToken != packetsPerToken {
			err = fmt.Errorf("%.1f packets per token", s.PacketsPerToken)
		}
		return err
	},
	"inspect --stats": func(r *Run) error {
		s, err := Summarize(r, Filter{})
		if err == nil {
			err = MeasureTensors(context.Background(), r, Filter{Tensor: "l_out-3"}, s, nil)
		}
		return err
	},
	"cat --token": func(r *Run) error {
		s, err := NewSlice(r, SliceOptions{Tensor: "l_out-3", First: 11_000, End: 11_001})
		if err == nil {
			err = s.WriteText(io.Discard)
		}
		return err
	},
	"cat": func(r *Run) error {
		s, err := NewSlice(r, SliceOptions{Tensor: "l_out-3"})
		if err == nil {
			err = s.WriteNPY(io.Discard)
		}
		return err
	},
	"verify": func(r *Run) error {
		v, err := Verify(r.Path)
		if err == nil && (len(v.Findings) != 1 || v.Findings[0].Kind != Unsealed) {
			err = fmt.Errorf("%+v", v.Findings)
		}
		return err
	},
}

// TestBounded reads a run with a long index in processes of their own: what that takes in memory does not grow with
// the index, which has five million records, and next to nothing with the tokens.
func TestBounded(t *testing.T) {
	testenv.Slow(t)
	if path := os.Getenv("LLAMATAP_BOUNDED_RUN"); path != "" {
		r, err := Open(path)
		if err == nil {
			err = readings[os.Getenv("LLAMATAP_BOUNDED_READING")](r)
		}
		if err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%s\n", status)
		return
	}
	testenv.NotWithRace(t) // which takes memory of its own
	const tokens = 500_000
	small, _ := longIndex(t, 12_000)
	large, index := longIndex(t, tokens)
	for name := range readings {
		less, more := peakOf(t, small, name), peakOf(t, large, name)
		t.Logf("%s: %d KiB, with %d tokens and an index of %d KiB: %d KiB", name, less>>10, tokens, index>>10, more>>10)
		bound := less + 6<<20 // what the collector of garbage leaves more or less
		if name == "cat" {
			bound += tokens * 200 // places of the rows, while their list grows
		}
		if more > bound {
			t.Errorf("%s: %d KiB more for an index of %d KiB", name, (more-less)>>10, index>>10)
		}
	}
}

// peakOf is the largest resident memory of a process that does one reading.
func peakOf(t *testing.T, path, reading string) int64 {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBounded$")
	cmd.Env = append(os.Environ(), "GOGC=20", "LLAMATAP_BOUNDED_RUN="+path, "LLAMATAP_BOUNDED_READING="+reading)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", reading, err, out)
	}
	for line := range bytes.Lines(out) {
		if kib, ok := strings.CutPrefix(string(line), "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kib), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("%s: no VmHWM in %s", reading, out)
	return 0
}
