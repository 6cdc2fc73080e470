package stream

import "github.com/llamatap/llamatap/store/codec"

// Options say how a stream is written. The zero value writes F16, uncompressed, with as many workers as there are CPUs.
type Options struct {
	Workers int         // goroutines that convert and compress; 0 = GOMAXPROCS
	Codec   codec.ID    // compression of every packet
	Bound   codec.Bound // what the codecs Q and QFSE promise of F32 rows; other types are packed with LZ4 then
	// element type for F32 tensors: F32, F16 or BF16; Raw (zero) = F16. Other types are stored as they are
	DType codec.DType

	// Queue is how many packets may wait for a worker before Append blocks; 0 = 1024. Their data stays the caller's.
	Queue int
	// MemoryBound is how many bytes the writer may hold in buffers, of packed packets and of what is on its way to
	// the disk; 0 = 64 MiB. Less than 256 KiB counts as that, and one packet that needs more passes alone.
	MemoryBound int64

	// Ahead is how many bytes the disk is asked to keep for the stream ahead of what is written, at most and at
	// most a 64th of what is free; 0 = none. Only a stream that [Create] made can have it. A file system that
	// cannot is not an error.
	Ahead int64

	Sync  Sync     // when what was written is put on the disk; the zero value leaves it to the file system
	RunID [16]byte // identity of the run, repeated in the index; zero = random
	// Tee, unless it is nil, gets the bytes of both files as they are written, whole packets and whole records:
	// first the stream's, then those of the index that describe them. It is called by one goroutine at a time and
	// may block, which holds back what comes; p is valid during the call.
	Tee func(index bool, p []byte)
	// OnWorkerStart is called on the goroutine of each worker, and of the two that write and hash, locked to its
	// thread, before the first packet: the place to lower its priority.
	OnWorkerStart func()
}
