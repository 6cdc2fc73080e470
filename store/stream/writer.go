package stream

// Hot path: 0 allocations per packet in steady state; a packet's bytes are read once and written once.

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

// The errors of writing.
var (
	ErrClosed   = errors.New("stream is closed")
	ErrTooLarge = errors.New("larger than the stream format can hold")
)

// Sizes of the buffers that collect bytes into large writes, where memory allows for them.
const (
	streamBuffer = 1 << 20
	indexBuffer  = 128 << 10 // what is in it needs room in a reserve for a full disk
	leastBuffer  = 16 << 10
)

// commitDelay is how long a commit marker may wait in a buffer. A flush at each would cost two system calls per token.
const commitDelay = 100 * time.Millisecond

// Writer writes a stream and its index. Its methods may be called from several goroutines; the order of packets is
// the order in which their calls came through.
type Writer struct {
	o        Options
	queue    *queue
	files    *files
	pipeline pipeline
	syncer   syncer
	close    sync.Once
	result   error
}

// Create makes the stream at path and its index alongside; both must not exist.
func Create(path string, o Options) (*Writer, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	stream, err := createBlocks(path)
	if err != nil {
		return nil, fmt.Errorf("create stream: %w", err)
	}
	index, err := os.OpenFile(path+IndexSuffix, flags, 0o600)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create index: %w", err), stream.Close(), os.Remove(path))
	}
	w, err := New(stream, index, o)
	if err != nil {
		return nil, errors.Join(err, stream.Close(), index.Close(), os.Remove(path), os.Remove(path+IndexSuffix))
	}
	return w, nil
}

// New returns a writer to files that the caller opened. Close closes them.
func New(stream, index File, o Options) (*Writer, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	header := Header{Major: versionMajor, Minor: versionMinor, RunID: o.RunID, Sync: o.Sync,
		TimeNS: time.Now().UnixNano(), MonoNS: MonoNS()}
	rand.Read(header.Salt[:])
	j, err := newJournal(header, newOutput("index", index, o.indexBuffer()),
		newOutput("stream", stream, o.streamBuffer()))
	if err != nil {
		return nil, err
	}
	return newWriter(j, o, nil)
}

// newWriter starts a writer that continues at the end of its journal; kept is what there is already. The options are
// complete.
func newWriter(j *journal, o Options, kept *Kept) (*Writer, error) {
	w := &Writer{o: o, queue: newQueue(&o), files: &files{stream: j.before, index: j.out, journal: j, tee: o.Tee}}
	if o.Tee != nil {
		j.tee = append(make([]byte, 0, 64<<10), j.head...)
	}
	if kept != nil {
		w.queue.stats, w.queue.flushed = kept.stats(), kept.Mark
	}
	packers := make([]*packer, o.Workers)
	for i := range packers {
		var err error
		if packers[i], err = newPacker(&o); err != nil {
			return nil, err
		}
	}
	w.files.stream.ahead = newAhead(w.files.stream.file, o.Ahead)
	w.files.index.relief = w.files.releaseReserve
	w.files.stream.startBehind(o.OnWorkerStart)
	w.syncer = syncer{o: o.Sync, queue: w.queue, files: w.files}
	w.syncer.start(w.Sync)
	w.pipeline = pipeline{o: &w.o, queue: w.queue, files: w.files, committed: w.syncer.notify}
	w.pipeline.start(packers)
	return w, nil
}

// streamBuffer is the size of each of the stream's buffers, and indexBuffer that of the index's only one. All of
// them are at most a quarter of the bound, or of 256 KiB where that is less.
func (o *Options) streamBuffer() int {
	return int(min(max(o.MemoryBound/16, leastBuffer), streamBuffer)) &^ (BlockAlign - 1)
}

func (o *Options) indexBuffer() int { return min(o.streamBuffer(), indexBuffer) }

// outputs is what the outputs' buffers take.
func (o *Options) outputs() int64 { return int64(behindBuffers*o.streamBuffer() + o.indexBuffer()) }

// complete fills in what the zero value leaves open, and checks the rest.
func (o *Options) complete() error {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Queue <= 0 {
		o.Queue = 1024
	}
	if o.MemoryBound <= 0 {
		o.MemoryBound = 64 << 20
	}
	switch o.DType {
	case codec.Raw:
		o.DType = codec.F16
	case codec.F32, codec.F16, codec.BF16:
	default:
		return fmt.Errorf("store tensors as %v: %w: use f32, f16 or bf16", o.DType, errors.ErrUnsupported)
	}
	if err := o.Sync.complete(); err != nil {
		return err
	}
	if !o.Codec.Known() {
		return fmt.Errorf("store tensors with %v: %w", o.Codec, codec.ErrUnknown)
	}
	if o.RunID == [16]byte{} {
		rand.Read(o.RunID[:])
	}
	return nil
}

// Append queues a packet. p is copied; data is borrowed until release is called, which happens exactly once, from any
// goroutine, also when Append returns an error; nil means no release. It waits while the queue is full. A packet that
// does not fit the format is refused and nothing else happens; after any other error every call returns that one.
func (w *Writer) Append(p *Packet, data []byte, release func()) error {
	err := w.o.check(p, data)
	var it *item
	if err == nil {
		it, err = w.queue.reserve()
	}
	if err != nil {
		if release != nil {
			release()
		}
		return err
	}
	it.kind, it.packet, it.data, it.release = recordPacket, *p, data, release
	w.queue.publish()
	return nil
}

