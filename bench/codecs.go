package bench

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/llamatap/llamatap/bench/measure"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/stream"
)

// Codecs measures the libraries that a recording calls, each alone, on one thread, on activations of the embedded
// model.
type Codecs struct {
	Dir      string // folder for the recording that the activations come from
	Time     time.Duration
	Threads  int // of the model
	Table    *Table
	Progress func(string)
}

// library is one of them: use handles a piece and returns how many bytes it made of it.
type library struct {
	name   string
	source bool // it gets F32 as the tap copies it, the others F16 as it is stored
	use    func(piece []byte) int
}

// Run measures every library on every piece, in random order, until the time is up, and fills the table with ratios
// to copying the same bytes in the same round.
func (c Codecs) Run(ctx context.Context) error {
	pieces, err := activations(ctx, c.Dir, c.Threads)
	if err != nil {
		return err
	}
	half := make([][]byte, len(pieces))
	for i, piece := range pieces {
		if half[i], _, err = codec.Convert(nil, piece, codec.F32, codec.F16); err != nil {
			return err
		}
	}
	all, err := libraries()
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(1, 1))
	rates, made := make([][]float64, len(all)), make([]float64, len(all))
	begin := time.Now()
	for round := 0; round == 0 || time.Since(begin)*time.Duration(round+1)/time.Duration(round) <= c.Time; round++ {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		for _, k := range random.Perm(len(all)) {
			from := half
			if all[k].source {
				from = pieces
			}
			rate, size := pass(all[k].use, from)
			rates[k], made[k] = append(rates[k], rate), size
		}
		c.Progress(fmt.Sprintf("codec libraries: round %d", round+1))
	}
	for k, l := range all {
		line := Line{Section: "machine", Name: "library alone: " + l.name, Value: median(append([]float64(nil), rates[k]...)) / 1e9, Unit: "GB/s"}
		if made[k] < 1 && made[k] > 0 {
			line.Name += fmt.Sprintf(", to %.2f", made[k])
		}
		if k == 0 {
			line.Figure = fmt.Sprintf("%d pieces of activations, one thread", len(pieces))
		} else {
			line.Limit, line.Ratio = "copy of the same", at(MedianInterval(quotients(rates[k], rates[0])))
		}
		c.Table.Add(line)
	}
	return nil
}

// pass uses a library on every piece; rate is bytes per second, made the bytes that came out per byte.
func pass(use func([]byte) int, pieces [][]byte) (rate, made float64) {
	var in, out int
	begin := time.Now()
	for _, piece := range pieces {
		in += len(piece)
		out += use(piece)
	}
	return float64(in) / max(time.Since(begin).Seconds(), 1e-9), float64(out) / float64(in)
}

// libraries lists them with the settings that a recording has. The first one copies, which is the limit of the others.
func libraries() ([]library, error) {
	var to []byte
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(3)), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("start zstd encoder: %w", err)
	}
	var fast lz4.Compressor
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	return []library{
		{"copy of F16", false, func(p []byte) int { to = append(to[:0], p...); return len(to) }},
		{"F32 to F16 (store/codec)", true, func(p []byte) int {
			to, _, _ = codec.Convert(to[:0], p, codec.F32, codec.F16) // these lengths were converted before
			return len(to)
		}},
		{"lz4", false, func(p []byte) int {
			if need := lz4.CompressBlockBound(len(p)); cap(to) < need {
				to = make([]byte, need)
			}
			n, err := fast.CompressBlock(p, to[:cap(to)])
			if err != nil || n == 0 {
				return len(p)
			}
			return n
		}},
		{"zstd, level 3", false, func(p []byte) int { to = zip.EncodeAll(p, to[:0]); return len(to) }},
		{"CRC-32C", false, func(p []byte) int { _ = crc32.Checksum(p, castagnoli); return 0 }},
		{"SHA-256", false, func(p []byte) int { _ = sha256.Sum256(p); return 0 }},
	}, nil
}

// activations records all nodes of the embedded model over a prompt of 256 tokens, and returns the tensors: F32, as
// copied.
func activations(ctx context.Context, dir string, threads int) (pieces [][]byte, err error) {
	item := Item{
		Spec: measure.Spec{Prompt: 256, Batch: 256, MicroBatch: 256, Threads: threads, TypeK: "f16", TypeV: "f16", FlashAttention: "auto",
			GPULayers: -1, Repetitions: 1, NoWarmUp: true},
		Tap: TapSetting{Name: "all", Flags: []string{"--tap-granularity=full_tensor", "--tap-codec=none", "--tap-dtype=f32"}},
	}
	_, err = visitAnd(ctx, &item, 1, dir, func(work string) error {
		streams, err := filepath.Glob(filepath.Join(work, "*", "run_*", tensors.StreamName))
		if err != nil || len(streams) != 1 {
			return errors.Join(err, fmt.Errorf("%d streams were recorded to take activations from, expected 1", len(streams)))
		}
		reader, err := stream.Open(streams[0])
		if err != nil {
			return err
		}
		defer reader.Close()
		for _, p := range reader.Packets() {
			piece, err := reader.ReadInto(p, nil)
			if err != nil {
				return err
			}
			if p.DType == codec.F32 {
				pieces = append(pieces, piece)
			}
		}
		return reader.Err()
	})
	if err == nil && len(pieces) == 0 {
		err = errors.New("nothing was recorded to take activations from")
	}
	return pieces, err
}
