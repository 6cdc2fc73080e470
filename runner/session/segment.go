//go:build linux

package session

import (
	"cmp"
	"os"
	"path/filepath"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/ggmlhooks/capture"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// segment is one directory that is being written: a whole run, or one of its segments. Up to its end it belongs to
// the goroutine that records; end may run in another one, which then owns it.
type segment struct {
	dir    *rundir.Dir
	stream *stream.Writer
	tokens *rundir.TokensWriter
	place  rundir.Segment
	base   capture.Use // what the run had done before
	span   capture.Use // what it did in the segment, once that has ended
	// noStream: tensors were not asked for, and none was captured so far.
	noStream bool
	live     *live // has the tensors; nil: the stream
	// elementBytes is how large an F32 element is as it is stored.
	elementBytes int64
	resumed      bool // it holds what processes before this one recorded
	fed          *fed // what a consumer gets of it; nil: nothing

	appended struct{ packets, source, raw, names, rows int64 } // handed to the stream
	speller  speller
	spelled  tokenSet        // whose texts the index has
	result   *stream.Stats   // of the files as they are, once they are closed
	failure  error           // why the writer could not end the stream, which was mended
	kept     ggmlhooks.Count // tensors of the run that the closed files hold
}

// empty reports whether nothing was recorded in the segment.
func (g *segment) empty() bool { return g.appended.packets == 0 && g.place.Tokens == 0 }

// bytes returns what the segment's files hold, with what waits to be written at its largest.
func (g *segment) bytes() int64 {
	if g.result != nil {
		return g.dir.Size()
	}
	written := g.stream.Stats()
	packets := g.appended.packets - int64(written.Packets)
	return int64(written.FileBytes) + packetBytes(g.appended.raw-int64(written.RawBytes), packets, g.appended.names) +
		g.tokens.Size()
}

// waiting is the share of bytes for which the disk has no room yet: they are not in the files, what the writer
// holds in its buffers included, and not in what is kept ahead. Below 0 more is kept than waits.
func (g *segment) waiting() int64 {
	if g.result != nil {
		return 0
	}
	waiting := g.bytes() - g.tokens.Size()
	for _, path := range []string{g.streamPath(), g.streamPath() + stream.IndexSuffix} {
		if info, err := os.Stat(path); err == nil {
			waiting -= info.Size()
		}
	}
	return max(waiting, 0) - g.stream.Stats().Ahead
}

// size is the most that the segment takes on the disk until it is sealed, if nothing is added.
func (g *segment) size() int64 {
	return g.bytes() + max(0, -g.waiting()) + g.appended.rows*rowBytes + g.sealBytes()
}

// Bounds of what is stored alongside the elements of a packet.
const (
	indexRecordBytes = 192       // packet record of the index, at its largest
	frameBytes       = 160       // of a codec, at its least: eight frames of zstd-shuffle
	rowBytes         = 64        // token row of the index, with a few sequences
	sealRoom         = 256 << 10 // metadata, manifest, end of the index
)

// packetBytes is the most that packets take in stream and index.
func packetBytes(raw, packets, names int64) int64 {
	return raw + raw>>7 + packets*(indexRecordBytes+frameBytes) + names
}

// sealBytes is what sealing needs beside what is written: the tokens are there twice for a moment.
func (g *segment) sealBytes() int64 { return sealRoom + g.tokens.Size() + g.appended.packets/16 }

// note takes account of a token that goes into the segment.
func (g *segment) note(index int64) {
	if g.place.FirstToken == nil || index < *g.place.FirstToken {
		g.place.FirstToken = &index
	}
	if g.place.LastToken == nil || index > *g.place.LastToken {
		g.place.LastToken = &index
	}
	g.place.Tokens++
}

// close ends the segment's files. Where the writer cannot, or has failed before, the stream is mended and the
// tokens are written anew from its index; what that takes away is counted as cut. It may be called again after an
// error. release, unless it is nil, frees room on the disk when the writer has done what it could, so that it does not
// eat it up.
func (g *segment) close(duration time.Duration, failed bool, losses []stream.Loss, release func()) error {
	if g.result != nil {
		return nil
	}
	for _, l := range losses {
		failed = g.stream.AppendLoss(l) != nil || failed
	}
	err := g.stream.Close()
	if err != nil {
		g.failure = err
	}
	g.fed.end()
	g.fed = nil
	if release != nil {
		release()
	}
	if err != nil || failed {
		return g.mend(duration, losses)
	}
	if g.tokens.Close(duration) != nil {
		if err := g.rewriteTokens(duration); err != nil {
			return err
		}
	}
	data, index := g.stream.Sums()
	return g.closed(data, index, g.stream.Stats())
}

// mend makes whole what the writer could not end.
func (g *segment) mend(duration time.Duration, losses []stream.Loss) error {
	g.tokens.Discard() // its room is needed
	var kept stream.Totals
	data, index, err := g.stream.Mend(g.streamPath(), func(t stream.Totals) []stream.Loss {
		kept = t
		if g.failure != nil {
			losses = append(losses, stream.Loss{Cause: causeOf(g.failure),
				Packets: uint64(g.appended.packets) - t.Packets, Bytes: uint64(g.appended.source) - t.SrcBytes})
		}
		return losses
	})
	if err == nil {
		err = g.rewriteTokens(duration)
	}
	if err != nil {
		return err
	}
	return g.closed(data, index, stream.Stats{
		Packets: kept.Packets, SrcBytes: kept.SrcBytes, RawBytes: kept.RawBytes, Stored: kept.Stored,
		Saturated: kept.Saturated, Underflow: kept.Underflow,
	})
}

func (g *segment) streamPath() string { return filepath.Join(g.dir.Path(), StreamName) }

// closed notes what the files hold. A stream that nobody asked for and nothing was captured into is none.
func (g *segment) closed(data, index stream.Sum, written stream.Stats) error {
	g.kept = ggmlhooks.Count{Packets: written.Packets, Bytes: written.SrcBytes}
	if g.resumed || g.span.Setup.Written.Packets > 0 {
		r, err := stream.Open(g.streamPath())
		if err != nil {
			return err
		}
		defer r.Close()
		for _, p := range r.Packets() { // those that turned out to be set-up
			if p.Phase == ggmlhooks.PhaseSetup {
				g.kept = g.kept.Minus(ggmlhooks.Count{Packets: 1, Bytes: uint64(p.SrcBytes)})
			}
		}
		if r.Err() != nil {
			return r.Err()
		}
	}
	if g.noStream && written.Packets == 0 {
		os.Remove(g.streamPath())
		os.Remove(g.streamPath() + stream.IndexSuffix)
	} else {
		g.noStream = false
		g.dir.AddSum(StreamName, data.Size, data.SHA256)
		g.dir.AddSum(StreamName+stream.IndexSuffix, index.Size, index.SHA256)
	}
	g.result = &written
	g.place.Packets = written.Packets
	g.place.Bytes = g.dir.Size()
	return nil
}

// rewriteTokens writes the tokens file from the index.
func (g *segment) rewriteTokens(duration time.Duration) error {
	g.tokens.Discard()
	r, err := stream.Open(g.streamPath())
	if err != nil {
		return err
	}
	defer r.Close()
	tokens, err := rundir.NewTokensWriter(g.dir)
	if err != nil {
		return err
	}
	defer tokens.Discard()
	g.place.FirstToken, g.place.LastToken, g.place.Tokens = nil, nil, 0
	for e := range r.Executions() {
		for i := range e.Rows {
			if row := &e.Rows[i]; row.Phase != ggmlhooks.PhaseSetup {
				err = tokens.Append(g.speller.record(e.Ctx, row))
				g.note(row.Index)
			}
		}
	}
	if err = cmp.Or(err, r.Err()); err != nil {
		return err
	}
	return tokens.Close(duration)
}

// seal writes the metadata and the manifest; the files are closed.
func (g *segment) seal(m rundir.Metadata) error {
	if err := g.dir.WriteJSON(rundir.MetadataName, m); err != nil {
		return err
	}
	if err := g.dir.Seal(); err != nil {
		return err
	}
	g.place.Bytes = g.dir.Size()
	return nil
}

// complete completes the metadata of a segment of a run with what its closed files say, and seals it.
func (g *segment) complete(run *run, m rundir.Metadata) error {
	if g.failure != nil {
		cut := g.span.Run.Written.Minus(g.kept)
		m.Account.AddLost(causeOf(g.failure), cut.Packets, cut.Bytes)
	}
	m.Account.Captured = rundir.Amount(g.kept)
	m.Account.Check()
	m.Losses, m.Lossy = m.Account.Lost, len(m.Account.Lost) > 0
	m.Streams = []rundir.Stream{run.streamUse(*g.result)}
	g.place.Ended = m.Ended
	place := g.place
	m.Segment = &place
	if err := g.seal(m); err != nil {
		return err
	}
	return run.dir.AddSegment(g.place.Name)
}
