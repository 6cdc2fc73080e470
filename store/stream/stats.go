package stream

import "github.com/llamatap/llamatap/store/codec"

// Stats says what a writer did so far.
type Stats struct {
	Packets   uint64 // written
	SrcBytes  uint64 // taken from tensors
	RawBytes  uint64 // after conversion
	Stored    uint64 // payload bytes
	Saturated uint64
	Underflow uint64
	Error     codec.Achieved // largest of a row, with a codec that makes one
	FileBytes uint64         // size of stream and index so far, with what is on its way into them
	Ahead     int64          // bytes of the disk that are kept for the stream and not written yet
	PackNS    int64          // time of all workers in conversion, compression and checksums
	WriteNS   int64          // time in write calls for the stream
	HashNS    int64          // time in hashing the stream for the manifest
}
