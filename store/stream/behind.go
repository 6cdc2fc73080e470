package stream

// Hot path: what a writer collected is written and hashed by two goroutines of their own while the next is collected.

import (
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// behindBuffers is how many buffers an output that writes behind has: one is collected into, the others are on
// their way.
const behindBuffers = 3

// behind takes an output's full buffers to the disk and through the hash, in the order of the file. Both goroutines
// read a buffer at the same time; it is free again when both are through with it. The first error ends writing, and
// stays.
//
// SHA-256 is slower than a fast disk. Where no buffer is free, one that is in the file already is used again before it
// is hashed, and the hash reads the file instead. So it may lag behind until the file is closed.
type behind struct {
	name    string
	write   func(p []byte, at int64) error
	file    blockReader // nil: no buffer is used again before it is hashed
	reading []byte      // what the hash reads of the file
	hash    hash.Hash
	onStart func() // on each goroutine's own thread
	running sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond
	chunks  []*chunk // on their way, in the order of the file
	free    []*chunk
	end     int64 // of what was handed over
	written int64 // up to here it is in the file
	hashed  int64 // up to here it is in the hash
	stopped bool  // no more is handed over
	err     error

	diskNS, hashNS atomic.Int64 // time in write calls, time in hashing
	readAgain      int64        // bytes that the hash has read from the file
}

// chunk is one buffer on its way.
type chunk struct {
	buf   []byte
	at    int64
	users int // goroutines that read it
}

func (c *chunk) end() int64 { return c.at + int64(len(c.buf)) }

// startBehind makes o write behind from here on, with its own buffer and more of that size.
func (o *output) startBehind(onStart func()) {
	b := &behind{
		name: o.name, write: o.writeAt, hash: o.hash, onStart: onStart, end: o.size, written: o.size, hashed: o.size,
	}
	b.changed.L = &b.mu
	if b.file, _ = o.file.(blockReader); b.file != nil {
		b.reading = o.newBuffer(cap(o.buf))
	}
	for range behindBuffers - 1 {
		b.free = append(b.free, &chunk{buf: o.newBuffer(cap(o.buf))})
	}
	o.current, o.behind = &chunk{buf: o.buf}, b
	b.running.Go(b.toDisk)
	b.running.Go(b.toHash)
}

// begin is called on each goroutine.
func (b *behind) begin() {
	if b.onStart != nil {
		runtime.LockOSThread() // for good: the thread ends with the goroutine, and what was set on it
		b.onStart()
	}
}

// toDisk writes every chunk.
func (b *behind) toDisk() {
	b.begin()
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil && !(b.stopped && b.written == b.end) {
		c := b.chunkAt(b.written)
		if c == nil {
			b.changed.Wait()
			continue
		}
		c.users++
		b.mu.Unlock()
		start := time.Now()
		err := b.write(c.buf, c.at)
		b.diskNS.Add(time.Since(start).Nanoseconds())
		b.mu.Lock()
		c.users--
		b.written = c.end()
		b.done(err)
	}
}

// toHash hashes every chunk, and what was one from the file.
func (b *behind) toHash() {
	b.begin()
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil && !(b.stopped && b.hashed == b.end) {
		c := b.chunkAt(b.hashed)
		if c == nil && b.hashed >= b.written {
			b.changed.Wait()
			continue
		}
		var err error
		p, at := b.reading, b.hashed
		if c != nil {
			c.users++
			p = c.buf
		} else {
			p = p[:min(b.nextAt()-at, int64(cap(p)))]
		}
		b.mu.Unlock()
		start := time.Now()
		if c == nil {
			err = b.file.ReadBlocks(p, at)
		}
		b.hash.Write(p)
		b.hashNS.Add(time.Since(start).Nanoseconds())
		b.mu.Lock()
		b.hashed += int64(len(p))
		if c != nil {
			c.users--
		} else {
			b.readAgain += int64(len(p))
		}
		if err != nil {
			err = fmt.Errorf("read %s at byte %d, to hash it: %w", b.name, at, err)
		}
		b.done(err)
	}
}

// chunkAt is the chunk that begins there; nil: it was not handed over yet, or its buffer is used again.
func (b *behind) chunkAt(at int64) *chunk {
	for _, c := range b.chunks {
		if c.at == at {
			return c
		}
	}
	return nil
}

// nextAt is where the file is read up to: a chunk, or the end of what is written.
func (b *behind) nextAt() int64 {
	if len(b.chunks) > 0 {
		return min(b.chunks[0].at, b.written)
	}
	return b.written
}

// done is called when a goroutine is through with something: it frees chunks that nothing needs.
func (b *behind) done(err error) {
	if b.err == nil {
		b.err = err
	}
	b.chunks = slices.DeleteFunc(b.chunks, func(c *chunk) bool {
		free := c.users == 0 && (b.err != nil || c.end() <= min(b.written, b.hashed))
		if free {
			b.free = append(b.free, c)
		}
		return free
	})
	b.changed.Broadcast()
}

func (b *behind) error() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// next hands a chunk over and returns an empty one, for which it may have to wait.
func (b *behind) next(c *chunk) *chunk {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.chunks, b.end = append(b.chunks, c), c.end()
	b.done(nil)
	for {
		if last := len(b.free) - 1; last >= 0 {
			c := b.free[last]
			b.free = b.free[:last]
			return c
		}
		unhashed := slices.IndexFunc(b.chunks, func(c *chunk) bool { return c.users == 0 && c.end() <= b.written })
		if unhashed >= 0 && b.file != nil {
			c := b.chunks[unhashed]
			b.chunks = slices.Delete(b.chunks, unhashed, unhashed+1)
			return c
		}
		b.changed.Wait()
	}
}

// settle waits until every chunk that was handed over is in the file.
func (b *behind) settle() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil && b.written < b.end {
		b.changed.Wait()
	}
	return b.err
}

// stop ends both goroutines when they are through.
func (b *behind) stop() {
	b.mu.Lock()
	b.stopped = true
	b.changed.Broadcast()
	b.mu.Unlock()
	b.running.Wait()
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
