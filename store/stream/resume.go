package stream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// The errors of going on with a stream.
var (
	ErrRepeat = errors.New("the run does not repeat itself") // what is appended again is not what the stream holds
	ErrLossy  = errors.New("the recording lost tensors")     // a program that runs again would bring them
)

// Resume opens the stream at path, which another writer made and perhaps could not end, to go on with it. Both files are cut off behind
// the last commit before which everything is in them as it was recorded; the Mark is that place.
//
// The caller appends everything from the run's beginning on once more. What the files hold already is compared with it, times apart, and
// not written again: ErrRepeat occurs at the first difference. Values of packets are packed and compared for one packet in
// repeatEvery, and for the last repeatEvery packets. From the place of the cut on the writer writes as one that was never interrupted.
func Resume(path string, o Options) (*Writer, Mark, error) {
	w, err := resume(path, o)
	if err != nil {
		return nil, Mark{}, fmt.Errorf("resume stream %s: %w", path, err)
	}
	return w, w.syncer.synced, nil
}

func resume(path string, o Options) (*Writer, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	end, err := cutOff(path)
	if err != nil {
		return nil, err
	}
	p, err := newReplay(path, &o, end)
	if err != nil {
		return nil, err
	}
	w, err := reopen(path, o, end)
	if err != nil {
		return nil, errors.Join(err, p.walk.file.Close())
	}
	if p.packets = w.journal.footer.Totals.Packets; p.walk.at < p.end {
		w.replay.Store(p)
	} else {
		p.walk.file.Close()
	}
	return w, nil
}

// cutOff cuts both files off behind their last good commit.
func cutOff(path string) (end cut, err error) {
	walk, err := openWalker(path + IndexSuffix)
	if err != nil {
		return end, err
	}
	defer walk.file.Close()
	data, err := os.Open(path)
	if err != nil {
		return end, err
	}
	defer data.Close()
	end, lost := walk.lastCommit(data)
	if lost && walk.at != end.index {
		lost = lostBefore(path, end)
	}
	if lost {
		return end, fmt.Errorf("%w, which a second recording would not: record anew, with --tap-overflow block", ErrLossy)
	}
	if err := rewrite(path+IndexSuffix, end.index, nil); err != nil {
		return end, err
	}
	return end, rewrite(path, end.stream, nil)
}

// lostBefore tells whether a loss is recorded before the cut; those behind it go with it.
func lostBefore(path string, end cut) bool {
	walk, err := openWalker(path + IndexSuffix)
	if err != nil {
		return true
	}
	defer walk.file.Close()
	for walk.at < end.index {
		if r, ok := walk.next(); !ok || r.kind == recordLoss {
			return true
		}
	}
	return false
}

// reopen makes a writer that stands at the end of both files.
func reopen(path string, o Options, end cut) (*Writer, error) {
	stream, err := openBlocks(path)
	if err != nil {
		return nil, err
	}
	index, err := os.OpenFile(path+IndexSuffix, os.O_WRONLY, 0)
	if err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	w := newWriter(stream, index, o)
	err = w.restore(path, end)
	if err == nil {
		err = w.start()
	}
	if err != nil {
		return nil, errors.Join(err, stream.Close(), index.Close())
	}
	return w, nil
}

// restore brings a writer to where it was when it had written both files up to the cut.
func (w *Writer) restore(path string, end cut) error {
	walk, err := openWalker(path + IndexSuffix)
	if err != nil {
		return err
	}
	defer walk.file.Close()
	w.journal = &journal{
		header: walk.header, out: w.index, before: w.stream, chain: walk.chain, ids: make(map[node]uint64), every: seekEvery,
	}
	w.o.RunID = walk.header.RunID
	for walk.at < end.index {
		if !w.journal.repeat(walk) {
			return fmt.Errorf("index: %w: byte %d changed while it was read", ErrCorrupt, walk.at)
		}
	}
	if err := errors.Join(w.stream.resume(path, end.stream), w.index.resume(path+IndexSuffix, end.index)); err != nil {
		return err
	}
	mark := w.journal.mark()
	w.queue.flushed, w.syncer.synced = mark, mark
	w.queue.stats.FileBytes = uint64(end.stream + end.index)
	return nil
}

// repeat takes account of the next record as if it were written now.
func (j *journal) repeat(walk *walker) bool {
	at := walk.at
	r, ok := walk.next()
	if !ok {
		return false
	}
	switch r.kind {
	case recordNode:
		j.addNode(walk.nodes[len(walk.nodes)-1])
	case recordPacket:
		j.out.size = at
		j.seek(&walk.packet)
		j.count(j.ids[nodeOf(&walk.packet)], &walk.packet)
	case recordExecution:
		e, err := j.header.readExecution(r.payload)
		if err != nil {
			return false
		}
		j.footer.Totals.Executions++
		j.footer.Totals.Rows += uint64(len(e.Rows))
	case recordCommit:
		j.footer.Totals.Commits++
	}
	j.chain = r.crc
	j.footer.Records++
	return true
}

