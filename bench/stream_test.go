package bench

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/bench/writing"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/stream"
)

// A case is held to its goal, or to what the machine can do where that is less, and the table says which.
func TestStreamLimit(t *testing.T) {
	fast := writing.Limits{Disk: 10e9, Hash: 10e9}
	for _, c := range []struct {
		of     writing.Case
		limits writing.Limits
		ratio  float64 // F32 per byte of the file
		want   float64
		name   string
	}{
		{writing.Case{Codec: codec.Q, Disk: true}, fast, 3.2, 2e9, "2.0 GB/s"},
		{writing.Case{Codec: codec.Q, Disk: true}, writing.Limits{Disk: 0.5e9, Hash: 10e9}, 3.2, 0.9 * 3.2 * 0.5e9, "0.9 of the disk"},
		{writing.Case{Codec: codec.Q}, writing.Limits{Disk: 0.5e9, Hash: 10e9}, 3.2, 4e9, "4.0 GB/s"},
		{writing.Case{Codec: codec.Q}, writing.Limits{Disk: 0.5e9, Hash: 1e9}, 3.2, 0.9 * 3.2 * 1e9, "0.9 of SHA-256"},
		{writing.Case{Codec: codec.None, Disk: true}, writing.Limits{Disk: 2.7e9, Hash: 1.7e9}, 2, 0.9 * 2 * 1.7e9, "0.9 of SHA-256"},
		{writing.Case{Codec: codec.None, Disk: true}, writing.Limits{Disk: 1e9, Hash: 1.7e9}, 2, 0.9 * 2 * 1e9, "0.9 of the disk"},
		{writing.Case{Codec: codec.LZ4, Disk: true}, fast, 2, 1.2e9, "1.2 GB/s"},
		{writing.Case{Codec: codec.Zstd, Disk: true}, fast, 2, 0.6e9, "0.6 GB/s"},
	} {
		got, name := streamLimit(c.of, writing.Rate{Source: c.ratio, File: 1}, c.limits)
		if math.Abs(got/c.want-1) > 1e-12 || name != c.name {
			t.Errorf("%+v with %+v: %g, %s; want %g, %s", c.of, c.limits, got, name, c.want, c.name)
		}
	}
}

// The table has a line for every limit, case and ratio, and judges the ratios.
func TestStreamTable(t *testing.T) {
	data := make([]byte, 4*4096)
	for i := range data {
		data[i] = byte(i * i >> 3) // any bits, not too large
		if i%4 == 3 {
			data[i] = 0x3f
		}
	}
	piece := func(name string, rows int64) writing.Piece {
		return writing.Piece{Packet: stream.Packet{Name: name, NE: [4]int64{4096 / rows, rows, 1, 1}}, Data: data}
	}
	table := NewTable(nil)
	s := Stream{
		Residual: []writing.Piece{piece("l_out-0", 16), piece("l_out-0", 1)}, Dir: t.TempDir(), Time: 20 * time.Millisecond, Rounds: 1, DiskBytes: 4 << 20,
		Table: table, Progress: func(string) {},
	}
	if err := s.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, l := range table.Lines {
		kind, _, _ := strings.Cut(l.Name, ":")
		counts[kind]++
		if l.Section != "stream" || l.Value <= 0 {
			t.Errorf("%+v", l)
		}
		if l.Ratio != nil && l.Verdict == Passed {
			t.Errorf("one round resolved something: %+v", l)
		}
		if gated := strings.Contains(l.Name, "prompt"); gated != (l.Gate != "" && l.Ratio == nil) || gated && l.Verdict == "" {
			t.Errorf("gate of %+v", l)
		}
	}
	if counts["limit"] != 3 || counts["F32 written"] != len(writing.Cases()) || counts["none, f16"] != 1 || counts["q, maxabs 1e-3"] != 2 || counts["q-fse, nrmse 1e-3"] != 2 {
		t.Errorf("%v", counts)
	}
}
