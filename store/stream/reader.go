package stream

import (
	"errors"
	"iter"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// The errors of reading. They are wrapped with file, place and remedy.
var (
	ErrNoIndex   = errors.New("stream has no index") // the .idx file is not there; OpenForeign reads the stream alone
	ErrCorrupt   = errors.New("corrupt")             // bytes are not what was written
	ErrTruncated = errors.New("truncated")           // bytes are missing at an end
	ErrVersion   = errors.New("unknown format version")
)

// Reader reads a stream. All methods but Close may be called from several goroutines.
type Reader struct{}

// Open opens the stream at path and its index beside it. A stream without index is ErrNoIndex. Corruption in the middle of
// the index is ErrCorrupt; a torn end, as a crash leaves it, is told by Damage.
func Open(path string) (*Reader, error) { return nil, errors.ErrUnsupported }

// OpenDamaged is Open that takes what it can get from a corrupt index; Damage tells what is missing.
func OpenDamaged(path string) (*Reader, error) { return nil, errors.ErrUnsupported }

// OpenForeign opens a stream without its index, as STRAP-LLM writes it. Packets have a name, an offset and sizes; see Assumed.
func OpenForeign(path string) (*Reader, error) { return nil, errors.ErrUnsupported }

// Assumed says in words what is assumed about a stream because no index says it; empty with an index.
func (r *Reader) Assumed() string { return "" }

// Damage returns what is wrong with the files as far as opening them showed: errors that wrap ErrTruncated or ErrCorrupt.
func (r *Reader) Damage() []error { return nil }

// Len returns the number of packets.
func (r *Reader) Len() int { return 0 }

// Packet fills p with packet i, in stream order.
func (r *Reader) Packet(i int, p *Packet) error { return errors.ErrUnsupported }

// Packets iterates over all packets in stream order. The pointer is valid during one step.
func (r *Reader) Packets() iter.Seq2[int, *Packet] { return nil }

// ReadInto appends the packet's element bytes, decoded, to dst[:0] and returns it. Checksum and header are verified.
func (r *Reader) ReadInto(p *Packet, dst []byte) ([]byte, error) { return nil, errors.ErrUnsupported }

// Float32 appends the packet's elements as float32 to dst[:0]: F32, F16, BF16, F64 and integers; a Raw packet is
// errors.ErrUnsupported.
func (r *Reader) Float32(p *Packet, dst []float32) ([]float32, error) {
	return nil, errors.ErrUnsupported
}

// Executions iterates over the executions in the order of the index, phases resolved. The pointer is valid during one step.
func (r *Reader) Executions() iter.Seq[*Execution] { return nil }

// Rows returns the token rows of an execution.
func (r *Reader) Rows(exec uint64) ([]ggmlhooks.Row, bool) { return nil, false }

// Losses returns what was not recorded, one entry per cause.
func (r *Reader) Losses() []Loss { return nil }

// Verify reads the whole stream and compares every packet with the index. It returns all faults joined.
func (r *Reader) Verify() error { return errors.ErrUnsupported }

// Close closes the files.
func (r *Reader) Close() error { return nil }
