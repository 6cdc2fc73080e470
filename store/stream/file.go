package stream

// IndexSuffix is what the index's name adds to the stream's.
const IndexSuffix = ".idx"

// File is what a [Writer] writes to. An *os.File is one.
type File interface {
	Write(p []byte) (int, error)
	Sync() error
	Close() error
}

// Sum is the size and hash of a finished file, for the manifest of a run.
type Sum struct {
	Size   int64
	SHA256 [32]byte
}

// Stats says what a writer did so far.
type Stats struct {
	Packets   uint64 // written
	Pending   uint64 // appended, not yet written
	SrcBytes  uint64 // taken from tensors
	RawBytes  uint64 // after conversion
	Stored    uint64 // payload bytes
	Saturated uint64
	Underflow uint64
	WaitNS    int64 // time that Append waited for room in the queue
	PackNS    int64 // time of all workers in conversion, compression and checksums
	WriteNS   int64 // time in write calls and hashing
	Lost      uint64
}
