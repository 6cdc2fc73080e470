//go:build linux

package session

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"golang.org/x/sys/unix"
)

// files are what tensors and tokens are written into: the run itself, or one segment of it after the other, each sealed
// beside the recording of the next. They keep within the bounds of the disk.
type files struct {
	run     *run
	counter *counter
	others  *recorders
	feed    *feed    // nil: no consumer
	buffers int64    // bytes of packed packets that may wait to be written
	current *segment // what is written now; nil until there is a run directory
	series  series   // the segments before it
	room    room
	reserve *reserve
	live    *live // the dataset that rows go to in place of the stream; nil: none
	ahead   int64 // bytes that the disk is to keep ahead of what is written
	workers int   // goroutines that pack: collect.Pump takes processors from Go while little comes
}

func newFiles(r *run, c *counter, others *recorders, consumer *feed, buffers int64) *files {
	f := &files{run: r, counter: c, others: others, feed: consumer, buffers: buffers, series: series{run: r},
		workers: cmp.Or(r.o.Tap.Workers, runtime.GOMAXPROCS(0))}
	r.sample = newSampler(f)
	f.room = room{
		tap: r.o.Tap, use: f.used, give: f.series.removeOldest, spare: f.limitAhead, statfs: unix.Statfs,
		beside: func() int64 {
			dataset, _ := f.live.held()
			return r.dir.Written() + others.unwritten.Load() + dataset
		},
	}
	return f
}

// open makes the files of a new run.
func (f *files) open() (err error) {
	if f.live, err = newLive(f.run); err != nil {
		return err
	}
	if f.reserve, err = newReserve(f.run.dir, reserveFor(f.sealBytes())); err != nil {
		return err
	}
	if f.split() {
		f.current, err = f.next(1)
	} else {
		f.current, err = f.openSegment(f.run.dir, 1, stream.Create)
	}
	return err
}

// resume opens the files of a run, with what they hold already.
func (f *files) resume(kept *stream.Kept) error {
	open := func(_ string, o stream.Options) (*stream.Writer, error) { return kept.Resume(o) }
	g, err := f.openSegment(f.run.dir, 1, open)
	if err != nil {
		return err
	}
	t := kept.Totals()
	g.resumed = true
	g.appended.packets, g.appended.source, g.appended.raw = int64(t.Packets), int64(t.SrcBytes), int64(t.RawBytes)
	f.current = g
	return nil
}

// split reports whether the run is written in segments.
func (f *files) split() bool { return f.run.o.Tap.Segments() != config.Segment{} }

// openSegment makes the files of a segment in dir; open makes its stream.
func (f *files) openSegment(dir *rundir.Dir, number int,
	open func(string, stream.Options) (*stream.Writer, error)) (*segment, error) {
	id, err := codec.Parse(f.run.o.Tap.Codec)
	if err != nil {
		return nil, err
	}
	dtype, err := codec.ParseDType(f.run.o.Tap.DType)
	if err != nil {
		return nil, err
	}
	metric, err := codec.ParseMetric(f.run.o.Tap.ErrorMetric)
	if err != nil {
		return nil, err
	}
	bound := f.buffers
	if f.split() {
		bound /= 2 // one may still be written while the next one begins
	}
	sync, err := stream.ParseSync(f.run.o.Tap.Sync.Policy, f.run.o.Tap.Sync.Every)
	if err != nil {
		return nil, err
	}
	g := &segment{dir: dir, base: f.counter.totals(), live: f.live,
		noStream: !f.run.o.Tap.Records(config.Activations) || f.live != nil,
		fed:      f.feed.begin(dir.ID()), spelled: tokenSet{}, elementBytes: int64(dtype.Size())}
	if id.Bounded() {
		g.elementBytes = int64(codec.F32.Size())
	}
	g.place = rundir.Segment{Name: filepath.Base(dir.Path()), Number: number, Began: time.Now().UTC()}
	g.stream, err = open(filepath.Join(dir.Path(), StreamName), stream.Options{
		Workers: f.workers, Codec: id, DType: dtype, MemoryBound: bound,
		Bound:         codec.Bound{Error: float32(f.run.o.Tap.Error), Metric: metric},
		Sync:          sync,
		Ahead:         f.ahead,
		Tee:           g.fed.tee(),
		OnWorkerStart: func() { unix.Setpriority(unix.PRIO_PROCESS, 0, 19) },
	})
	if err != nil {
		return nil, err
	}
	if g.tokens, err = rundir.NewTokensWriter(dir); err == nil {
		err = g.stream.Flush() // an index with a header can be read, however this process ends
	}
	if err != nil {
		g.stream.Close()
		return nil, err
	}
	return g, nil
}

