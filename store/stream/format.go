package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// This file is the layout of both files; docs/STREAM_FORMAT.md and docs/INDEX_FORMAT.md document it with examples.

// A packet of the stream: name_len uint16, data_len uint32, both big-endian, then the name and the payload.
const (
	packetHeader = 6
	maxName      = math.MaxUint16
	maxPayload   = math.MaxUint32
)

// The index begins with a header of headerSize bytes, all numbers little-endian.
const (
	indexMagic   = "\x89LTIDX\r\n"
	versionMajor = 1 // a reader refuses another one
	versionMinor = 4 // a reader ignores it
	headerSize   = 64
)

// Then come records, each recordHeader bytes and a payload: CRC-32C uint32, payload length uint24, type uint8,
// sequence number uint32 from 0. The checksum continues that of the record before it (of the header, for the first)
// over everything of the record after the checksum itself, so that no record can be lost, moved or taken from
// another file without being noticed.
const (
	recordHeader = 12
	maxRecord    = 1<<24 - 1
)

// The record types. A reader skips an unknown one from recordOptional on and refuses any other.
const (
	recordNode       = 1 // describes a node; packets refer to it by its number, from 0
	recordPacket     = 2
	recordExecution  = 3
	recordCommit     = 4
	recordLoss       = 5
	recordResolution = 6
	recordEnd        = 7 // last record of a complete file
	recordOptional   = 128
	recordRequest    = 128 // since 1.1
	recordGap        = 129 // since 1.2
	recordText       = 130 // since 1.3
	recordStateLoad  = 131 // since 1.4
)

// An end record finishes with a trailer by which it is found from the file's end: CRC-32C of the payload before the
// trailer, size of the whole record, magic.
const (
	endMagic   = "LTIE"
	endTrailer = 4 + 4 + len(endMagic)
)

// The bits of a packet record's flags; each adds fields.
const (
	flagLosses  = 1 << iota // saturated, underflow
	flagBlock               // block, blocks, start
	flagSample              // seed, total
	flagError               // errors made
	flagRebuilt             // nothing more: the record was made from the stream
	flagsKnown  = 1<<iota - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Header is the head of an index file.
type Header struct {
	Major, Minor uint16
	RunID        [16]byte
	Salt         [8]byte // random, so that records of another file do not fit
	TimeNS       int64   // when the file was made, Unix time
	MonoNS       int64   // the same on the monotonic clock
	Sync         Sync    // since 1.2; before it none was promised
}

func (h *Header) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, indexMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, h.Major)
	dst = binary.LittleEndian.AppendUint16(dst, h.Minor)
	dst = binary.LittleEndian.AppendUint32(dst, headerSize)
	dst = append(dst, h.RunID[:]...)
	dst = append(dst, h.Salt[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.TimeNS))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.MonoNS))
	dst = binary.LittleEndian.AppendUint32(dst, h.Sync.bits())
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[start:]))
}

// parseHeader reads the head of an index and returns the checksum that its first record continues.
func parseHeader(b []byte) (h Header, chain uint32, err error) {
	switch {
	case len(b) >= len(indexMagic) && string(b[:len(indexMagic)]) != indexMagic:
		return h, 0, fmt.Errorf("index header: %w: this is not an index of a llamatap stream", ErrCorrupt)
	case len(b) < headerSize:
		return h, 0, fmt.Errorf("index header: %w: %d bytes", ErrTruncated, len(b))
	case checksum(b[:headerSize-4]) != binary.LittleEndian.Uint32(b[headerSize-4:]):
		return h, 0, fmt.Errorf("index header: %w: checksum", ErrCorrupt)
	}
	h.Major, h.Minor = binary.LittleEndian.Uint16(b[8:]), binary.LittleEndian.Uint16(b[10:])
	if h.Major != versionMajor || binary.LittleEndian.Uint32(b[12:]) != headerSize {
		return h, 0, fmt.Errorf("index header: %w %d.%d: this program reads %d; use a newer one", ErrVersion, h.Major,
			h.Minor, versionMajor)
	}
	copy(h.RunID[:], b[16:])
	copy(h.Salt[:], b[32:])
	h.TimeNS = int64(binary.LittleEndian.Uint64(b[40:]))
	h.MonoNS = int64(binary.LittleEndian.Uint64(b[48:]))
	h.Sync = syncOf(binary.LittleEndian.Uint32(b[56:]))
	return h, binary.LittleEndian.Uint32(b[headerSize-4:]), nil
}

// appendRecord appends a record and returns the checksum that the next one continues.
func appendRecord(dst []byte, kind byte, sequence, chain uint32, payload []byte) ([]byte, uint32) {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload))|uint32(kind)<<24)
	dst = binary.LittleEndian.AppendUint32(dst, sequence)
	dst = append(dst, payload...)
	chain = crc32.Update(chain, castagnoli, dst[start+4:])
	binary.LittleEndian.PutUint32(dst[start:], chain)
	return dst, chain
}

// record is one record of an index as it lies there.
type record struct {
	crc      uint32
	chain    uint32 // checksum that it continues; filled when that was compared
	kind     byte
	sequence uint32
	payload  []byte
	raw      []byte // all of it after the checksum
}

// recordSize is the size of the record of which b is the beginning; false if b is too short.
func recordSize(b []byte) (int, bool) {
	if len(b) < recordHeader {
		return 0, false
	}
	return recordHeader + int(binary.LittleEndian.Uint32(b[4:])&maxRecord), true
}

// parseRecord cuts the first record off b; false if b is too short for it. Its checksum is still to be compared.
func parseRecord(b []byte) (r record, ok bool) {
	end, ok := recordSize(b)
	if !ok || end > len(b) {
		return r, false
	}
	return record{
		crc: binary.LittleEndian.Uint32(b), kind: b[7], sequence: binary.LittleEndian.Uint32(b[8:]),
		payload: b[recordHeader:end], raw: b[4:end],
	}, true
}

func (r *record) size() int { return 4 + len(r.raw) }

// follows reports whether the record's checksum continues chain.
func (r *record) follows(chain uint32) bool { return crc32.Update(chain, castagnoli, r.raw) == r.crc }

var errField = errors.New("malformed field")

// cursor reads the fields of a payload. After the first error every read gives zero.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) uint() uint64 {
	v, n := binary.Uvarint(c.b)
	return advance(c, v, n)
}

func (c *cursor) int() int64 {
	v, n := binary.Varint(c.b)
	return advance(c, v, n)
}

func advance[T any](c *cursor, v T, n int) T {
	if n <= 0 || c.err != nil {
		var zero T
		c.fail()
		return zero
	}
	c.b = c.b[n:]
	return v
}

// size reads a number that may be no larger than limit.
func (c *cursor) size(limit uint64) int64 {
	v := c.uint()
	if v > min(limit, math.MaxInt64) {
		c.fail()
		return 0
	}
	return int64(v)
}

func (c *cursor) bytes(n int) []byte {
	if c.err != nil || n < 0 || n > len(c.b) {
		c.fail()
		return nil
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) byte() byte {
	if b := c.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) uint32() uint32 {
	if b := c.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) string() string { return string(c.bytes(int(c.size(maxRecord)))) }

func (c *cursor) fail() {
	if c.err == nil {
		c.err = errField
	}
}

// done returns the first error, or one if bytes are left over.
func (c *cursor) done() error {
	if c.err == nil && len(c.b) > 0 {
		return fmt.Errorf("%w: %d bytes too many", errField, len(c.b))
	}
	return c.err
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}
