//go:build linux

package session

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime/debug"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/export"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// live is the dataset that --tap-dataset names.
type live struct {
	*export.Live
	raw    int64 // their bytes, as they are rounded
	result export.LiveResult
	closed bool
	size   int // bytes that an F32 element is rounded to
}

// shardMemory is what writing a shard takes on the heap, as a multiple of its rounded elements.
const shardMemory = 2

// newLive begins the dataset that was asked for; nil: none was.
func newLive(r *run) (*live, error) {
	d := r.o.Tap.Dataset
	if d.Dir == "" {
		return nil, nil
	}
	dtype, err := codec.ParseDType(r.o.Tap.DType)
	if err != nil {
		return nil, err
	}
	o := export.LiveOptions{
		Dir: d.Dir, Seed: d.Seed, ShardMB: d.ShardMB, Window: d.Window, DType: dtype, Results: r.o.Results,
		RunID: r.dir.ID(), Model: cmp.Or(r.contexts[0].Model.Name, r.contexts[0].Model.ID),
		Text: func(token int32) string {
			var record rundir.TokenRecord
			if vocab := r.speller.vocabs[r.contexts[0].Ctx]; vocab != nil && !r.speller.mute && token >= 0 {
				record.SetPiece(vocab.Piece(token))
			}
			return record.Text
		},
	}
	begun, err := export.NewLive(o)
	if err != nil {
		return nil, err
	}
	limit := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(limit + shardMemory*max(d.ShardMB, 256)*1_000_000)
	return &live{Live: begun, size: dtype.Size()}, nil
}

// kept is what the shards have.
func (l *live) kept() ggmlhooks.Count {
	return ggmlhooks.Count{Packets: l.result.Packets, Bytes: l.result.TensorBytes}
}

// held is how many bytes the dataset takes on the disk at most, and how many of them are in no file yet.
func (l *live) held() (all, waiting int64) {
	if l == nil {
		return 0, 0
	}
	return l.Held()
}

func (l *live) append(p *stream.Packet, data []byte) error {
	if err := l.Append(p, data); err != nil {
		return err
	}
	raw := int64(len(data))
	if codec.DTypeOf(p.SrcType) == codec.F32 {
		raw = raw / 4 * int64(l.size)
	}
	l.raw += raw
	return nil
}

// close writes the shards of what is left; cut: recording was cut off.
func (l *live) close(cut bool) error {
	if l == nil || l.closed {
		return nil
	}
	l.closed = true
	err := l.Close(cut)
	l.result = l.Result()
	return err
}

// finish adds to the dataset what the sealed run says of itself; whole: it was recorded to its end.
func (l *live) finish(dir string, whole bool) error {
	if l == nil {
		return nil
	}
	text, err := rundir.ReadFile(filepath.Join(dir, rundir.MetadataName), rundir.MaxDocument)
	if err != nil {
		return err
	}
	return l.Finish(json.RawMessage(text), whole)
}

// liveUse is what metadata.json says of the dataset.
type liveUse struct {
	Path    string `json:"path"`
	Rows    int64  `json:"rows"`
	LeftOut int64  `json:"rows_left_out"`
	Shards  int    `json:"shards"`
}

func (l *live) use() liveUse {
	path, err := filepath.Abs(l.result.Dir)
	if err != nil {
		path = l.result.Dir
	}
	return liveUse{path, l.result.Rows, l.result.LeftOut, l.result.Shards}
}

func (l *live) summaryText() string {
	r := &l.result
	text := fmt.Sprintf("dataset   %s: %s in %s, %s", r.Dir, present.Plural(r.Rows, "row"),
		present.Plural(r.Shards, "shard"), present.Bytes(r.Bytes))
	if r.LeftOut > 0 {
		text += fmt.Sprintf("; %d tokens lack one of the tensors and are left out", r.LeftOut)
	}
	return text
}