// next makes a segment of the series.
func (f *files) next(number int) (*segment, error) {
	dir, err := f.run.dir.Segment(number)
	if err != nil {
		return nil, err
	}
	g, err := f.openSegment(dir, number, stream.Create)
	if err != nil {
		os.RemoveAll(dir.Path())
	}
	return g, err
}

// rotate begins a new segment when the current one is as large or as old as it shall become, nothing is half written,
// and the segment before is sealed. The new one gets the open requests.
func (f *files) rotate(requests func(*segment) error) error {
	if f.counter.halted != nil || !f.split() {
		return nil
	}
	if err := errors.Join(f.series.poll(), f.series.failure, f.run.sample.removeUnkept()); err != nil {
		return err
	}
	g, when := f.current, f.run.o.Tap.Segments()
	if f.series.ending != nil || g.empty() || !f.counter.recorder.Whole() {
		return nil
	}
	due := when.Bytes > 0 && g.bytes() >= int64(when.Bytes) || when.Every > 0 && time.Since(g.place.Began) >= when.Every
	if !due {
		return nil
	}
	next, err := f.next(g.place.Number + 1)
	if err != nil {
		return err
	}
	if err := cmp.Or(f.counter.recorder.FlushTokens(), requests(next)); err != nil {
		next.stream.Close()
		next.tokens.Discard()
		os.RemoveAll(next.dir.Path())
		return err
	}
	f.current = next
	g.span = useSince(f.counter.totals(), g.base)
	m := f.metadata(g)
	losses := f.counter.losses(g.span)
	g.speller = speller{vocabs: maps.Clone(f.run.speller.vocabs), mute: f.run.speller.mute}
	e := &ending{segment: g, size: g.size(), done: make(chan error, 1)}
	e.seal = func() error {
		if err := g.close(time.Since(g.place.Began), false, losses, nil); err != nil {
			return err
		}
		return g.complete(f.run, m)
	}
	f.series.ending = e
	go func() { e.done <- e.seal() }() // beside the recording
	return nil
}

// metadata is metadata.json of a segment as far as it is known before its files are closed.
func (f *files) metadata(g *segment) rundir.Metadata {
	m := f.run.describe(g.span)
	m.RunID, m.Created = g.dir.ID(), g.place.Began
	m.Account = f.counter.tally(g.span)
	return m
}

// seal makes the run a result: its last segment first, where it has segments. A last segment in which nothing was
// recorded is removed, unless it is the only one. describe makes the metadata of the run.
func (f *files) seal(describe func() rundir.Metadata) error {
	f.reserve.release()
	g := f.current
	if !f.split() {
		return g.seal(describe())
	}
	if g.empty() && g.place.Number > 1 {
		if err := os.RemoveAll(g.dir.Path()); err != nil {
			return err
		}
	} else {
		m := f.metadata(g)
		g.span = useSince(f.counter.totals(), g.base) // what came after its files were closed is lost of it
		m.Account = f.counter.tally(g.span)
		if f.counter.halted != nil && g.failure == nil {
			cut := g.span.Run.Written.Minus(g.kept)
			m.Account.AddLost(f.counter.halted.cause, cut.Packets, cut.Bytes)
		}
		m.Stopped = f.stopped(m.Account)
		if err := g.complete(f.run, m); err != nil {
			return err
		}
		f.series.add(g)
	}
	if err := f.run.sample.removeUnkept(); err != nil {
		return err
	}
	f.series.fit()
	if err := f.run.dir.WriteJSON(rundir.MetadataName, describe()); err != nil {
		return err
	}
	return f.run.dir.Seal()
}

