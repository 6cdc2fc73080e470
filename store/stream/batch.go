package stream

// Hot path: one pass over the caller's data into the batch's buffer, 0 allocations in steady state.

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/llamatap/llamatap/store/codec"
)

// The most that one batch takes from the queue. A larger packet is a batch of its own.
const (
	batchItems = 64
	batchBytes = 512 << 10
)

// item is one entry of the queue: a packet, or the payload of another record.
type item struct {
	kind    byte // record type; 0 = flush
	packet  Packet
	data    []byte // borrowed until release
	release func()
	payload []byte // of a record that is not a packet; the item's own
	rows    int    // token rows of an execution
}

// batch is a run of items in the order of the queue, packed by one worker and written as a whole.
type batch struct {
	items []item
	out   []byte // packets as they go into the stream
	done  bool
	err   error

	need    int64 // most bytes that out can become
	scratch int64 // most that its worker needs beside
}

// packer is what one worker needs.
type packer struct {
	encoder *codec.Encoder
	target  codec.DType // of F32 tensors
	codec   codec.ID
	rows    *codec.Encoder // of F32 rows within a bound; nil: they are converted
	scratch []byte         // converted elements, before compression
}

func newPacker(o *Options) (*packer, error) {
	k := &packer{target: o.DType, codec: o.Codec}
	var err error
	if o.Codec.Bounded() {
		k.codec = codec.LZ4
		if k.rows, err = codec.NewEncoder(o.Codec); err == nil {
			err = k.rows.SetBound(o.Bound)
		}
		if err != nil {
			return nil, err
		}
	}
	k.encoder, err = codec.NewEncoder(k.codec)
	return k, err
}

// stored returns the element type that a tensor of a ggml type is stored in, and the bytes that n source bytes then
// are.
func (o *Options) stored(ggmlType, n int) (codec.DType, int) {
	from := codec.DTypeOf(ggmlType)
	if from != codec.F32 || o.Codec.Bounded() {
		return from, n
	}
	return o.DType, n / from.Size() * o.DType.Size()
}

// need returns the most bytes that a packet of n source bytes takes in the stream, and those that packing takes beside.
func (o *Options) need(p *Packet, n int) (packed, scratch int64) {
	from := codec.DTypeOf(p.SrcType)
	dtype, raw := o.stored(p.SrcType, n)
	if dtype != from && o.Codec != codec.None {
		scratch = int64(raw)
	}
	scratch += int64(o.Codec.Scratch(raw))
	return int64(packetHeader + len(p.Name) + o.Codec.Bound(raw)), scratch
}

// pack fills out with the batch's packets and gives their data back. With failed set it only gives back.
func (b *batch) pack(k *packer, failed bool) (spent time.Duration) {
	start := time.Now()
	if int64(cap(b.out)) < b.need {
		b.out = make([]byte, 0, b.need)
	}
	b.out, b.err = b.out[:0], nil
	for i := range b.items {
		it := &b.items[i]
		if it.kind != recordPacket {
			continue
		}
		if !failed && b.err == nil {
			b.out, b.err = k.append(b.out, &it.packet, it.data)
		}
		if it.release != nil {
			it.release()
		}
		it.data, it.release = nil, nil
	}
	return time.Since(start)
}

// trim gives up buffers of more bytes than that.
func (k *packer) trim(keep int64) {
	if int64(cap(k.scratch)) > keep {
		k.scratch = nil
	}
	k.encoder.Trim(int(keep))
	if k.rows != nil {
		k.rows.Trim(int(keep))
	}
}

// append appends one packet as written in the stream, and fills in what is known of it now.
func (k *packer) append(dst []byte, p *Packet, data []byte) ([]byte, error) {
	start := len(dst)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(p.Name)))
	dst = append(dst, 0, 0, 0, 0)
	dst = append(dst, p.Name...)
	head := len(dst)
	dst, err := k.payload(dst, p, data)
	if err != nil {
		return dst[:start], fmt.Errorf("pack tensor %q: %w", p.Name, err)
	}
	stored := len(dst) - head
	if int64(stored) > maxPayload {
		return dst[:start], fmt.Errorf("pack tensor %q: %w: %d bytes packed", p.Name, ErrTooLarge, stored)
	}
	binary.BigEndian.PutUint32(dst[start+2:], uint32(stored))
	p.Stored, p.CRC = int64(stored), checksum(dst[head:])
	return dst, nil
}

func (k *packer) payload(dst []byte, p *Packet, data []byte) ([]byte, error) {
	from := codec.DTypeOf(p.SrcType)
	p.SrcBytes, p.RawBytes, p.DType, p.Codec = int64(len(data)), int64(len(data)), from, k.codec
	p.Saturated, p.Underflow, p.Error = 0, 0, codec.Achieved{}
	if from == codec.F32 && k.rows != nil {
		return k.bounded(dst, p, data)
	}
	if from != codec.F32 || k.target == codec.F32 {
		return k.encoder.AppendElements(dst, data, from.Size())
	}
	p.DType, p.RawBytes = k.target, int64(len(data)/2)
	var losses codec.Losses
	var err error
	if k.codec == codec.None {
		dst, losses, err = codec.Convert(dst, data, from, k.target)
	} else if k.scratch, losses, err = codec.Convert(k.scratch[:0], data, from, k.target); err == nil {
		dst, err = k.encoder.AppendElements(dst, k.scratch, k.target.Size())
	}
	p.Saturated, p.Underflow = losses.Saturated, losses.Underflow
	return dst, err
}

// bounded appends rows of F32 within the bound. A tensor that is not a whole number of rows, such as a sample, is one.
func (k *packer) bounded(dst []byte, p *Packet, data []byte) ([]byte, error) {
	if len(data) == 0 {
		p.Codec = codec.None
		return dst, nil
	}
	row := int(p.NE[0])
	if p.SampleTotal > 0 || row <= 0 || len(data)/4%row != 0 {
		row = len(data) / 4
	}
	dst, made, err := k.rows.AppendRows(dst, data, row)
	p.Codec, p.Error = k.rows.ID(), made
	return dst, err
}
