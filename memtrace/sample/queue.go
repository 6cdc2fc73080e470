package sample

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/llamatap/llamatap/memtrace"
)

// held is how many accesses a queue keeps in memory. Those that come when it is full go to a file, and are read
// again in their order.
const held = 1 << 16

// entryBytes is an access in the file.
const entryBytes = 8*6 + 4*3 + 3 + 1

// Queue holds accesses until somebody can say what they touched: a model that loads for minutes has neither buffers
// nor a run directory. Put and Lost may be called by several goroutines, the rest is for one.
type Queue struct {
	sorted []memtrace.Access // taken out, by time
	mu     sync.Mutex
	most   int // in memory
	folder string
	memory []memtrace.Access // oldest first, older than those in the file
	file   *os.File          // nil: there is none, or it was given up
	out    *bufio.Writer
	wrote  int64 // bytes, into out
	read   int64
	failed error
	lost   uint64
}

// NewQueue makes an empty queue, whose file would lie in a folder, without a name there.
func NewQueue(folder string) *Queue { return &Queue{most: held, folder: folder} }

// Put adds an access. Where neither memory nor disk have room it is lost, and counted.
func (q *Queue) Put(a *memtrace.Access) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.read == q.wrote && len(q.memory) < q.most {
		q.memory = append(q.memory, *a)
		return
	}
	if err := q.spill(a); err != nil {
		if q.failed == nil {
			q.failed = fmt.Errorf("samples that wait for the run: %w; free room on the disk of %s", err, q.folder)
		}
		q.lost++
	}
}

// spill writes an access to the file. After an error nothing more is written: the file may end within an entry, up
// to which it is read.
func (q *Queue) spill(a *memtrace.Access) error {
	if q.failed != nil {
		return q.failed
	}
	if q.file == nil {
		file, err := os.CreateTemp(q.folder, ".samples-*")
		if err != nil {
			return err
		}
		os.Remove(file.Name())
		q.file, q.out = file, bufio.NewWriterSize(file, 1<<16)
	}
	var entry [entryBytes]byte
	b := entry[:0]
	le := binary.LittleEndian
	for _, v := range [...]uint64{uint64(a.TimeNS), a.Addr, a.Size, a.IP, a.Latency, a.Weight} {
		b = le.AppendUint64(b, v)
	}
	for _, v := range [...]int32{a.PID, a.TID, a.CPU} {
		b = le.AppendUint32(b, uint32(v))
	}
	_ = append(b, byte(a.Op), byte(a.Level), byte(a.Collector), 0)
	if _, err := q.out.Write(entry[:]); err != nil {
		return err
	}
	q.wrote += entryBytes
	return nil
}

func decode(b []byte) (a memtrace.Access) {
	le := binary.LittleEndian
	word := func(i int) uint64 { return le.Uint64(b[8*i:]) }
	half := func(i int) int32 { return int32(le.Uint32(b[48+4*i:])) }
	return memtrace.Access{
		TimeNS: int64(word(0)), Addr: word(1), Size: word(2), IP: word(3), Latency: word(4), Weight: word(5),
		PID: half(0), TID: half(1), CPU: half(2),
		Op: memtrace.AccessOp(b[60]), Level: memtrace.CacheLevel(b[61]), Collector: memtrace.Collector(b[62]),
	}
}

// appendMemory appends the oldest accesses, at most n, to dst.
func (q *Queue) appendMemory(dst []memtrace.Access, n int) []memtrace.Access {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := min(n, len(q.memory))
	dst = append(dst, q.memory[:k]...)
	q.memory = q.memory[:copy(q.memory, q.memory[k:])]
	if n -= k; n > 0 && q.read < q.wrote {
		dst = q.appendSpilled(dst, n)
	}
	return dst
}

// appendSpilled reads accesses from the file, and empties it when all were read. What cannot be read is lost.
func (q *Queue) appendSpilled(dst []memtrace.Access, n int) []memtrace.Access {
	if err := q.out.Flush(); err != nil && q.failed == nil {
		q.failed = fmt.Errorf("samples that wait for the run: %w; free room on the disk of %s", err, q.folder)
	}
	var entry [entryBytes]byte
	from := bufio.NewReader(io.NewSectionReader(q.file, q.read, q.wrote-q.read))
	for ; n > 0 && q.read < q.wrote; n-- {
		if _, err := io.ReadFull(from, entry[:]); err != nil {
			q.lost += uint64(q.wrote-q.read) / entryBytes
			q.read = q.wrote
			break
		}
		q.read += entryBytes
		dst = append(dst, decode(entry[:]))
	}
	if q.read == q.wrote { // free the file's disk space
		q.file.Close()
		q.file, q.out, q.read, q.wrote = nil, nil, 0, 0
	}
	return dst
}

// taken is how many accesses are sorted together.
const taken = 1 << 14

// Before calls each for the accesses of before a time that are there now, nearly in the order of time: collectors have
// a ring per CPU, and are read one after the other.
func (q *Queue) Before(ns int64, each func(*memtrace.Access)) {
	for {
		if len(q.sorted) < taken {
			q.sorted = q.appendMemory(q.sorted, taken)
			slices.SortStableFunc(q.sorted, func(a, b memtrace.Access) int { return cmp.Compare(a.TimeNS, b.TimeNS) })
		}
		n := 0
		for ; n < len(q.sorted) && q.sorted[n].TimeNS < ns; n++ {
			each(&q.sorted[n])
		}
		q.sorted = q.sorted[:copy(q.sorted, q.sorted[n:])]
		if n == 0 {
			return
		}
	}
}

// Lost is how many accesses found no room, and why the first did not.
func (q *Queue) Lost() (uint64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lost, q.failed
}

// Close gives back what the queue holds.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.memory = nil
	if q.file == nil {
		return nil
	}
	err := q.file.Close()
	q.file = nil
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return err
}