// written is what the streams of all segments hold, removed ones included.
func (f *files) written() stream.Stats {
	w := f.series.written
	if e := f.series.ending; e != nil {
		w = addStats(w, e.segment.stream.Stats())
	}
	if f.current == nil {
		return w
	}
	now := f.current.result
	if now == nil {
		stats := f.current.stream.Stats()
		now = &stats
	}
	return addStats(w, *now)
}

// lastToken is the newest token that is recorded, nil where none is.
func (f *files) lastToken() (last *int64) {
	if f.current != nil {
		last = f.current.place.LastToken
	}
	return cmp.Or(last, f.series.last)
}

// close closes the files of the last segment, and reports what is missing in it. The room that is freed for it is kept
// from other recorders, and what seal needs is reserved again.
func (f *files) close(broken bool) error {
	g := f.current
	g.speller = f.run.speller
	g.span = useSince(f.counter.totals(), g.base)
	if e := f.series.ending; e != nil { // what is released below is for both
		f.series.ended(<-e.done) // wait reports an error, if it stays one
	}
	resume := func() {}
	err := g.close(time.Since(f.run.started), broken, f.counter.losses(g.span), func() {
		resume = f.run.dir.Hold()
		f.reserve.free()
	})
	f.reserve.grow(f.sealBytes() - g.sealBytes() + sealRoom/4) // if another program took the room, seal fails
	resume()
	if g.failure != nil && f.counter.halted == nil {
		f.counter.halt(g.failure)
	}
	return err
}

// stopped is what metadata says of a recording that ended early. Of what filled the disk with its last write nothing is
// missing where the account of tensors balances and nothing else was recorded.
func (f *files) stopped(a *rundir.Account) *rundir.Stopped {
	s := f.counter.stopped(f.lastToken())
	if s != nil {
		s.Whole = s.Cause == causeFull && s.GraphsAfter == 0 && !a.Lossy() && !f.counter.blind() && f.others.empty()
	}
	return s
}

// used is the most that the run takes on the disk if nothing is added, without what room.beside counts, and what of
// it is not in files yet.
func (f *files) used() (all, waiting int64) {
	for i := range f.series.places {
		all += f.series.places[i].Bytes
	}
	if e := f.series.ending; e != nil {
		all, waiting = all+e.size, waiting+e.size
	}
	all += max(0, f.reserve.held()-f.current.sealBytes())
	if f.split() {
		all += sealRoom + int64(len(f.series.places)+len(f.series.away))*placeBytes
	}
	packed := f.others.packed()
	_, dataset := f.live.held()
	return all + f.current.size() + packed, waiting + f.current.waiting() + packed + dataset
}

// limitAhead says how much room the disk may keep ahead of what is written, in the segment that is written and in
// those that follow.
func (f *files) limitAhead(n int64) {
	f.ahead = min(n, int64(f.run.o.Tap.Preallocate))
	f.current.stream.LimitAhead(f.ahead)
}

// reserveFor is how large the reserve should be where sealing needs n bytes: more, so that it need not grow often.
func reserveFor(n int64) int64 { return (n + sealRoom - 1) / sealRoom * sealRoom }

// sealBytes is what sealing the run needs. With segments two may have to be sealed, and the run itself after them.
func (f *files) sealBytes() int64 {
	need := int64(sealRoom)
	if f.current != nil {
		need = f.current.sealBytes()
	}
	if f.split() {
		need += 2 * sealRoom
	}
	return need
}
