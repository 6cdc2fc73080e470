// Package machine measures what a machine can do at most: how fast one writer fills a disk, and how fast its memory
// is read and written. A recording is compared with these limits.
//
// # Disk
//
// One writer writes a file of pseudo-random bytes, which neither a file system nor a disk can compress, in writes
// of at most 4 MiB, one at a time, as a recording does. A round is a number of bytes and the fdatasync behind them;
// its time is from the first write to the end of fdatasync, so nothing stays behind in a cache of the kernel.
// Rounds double from 1 MiB on, each into an empty file, until the next one would pass the limit of time or of
// bytes, and the last round is the result: the largest, for the smaller ones show the price of a single fdatasync.
// It is one figure of a short burst. A disk that has a cache of its own, or that a provider lets run faster for a
// while, may be slower for long, and a disk that other programs use is slower meanwhile. The limit of time is a
// prediction from the round before: a disk that stalls is waited for.
//
// Buffered writes go through the page cache, direct ones (O_DIRECT) past it.
//
// # Memory
//
// Triad is STREAM's a[i] = b[i] + s*c[i] over float64 (McCalpin, https://www.cs.virginia.edu/stream), on one thread
// per processor that this process may use, each of which touches its part of the arrays first. Bytes are counted as
// STREAM does: three times the array, without the read of a that the stores of most processors cause. Copy is Go's
// copy on one thread; its bytes are those copied, and memory moves at least twice as many. Both results are the
// best pass, as STREAM's: what disturbs a pass makes it slower, never faster. STREAM wants arrays of four times the
// caches; where the limit of bytes leaves less, Memory.Cached is true, and part of the rate may be a cache's. The
// code is Go's, which the compiler does not vectorise: on a machine with few cores and fast memory it may be the
// cores that limit Triad.
package machine

import "time"

// A Rate is a number of bytes and the time that they took.
type Rate struct {
	Bytes int64
	Time  time.Duration
}

// PerSecond is the rate in bytes per second; 0 where nothing was measured.
func (r Rate) PerSecond() float64 {
	if r.Time <= 0 {
		return 0
	}
	return float64(r.Bytes) / r.Time.Seconds()
}

// A Limit bounds a measurement. It is kept by not starting what would pass it.
type Limit struct {
	Time  time.Duration
	Bytes int64 // of disk, or of memory
}
