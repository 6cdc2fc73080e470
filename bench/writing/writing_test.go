package writing

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/stream"
)

// recorded makes a stream of a prompt of four tokens and one token, and of what Read leaves out.
func recorded(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.stream")
	w, err := stream.Create(path, stream.Options{DType: codec.F32})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, p := range []stream.Packet{
		{Name: "l_out-0", NE: [4]int64{512, 4, 1, 1}, Phase: ggmlhooks.PhasePrefill},
		{Name: "ffn_out-0", NE: [4]int64{512, 1, 1, 1}, Phase: ggmlhooks.PhaseDecode},
		{Name: "Qcur-0", NE: [4]int64{512, 1, 1, 1}, Phase: ggmlhooks.PhaseDecode},
		{Name: "l_out-1", NE: [4]int64{512, 1, 1, 1}, Phase: ggmlhooks.PhaseSetup},
	} {
		var data []byte
		for range p.NE[0] * p.NE[1] {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(r.NormFloat64())))
		}
		if err := w.Append(&p, data, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Every case writes, to a disk and to nowhere, and leaves nothing behind; what it tells fits what was written.
func TestCases(t *testing.T) {
	residual, others, err := Read(recorded(t))
	if err != nil || len(residual) != 2 || len(others) != 1 {
		t.Fatalf("%d and %d pieces, %v", len(residual), len(others), err)
	}
	dir := t.TempDir()
	bounds := Bounds{Time: 5 * time.Millisecond, DiskBytes: 4 << 20}
	for _, c := range Cases() {
		rate, err := c.Run(context.Background(), dir, residual, bounds)
		if err != nil || rate.Source <= 0 || rate.File <= 0 {
			t.Errorf("%s: %+v, %v", c.Name, rate, err)
		}
		least := map[codec.ID]float64{codec.None: 2, codec.LZ4: 1.9, codec.Zstd: 2, codec.ZstdShuffle: 2.1, codec.Q: 2.6, codec.QFSE: 2.6}[c.Codec]
		if rate.Ratio < least || rate.Ratio > 4 || (rate.Error.MaxAbs > 0) != c.Codec.Bounded() {
			t.Errorf("%s: %+v, want a ratio of %.1f", c.Name, rate, least)
		}
	}
	limits, err := Measure(dir, residual, bounds)
	if err != nil || min(limits.Disk, limits.Hash, limits.Copy) <= 0 {
		t.Errorf("%+v, %v", limits, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Cases()[0].Run(ctx, dir, residual, Bounds{Time: time.Hour, DiskBytes: 1 << 40}); err == nil {
		t.Error("a stopped case tells a rate")
	}
	if _, err := Cases()[0].Run(context.Background(), filepath.Join(dir, "none"), residual, bounds); err == nil {
		t.Error("a folder that is not there takes a recording")
	}
}

// Sparse tensors are left out and counted; what is left is packed within the bound.
func TestRatio(t *testing.T) {
	residual, _, err := Read(recorded(t))
	if err != nil {
		t.Fatal(err)
	}
	zeros := Piece{Packet: stream.Packet{NE: [4]int64{64, 1, 1, 1}}, Data: make([]byte, 256)}
	binary.LittleEndian.PutUint32(zeros.Data[4:], math.Float32bits(float32(math.Copysign(0, -1))))
	binary.LittleEndian.PutUint32(zeros.Data[8:], math.Float32bits(3))
	bound := codec.Bound{Error: 1e-3, Metric: codec.MaxAbs}
	with, made, empty, err := Ratio(append(residual, zeros), codec.QFSE, bound)
	if err != nil || empty != 1 || made.MaxAbs <= 0 || made.MaxAbs > 1e-3 {
		t.Errorf("%.3f, %+v, %d left out, %v", with, made, empty, err)
	}
	if without, _, _, _ := Ratio(residual, codec.QFSE, bound); with != without {
		t.Errorf("a ratio of %v with what is left out, %v without", with, without)
	}
	if _, _, err := Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}