// resume makes an output go on at the end of a file of that size, which it reads for its hash.
func (o *output) resume(path string, size int64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	tail := 0
	if o.blocks != nil {
		tail = int(size % blockAlign)
	} else if s, ok := o.file.(io.Seeker); ok {
		if _, err := s.Seek(size, io.SeekStart); err != nil {
			return err
		}
	}
	o.size, o.buf, o.tail = size-int64(tail), o.buf[:tail], tail
	if _, err := io.CopyN(o.hash, file, o.size); err != nil {
		return err
	}
	_, err = io.ReadFull(file, o.buf)
	return err
}

// repeatEvery is how many packets of a stream come to one whose values are compared, when the stream is resumed.
const repeatEvery = 64

// replay is what a resumed stream holds already, and is appended once more.
type replay struct {
	mu      sync.Mutex
	walk    *walker
	end     int64  // of what is repeated, in the index
	packets uint64 // of it
	seen    uint64
	pack    *packer
	out     []byte
	expect  []byte
	given   bool // up: what comes is neither compared nor written
}

func newReplay(path string, o *Options, end cut) (*replay, error) {
	pack, err := newPacker(o)
	if err != nil {
		return nil, err
	}
	walk, err := openWalker(path + IndexSuffix)
	if err != nil {
		return nil, err
	}
	return &replay{walk: walk, end: end.index, pack: pack}, nil
}

// Repeating tells whether what is appended is still what the stream holds already.
func (w *Writer) Repeating() bool { return w.replay.Load() != nil }

// repeated compares what is appended with what the stream holds there. false: it is new.
func (w *Writer) repeated(kind byte, same func(*replay, *record) bool) (bool, error) {
	p := w.replay.Load()
	if p == nil {
		return false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.replay.Load() == nil { // meanwhile
		return false, nil
	}
	if p.given {
		return true, nil
	}
	r, ok := p.walk.next()
	for ok && r.kind == recordNode {
		r, ok = p.walk.next()
	}
	if !ok || r.kind != kind || !same(p, &r) {
		p.given = true
		return true, fmt.Errorf("%w: record %d, %s, is another one now; the model, its libraries or the machine have changed", ErrRepeat, r.sequence, recordName(r.kind))
	}
	if p.walk.at >= p.end {
		w.replay.Store(nil)
		p.walk.file.Close()
	}
	return true, nil
}

func recordName(kind byte) string {
	switch kind {
	case recordPacket:
		return "a tensor"
	case recordExecution:
		return "the tokens of a micro-batch"
	}
	return fmt.Sprintf("of type %d", kind)
}

// repeatPacket compares a packet, and counts it as written.
func (w *Writer) repeatPacket(p *Packet, data []byte) (bool, error) {
	return w.repeated(recordPacket, func(r *replay, _ *record) bool {
		is := &r.walk.packet
		if !samePacket(is, p, len(data)) {
			return false
		}
		if r.seen++; r.seen%repeatEvery == 0 || r.seen+repeatEvery > r.packets {
			again := *p
			var err error
			r.out, err = r.pack.append(r.out[:0], &again, data)
			if err != nil || again.CRC != is.CRC || again.Stored != is.Stored {
				return false
			}
		}
		s := Stats{}
		s.addPacket(is)
		w.queue.mu.Lock()
		w.queue.add(s)
		w.queue.mu.Unlock()
		return true
	})
}

// samePacket compares what is known of a packet before it is packed, times apart.
func samePacket(is, p *Packet, bytes int) bool {
	return nodeOf(is) == nodeOf(p) && is.SrcBytes == int64(bytes) && is.NE == p.NE && is.Graph == p.Graph && is.Exec == p.Exec &&
		is.NodeIndex == p.NodeIndex && is.TokenFirst == p.TokenFirst && is.TokenCount == p.TokenCount && is.Phase == p.Phase &&
		is.Block == p.Block && is.BlockStart == p.BlockStart && is.SampleSeed == p.SampleSeed && is.SampleTotal == p.SampleTotal
}

// repeatExecution compares an execution.
func (w *Writer) repeatExecution(e *Execution) (bool, error) {
	return w.repeated(recordExecution, func(p *replay, r *record) bool {
		is, err := p.walk.header.readExecution(r.payload)
		if err != nil {
			return false
		}
		again := *e
		again.TimeNS, again.MonoNS = is.TimeNS, is.MonoNS
		p.expect = p.walk.header.appendExecution(p.expect[:0], &again)
		return string(p.expect) == string(r.payload)
	})
}

// repeatPayload compares a record that holds no times.
func (w *Writer) repeatPayload(kind byte, payload []byte) (bool, error) {
	return w.repeated(kind, func(_ *replay, r *record) bool { return kind == recordCommit || string(payload) == string(r.payload) })
}
