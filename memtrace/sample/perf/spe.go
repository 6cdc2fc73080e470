package perf

import (
	"encoding/binary"

	"github.com/llamatap/llamatap/memtrace"
)

// speRecord is a record of Arm's statistical profiling extension for one operation; Arm Architecture Reference Manual,
// chapter D10, Statistical Profiling Extension sample record specification. Fields that it lacks are 0.
type speRecord struct {
	IP        uint64
	Addr      uint64 // virtual, of data
	Phys      uint64
	Timestamp uint64 // of the machine's counter, not nanoseconds
	Latency   uint16 // cycles from dispatch to completion
	Op        memtrace.AccessOp
	Events    uint64 // SPE…
	Source    uint64 // where the data came from, in numbers of the CPU's maker
	Context   uint32 // number of the thread, if the kernel was asked for it
}

// Events of an speRecord.
const (
	speL1Access = 1 << 2
	speL1Refill = 1 << 3
	speLLAccess = 1 << 8 // of the last level of cache
	speLLMiss   = 1 << 9
	speRemote   = 1 << 10
	speL2Access = 1 << 19 // from version 1.4 of the extension on
	speL2Miss   = 1 << 20
	speFetched  = 1 << 22 // found in a line that was being fetched
)

// Level is where the data were found, as far as events show: for a miss in L1 without an access to the last level they
// do not.
func (r *speRecord) Level() memtrace.CacheLevel {
	switch e := r.Events; {
	case e&speRemote != 0 && e&speLLMiss != 0:
		return memtrace.LevelRemoteDRAM
	case e&speRemote != 0:
		return memtrace.LevelRemoteCache
	case e&speLLMiss != 0:
		return memtrace.LevelDRAM
	case e&speLLAccess != 0:
		return memtrace.LevelL3
	case e&speL2Access != 0 && e&speL2Miss == 0:
		return memtrace.LevelL2
	case e&speFetched != 0 && e&speL2Miss == 0:
		return memtrace.LevelLFB
	case e&speL1Access != 0 && e&speL1Refill == 0:
		return memtrace.LevelL1
	}
	return memtrace.LevelUnknown
}

// decodeSPE reads the packets of a trace and hands on each record that ends in it, which is valid until each
// returns. at is where b lies in the trace. It returns how many bytes the whole records have, and how many bytes
// were not a packet.
func decodeSPE(b []byte, at uint64, each func(*speRecord)) (used, bad int) {
	var r speRecord
	for i := 0; i < len(b); {
		n := spePacket(b[i:], at+uint64(i))
		if n < 0 {
			bad++
			i++
			continue
		}
		if n == 0 || n > len(b)-i {
			return used, bad
		}
		ended := r.packet(b[i : i+n])
		i += n
		if ended {
			if r != (speRecord{}) {
				each(&r)
			}
			r = speRecord{}
			used = i
		}
	}
	if r == (speRecord{}) {
		used = len(b) // padding
	}
	return used, bad
}

// Headers of packets, without the bits that say how long or which they are.
const (
	spePad       = 0x00
	speEnd       = 0x01
	speTimestamp = 0x71
	speEvents    = 0x42
	speSource    = 0x43
	speContext   = 0x64
	speOp        = 0x48
	speExtended  = 0x20
	speAddress   = 0xb0
	speCounter   = 0x98
)

// speHeader is the header of a packet and how many bytes it has. Of an extended one it is the second byte.
func speHeader(b []byte) (h byte, n int) {
	if b[0]&0xfc == speExtended && len(b) > 1 {
		return b[1], 2
	}
	return b[0], 1
}

// spePacket is how long the packet is that b begins with: 0 if that is not there yet, -1 if it is none.
func spePacket(b []byte, at uint64) int {
	if b[0] == spePad || b[0] == speEnd {
		return 1
	}
	if b[0]&0xfc == speExtended && len(b) < 2 {
		return 0
	}
	h, n := speHeader(b)
	if n == 2 && h == 0 { // padding up to a power of two
		align := uint64(2) << (b[0] & 0xf)
		return int(align - at&(align-1))
	}
	payload := 1 << (h >> 4 & 3)
	switch {
	case h == speTimestamp, h&0xcf == speEvents, h&0xcf == speSource, h&0xfc == speContext, h&0xfc == speOp,
		h&0xf8 == speAddress, h&0xf8 == speCounter:
		return n + payload
	}
	return -1
}

// packet decodes a whole packet, and reports whether it is the last of its record.
func (r *speRecord) packet(b []byte) (ended bool) {
	if b[0] == spePad || b[0] == speEnd {
		return b[0] == speEnd
	}
	h, n := speHeader(b)
	if n == 2 && h == 0 {
		return false
	}
	index := h & 7
	if n == 2 {
		index |= b[0] & 3 << 3
	}
	var v [8]byte
	copy(v[:], b[n:])
	p := binary.LittleEndian.Uint64(v[:])
	switch {
	case h == speTimestamp:
		r.Timestamp = p
		return true
	case h&0xcf == speEvents:
		r.Events = p
	case h&0xcf == speSource:
		r.Source = p
	case h&0xfc == speContext:
		r.Context = uint32(p)
	case h&0xfc == speOp:
		switch {
		case h&3 != 1: // only loads, stores and atomics touch memory
		case p&1 != 0:
			r.Op = memtrace.OpWrite
		default:
			r.Op = memtrace.OpRead
		}
	case h&0xf8 == speAddress:
		r.address(index, p)
	case h&0xf8 == speCounter && index == 0:
		r.Latency = uint16(p)
	}
	return false
}

// address takes in an address: its highest byte holds a tag or the exception level. An address of the kernel has it
// filled again.
func (r *speRecord) address(index byte, p uint64) {
	const low = 1<<56 - 1
	v := p & low
	switch index {
	case 0:
		if level := p >> 61 & 3; level == 1 || level == 2 {
			v |= 0xff << 56
		}
		r.IP = v
	case 2:
		if v>>52 == 0xf {
			v |= 0xff << 56
		}
		r.Addr = v
	case 3:
		r.Phys = v
	}
}
