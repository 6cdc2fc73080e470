//go:build llama

package vector

// #include "vector.h"
import "C"

import (
	"runtime"
	"sync"
	"time"
)

// Peak lets so many threads multiply and add for about as long as limit, in passes of some milliseconds, and returns
// the best one: floating-point operations per second of all threads together, and the width of the vectors in bits.
func Peak(threads int, limit time.Duration) (perSecond float64, bits int, err error) {
	bits = int(C.vector_bits())
	rounds := calibrate(bits)
	for began := time.Now(); time.Since(began) < limit; {
		perSecond = max(perSecond, pass(threads, bits, rounds))
	}
	return perSecond, bits, nil
}

// passTime is how long a pass is: long enough that starting its threads does not count.
const passTime = 20 * time.Millisecond

// calibrate finds how many rounds a pass has.
func calibrate(bits int) uint64 {
	const first = 1 << 16
	var sum C.float
	began := time.Now()
	C.peak_run(C.int(bits), first, &sum)
	return max(first, uint64(first*float64(passTime)/float64(max(time.Since(began), 1))))
}

// pass is one run of all threads: from the first one's start to the last one's end.
func pass(threads, bits int, rounds uint64) float64 {
	var (
		ready, done sync.WaitGroup
		begin       = make(chan struct{})
		operations  = make([]uint64, threads)
	)
	ready.Add(threads)
	done.Add(threads)
	for i := range threads {
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			defer done.Done()
			var sum C.float
			ready.Done()
			<-begin
			operations[i] = uint64(C.peak_run(C.int(bits), C.uint64_t(rounds), &sum))
		}()
	}
	ready.Wait()
	began := time.Now()
	close(begin)
	done.Wait()
	took := time.Since(began)
	var all uint64
	for _, n := range operations {
		all += n
	}
	return float64(all) / took.Seconds()
}
