package writing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/llamatap/llamatap/internal/machine"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/stream"
)

// Piece is one captured tensor.
type Piece struct {
	Packet stream.Packet // its name and shape count
	Data   []byte        // F32
}

// Case is one way of writing them.
type Case struct {
	Name  string
	Codec codec.ID
	DType codec.DType
	Bound codec.Bound
	Disk  bool // else to nowhere
	// Ahead is how much room the disk keeps ahead of what is written.
	Ahead int64
}

// Cases are those that have goals, and those that users choose between.
func Cases() []Case {
	const maxabs, nrmse = codec.MaxAbs, codec.NRMSE
	return []Case{
		{Name: "none, f16", Codec: codec.None, DType: codec.F16, Disk: true},
		{Name: "none, f16, 64 MiB kept ahead", Codec: codec.None, DType: codec.F16, Disk: true, Ahead: 64 << 20},
		{Name: "lz4, f16", Codec: codec.LZ4, DType: codec.F16, Disk: true},
		{Name: "zstd, f16", Codec: codec.Zstd, DType: codec.F16, Disk: true},
		{Name: "zstd-shuffle, f16", Codec: codec.ZstdShuffle, DType: codec.F16, Disk: true},
		{Name: "q, maxabs 1e-3", Codec: codec.Q, DType: codec.F32, Bound: codec.Bound{Error: 1e-3, Metric: maxabs}, Disk: true},
		{Name: "q, maxabs 1e-3, to nowhere", Codec: codec.Q, DType: codec.F32, Bound: codec.Bound{Error: 1e-3, Metric: maxabs}},
		{Name: "q-fse, maxabs 1e-3", Codec: codec.QFSE, DType: codec.F32, Bound: codec.Bound{Error: 1e-3, Metric: maxabs}, Disk: true},
		{Name: "q-fse, nrmse 1e-3", Codec: codec.QFSE, DType: codec.F32, Bound: codec.Bound{Error: 1e-3, Metric: nrmse}, Disk: true},
	}
}

// Rate is what one round of a case was.
type Rate struct {
	Source float64 // bytes of F32 per second
	File   float64 // bytes of both files per second
	Ratio  float64 // bytes of F32 per byte of payload
	Error  codec.Achieved
}

// Limits are what the machine could do in a round, in bytes per second.
type Limits struct {
	Disk float64 // one writer past the page cache, or through it where the file system has no other way; with the sync at the end
	Hash float64 // SHA-256 on one thread
	Copy float64 // copying on one thread
}

// Bounds of a round.
type Bounds struct {
	Time      time.Duration // of each case
	DiskBytes int64         // in each file
}

// Run writes pieces for a round's time into files in dir, which are gone afterwards.
func (c Case) Run(ctx context.Context, dir string, pieces []Piece, b Bounds) (Rate, error) {
	o := stream.Options{Codec: c.Codec, DType: c.DType, Bound: c.Bound, MemoryBound: 40 << 20, Ahead: c.Ahead} // as a session has it
	var w *stream.Writer
	var err error
	if c.Disk {
		path := filepath.Join(dir, fmt.Sprintf(".llamatap-stream-%d", os.Getpid()))
		defer os.Remove(path)
		defer os.Remove(path + stream.IndexSuffix)
		w, err = stream.Create(path, o)
	} else {
		w, err = stream.New(nowhere{}, nowhere{}, o)
	}
	if err != nil {
		return Rate{}, err
	}
	began := time.Now()
	err = feed(ctx, w, pieces, b)
	if err = errors.Join(err, w.Close()); err != nil {
		return Rate{}, err
	}
	took, s := time.Since(began).Seconds(), w.Stats()
	return Rate{float64(s.SrcBytes) / took, float64(s.FileBytes) / took, float64(s.SrcBytes) / float64(s.Stored), s.Error}, nil
}

// feed appends pieces until the round is over: a token's worth of them behind each commit.
func feed(ctx context.Context, w *stream.Writer, pieces []Piece, b Bounds) error {
	const token = 64 // pieces
	release := func() {}
	for began, exec := time.Now(), uint64(0); time.Since(began) < b.Time; exec++ {
		for i := range token {
			p := &pieces[(int(exec)*token+i)%len(pieces)]
			packet := p.Packet
			packet.Exec = exec
			if err := w.Append(&packet, p.Data, release); err != nil {
				return err
			}
		}
		if err := w.Commit(); err != nil {
			return err
		}
		if exec%16 == 0 && (ctx.Err() != nil || w.Stats().FileBytes > uint64(b.DiskBytes)) {
			return ctx.Err()
		}
	}
	return nil
}

// nowhere is a file that keeps nothing.
type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) Sync() error                 { return nil }
func (nowhere) Close() error                { return nil }

// Measure measures a round's limits on the bytes of the pieces.
func Measure(dir string, pieces []Piece, b Bounds) (l Limits, err error) {
	limit := machine.Limit{Time: b.Time, Bytes: b.DiskBytes}
	disk, err := machine.Direct(dir, limit)
	if errors.Is(err, errors.ErrUnsupported) {
		disk, err = machine.Buffered(dir, limit)
	}
	if err != nil {
		return l, err
	}
	l.Disk = disk.PerSecond()
	hash := sha256.New()
	l.Hash = over(pieces, b.Time/4, func(p []byte) { hash.Write(p) })
	var to []byte
	l.Copy = over(pieces, b.Time/4, func(p []byte) { to = append(to[:0], p...) })
	return l, nil
}

// over is how many bytes per second use takes.
func over(pieces []Piece, limit time.Duration, use func([]byte)) float64 {
	n, began := 0, time.Now()
	for {
		for i := range pieces {
			use(pieces[i].Data)
			n += len(pieces[i].Data)
		}
		if took := time.Since(began); took >= limit {
			return float64(n) / max(took, 1).Seconds()
		}
	}
}