// check reports why a packet does not fit the format.
func (o *Options) check(p *Packet, data []byte) error {
	_, raw := o.stored(p.SrcType, len(data))
	switch {
	case len(p.Name) > maxName:
		return fmt.Errorf("tensor with a name of %d bytes: %w: at most %d", len(p.Name), ErrTooLarge, maxName)
	case raw > codec.MaxContent:
		return fmt.Errorf("tensor %q of %d bytes: %w: cut it into blocks of at most %d", p.Name, raw, ErrTooLarge,
			codec.MaxContent)
	case codec.DTypeOf(p.SrcType) == codec.F32 && len(data)%4 != 0:
		return fmt.Errorf("tensor %q of %d bytes: %w", p.Name, len(data), codec.ErrLength)
	case !valid(p):
		return fmt.Errorf("tensor %q: a negative count or shape, or row dimension %d", p.Name, p.RowDim)
	}
	return nil
}

// valid reports whether the index can hold what p says.
func valid(p *Packet) bool {
	return min(p.NE[0], p.NE[1], p.NE[2], p.NE[3], p.BlockStart, p.SampleTotal, int64(p.TokenCount),
		int64(p.Occurrence)) >= 0 &&
		p.RowDim >= 0 && p.RowDim <= 3
}

// AppendExecution records an execution and its token rows, in order with the packets. e is copied.
func (w *Writer) AppendExecution(e *Execution) error {
	return w.queue.put(func(it *item) {
		it.kind, it.rows = recordExecution, len(e.Rows)
		it.payload = w.files.journal.header.appendExecution(it.payload[:0], e)
	})
}

// AppendLoss records that packets are missing.
func (w *Writer) AppendLoss(l Loss) error {
	return w.queue.put(func(it *item) {
		it.kind, it.payload = recordLoss, l.append(it.payload[:0])
	})
}

// AppendRequest records that a sequence's rows belong to another request from the next execution on.
func (w *Writer) AppendRequest(b label.RequestBegin) error {
	return w.queue.put(func(it *item) { it.kind, it.payload = recordRequest, appendRequest(it.payload[:0], &b) })
}

// AppendResolution records what earlier executions were for.
func (w *Writer) AppendResolution(r Resolution) error {
	return w.queue.put(func(it *item) { it.kind, it.payload = recordResolution, r.append(it.payload[:0]) })
}

// AppendText records the text of a token. It is appended before the first execution that names the token.
func (w *Writer) AppendText(t Text) error {
	return w.queue.put(func(it *item) { it.kind, it.payload = recordText, t.append(it.payload[:0]) })
}

// Commit queues a marker: once it is in the index file, everything appended before it is in both files, though perhaps
// not yet on the disk. It does not wait; the marker is in its file commitDelay after it was written, at the latest.
func (w *Writer) Commit() error {
	return w.queue.put(func(it *item) { it.kind = recordCommit })
}

// Flush waits until everything appended before it is in both files.
func (w *Writer) Flush() error {
	it, err := w.queue.reserve()
	if err != nil {
		return err
	}
	it.kind = 0
	w.queue.asked++
	ticket := w.queue.asked
	w.queue.publish()
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	for w.queue.ended < ticket && w.queue.err == nil {
		w.queue.wrote.Wait()
	}
	return w.queue.err
}

// Sync waits until everything that was appended before it is on the disk, and returns the place up to which everything
// is; more may have been appended in the meantime. The model does not wait for it, and neither do packing and writing.
func (w *Writer) Sync() (Mark, error) {
	if err := w.Flush(); err != nil {
		return Mark{}, err
	}
	return w.syncer.sync()
}

// Stats returns what was written so far.
func (w *Writer) Stats() Stats {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	s := w.queue.stats
	s.Ahead = w.files.stream.ahead.left()
	s.WriteNS, s.HashNS = w.files.stream.behind.diskNS.Load(),
		w.files.stream.behind.hashNS.Load()
	return s
}

// Close writes what is queued, ends the index, syncs and closes both files. It returns the first error of the
// writer's life, also when called again; after an error the index has no end record.
func (w *Writer) Close() error {
	w.close.Do(func() {
		w.queue.mu.Lock()
		w.queue.closed = true
		w.queue.work.Broadcast()
		w.queue.room.Broadcast()
		w.queue.mu.Unlock()
		w.pipeline.workers.Wait()
		close(w.syncer.stop)
		w.syncer.running.Wait()
		err := w.queue.takeOver()
		if err == nil {
			err = w.files.finish()
		}
		w.result = errors.Join(err, w.files.stream.close(), w.files.index.close())
	})
	return w.result
}

// LimitAhead changes Options.Ahead from here on: to keep less when the disk has little left, or is to be used up to
// a bound. What is kept already is used up first.
func (w *Writer) LimitAhead(n int64) { w.files.stream.ahead.limit(n) }

// Sums returns size and hash of the stream and the index, after Close.
func (w *Writer) Sums() (stream, index Sum) { return w.files.stream.sum(), w.files.index.sum() }
