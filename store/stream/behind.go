package stream

// Hot path: what a writer collected is written and hashed by two goroutines of their own while the next is collected.

import (
	"errors"
	"hash"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// behindBuffers is how many buffers an output that writes behind has: one is collected into, the others are on
// their way.
const behindBuffers = 3

// behind takes an output's full buffers to the disk and through the hash. Both goroutines read a buffer at the same
// time; it is free again when both are through with it. The first error ends writing, and stays.
type behind struct {
	free    chan *chunk
	toDisk  chan *chunk
	toHash  chan *chunk
	ended   sync.WaitGroup
	write   func(p []byte, at int64) error
	hash    hash.Hash
	failed  atomic.Pointer[error]
	onStart func() // on each goroutine's own thread

	diskNS, hashNS atomic.Int64 // time in write calls, time in hashing
}

// chunk is one buffer on its way.
type chunk struct {
	buf  []byte
	at   int64
	left atomic.Int32 // goroutines that are not through with it
}

// startBehind makes o write behind from here on, with its own buffer and more of that size.
func (o *output) startBehind(onStart func()) {
	b := &behind{
		free: make(chan *chunk, behindBuffers), toDisk: make(chan *chunk, behindBuffers),
		toHash: make(chan *chunk, behindBuffers),
		write:  o.writeAt, hash: o.hash, onStart: onStart,
	}
	for range behindBuffers - 1 {
		b.free <- &chunk{buf: o.newBuffer(cap(o.buf))}
	}
	o.current, o.behind = &chunk{buf: o.buf}, b
	b.ended.Go(func() { b.drain(b.toDisk, &b.diskNS, b.put) })
	b.ended.Go(func() { b.drain(b.toHash, &b.hashNS, func(c *chunk) { b.hash.Write(c.buf) }) })
}

// drain does with every chunk what has to be done, until there will be no more.
func (b *behind) drain(chunks <-chan *chunk, spent *atomic.Int64, do func(*chunk)) {
	if b.onStart != nil {
		runtime.LockOSThread() // for good: the thread ends with the goroutine, and what was set on it
		b.onStart()
	}
	for c := range chunks {
		start := time.Now()
		do(c)
		spent.Add(time.Since(start).Nanoseconds())
		if c.left.Add(-1) == 0 {
			b.free <- c
		}
	}
}

func (b *behind) put(c *chunk) {
	if b.error() != nil {
		return
	}
	if err := b.write(c.buf, c.at); err != nil {
		b.failed.Store(&err)
	}
}

func (b *behind) error() error {
	if err := b.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// next hands a chunk over and returns an empty one, for which it may have to wait.
func (b *behind) next(c *chunk) *chunk {
	c.left.Store(2)
	b.toDisk <- c
	b.toHash <- c
	return <-b.free
}

// settle waits until every chunk that was handed over is in the file and in the hash.
func (b *behind) settle() error {
	var chunks [behindBuffers - 1]*chunk
	for i := range chunks {
		chunks[i] = <-b.free
	}
	for _, c := range chunks {
		b.free <- c
	}
	return b.error()
}

// stop ends both goroutines when they are through.
func (b *behind) stop() {
	close(b.toDisk)
	close(b.toHash)
	b.ended.Wait()
}

// writeAt writes to the file, whose place is at for every file that has one.
func (o *output) writeAt(p []byte, at int64) error {
	if o.blocks != nil {
		o.ahead.prepare(at, int64(len(p)))
		if err := o.blocks.WriteBlocks(p, at); err != nil {
			return o.failed(err, at)
		}
		o.ahead.wrote(at + int64(len(p)))
		return nil
	}
	for {
		written, err := o.file.Write(p)
		if err == nil && written < len(p) {
			err = io.ErrShortWrite
		}
		if err == nil {
			return nil
		}
		at += int64(written)
		if o.relief == nil || !full(err) || !o.relief() {
			return o.failed(err, at)
		}
		p = p[written:]
	}
}

// full reports whether it is for want of room that a write failed.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
