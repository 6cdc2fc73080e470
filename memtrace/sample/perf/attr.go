package perf

import (
	"encoding/binary"
	"fmt"
)

// Types of events, Attr.Type. Those of a machine's PMUs stand in /sys/bus/event_source/devices/NAME/type.
const (
	typeSoftware   = 1
	typeTracepoint = 2
)

// Software events, Attr.Config of typeSoftware.
const (
	swCPUClock   = 0
	swPageFaults = 2
)

// Bits of Attr.SampleType: the fields of a sample. The order of the fields in a sample is not that of the bits.
const (
	sampleIP           = 1 << 0
	sampleTID          = 1 << 1
	sampleTime         = 1 << 2
	sampleAddr         = 1 << 3
	sampleRead         = 1 << 4
	sampleCallchain    = 1 << 5
	sampleID           = 1 << 6
	sampleCPU          = 1 << 7
	samplePeriod       = 1 << 8
	sampleStreamID     = 1 << 9
	sampleRaw          = 1 << 10
	sampleBranchStack  = 1 << 11
	sampleRegsUser     = 1 << 12
	sampleStackUser    = 1 << 13
	sampleWeight       = 1 << 14
	sampleDataSrc      = 1 << 15
	sampleIdentifier   = 1 << 16
	sampleTransaction  = 1 << 17
	sampleRegsIntr     = 1 << 18
	samplePhysAddr     = 1 << 19
	sampleAux          = 1 << 20
	sampleCgroup       = 1 << 21
	sampleDataPageSize = 1 << 22
	sampleCodePageSize = 1 << 23
	sampleWeightStruct = 1 << 24
	sampleKnown        = 1<<25 - 1
)

// Bits of Attr.ReadFormat.
const (
	formatEnabled = 1 << 0
	formatRunning = 1 << 1
	formatID      = 1 << 2
	formatGroup   = 1 << 3
	formatLost    = 1 << 4
)

// Bits of Attr.Flags.
const (
	flagDisabled      = 1 << 0
	flagInherit       = 1 << 1
	flagExcludeKernel = 1 << 5
	flagMmap          = 1 << 8
	flagComm          = 1 << 9
	flagFreq          = 1 << 10
	flagTask          = 1 << 13
	flagWatermark     = 1 << 14
	flagPreciseShift  = 15 // two bits
	flagMmapData      = 1 << 17
	flagSampleIDAll   = 1 << 18
	flagExcludeGuest  = 1 << 20
	flagMmap2         = 1 << 23
	flagUseClockID    = 1 << 25
	// flagInheritThread makes only threads inherit an event, no child processes. It needs Linux 5.13.
	flagInheritThread = 1 << 35
)

// preciseFlag is the flag for how far the instruction of a sample may be from the one that caused it: 0 arbitrary, 3
// not at all.
func preciseFlag(level uint64) uint64 { return (level & 3) << flagPreciseShift }

// clockMonotonic is the clock of every time of llamatap, Attr.ClockID.
const clockMonotonic = 1

// Attr is struct perf_event_attr: what an event counts and what its samples contain.
type Attr struct {
	Type          uint32
	Config        uint64
	Period        uint64 // events per sample; with flagFreq, samples per second
	SampleType    uint64
	ReadFormat    uint64
	Flags         uint64
	Wakeup        uint32 // bytes with flagWatermark, else samples
	BPType        uint32
	Config1       uint64
	Config2       uint64
	BranchType    uint64
	RegsUser      uint64
	StackUser     uint32
	ClockID       int32
	RegsIntr      uint64
	AuxWatermark  uint32
	MaxStack      uint16
	AuxSampleSize uint32
	SigData       uint64
	Config3       uint64
}

// Sizes of struct perf_event_attr, as its versions grew.
const (
	attrSizeFirst = 64
	attrSize      = 128
	attrSizeNow   = 136 // with Config3, since Linux 6.3
)

// Append adds the attribute to dst in its layout of the kernel: 128 bytes, or 136 where Config3 is set.
func (a *Attr) Append(dst []byte) []byte {
	size := attrSize
	if a.Config3 != 0 {
		size = attrSizeNow
	}
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, a.Type)
	dst = le.AppendUint32(dst, uint32(size))
	for _, v := range []uint64{a.Config, a.Period, a.SampleType, a.ReadFormat, a.Flags} {
		dst = le.AppendUint64(dst, v)
	}
	dst = le.AppendUint32(dst, a.Wakeup)
	dst = le.AppendUint32(dst, a.BPType)
	for _, v := range []uint64{a.Config1, a.Config2, a.BranchType, a.RegsUser} {
		dst = le.AppendUint64(dst, v)
	}
	dst = le.AppendUint32(dst, a.StackUser)
	dst = le.AppendUint32(dst, uint32(a.ClockID))
	dst = le.AppendUint64(dst, a.RegsIntr)
	dst = le.AppendUint32(dst, a.AuxWatermark)
	dst = le.AppendUint32(dst, uint32(a.MaxStack))
	dst = le.AppendUint32(dst, a.AuxSampleSize)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint64(dst, a.SigData)
	if size == attrSizeNow {
		dst = le.AppendUint64(dst, a.Config3)
	}
	return dst
}

// parseAttr reads an attribute of any version: fields that its size does not reach are 0, what lies beyond those
// that are known is passed over.
func parseAttr(b []byte) (a Attr, err error) {
	le := binary.LittleEndian
	if len(b) < attrSizeFirst {
		return a, fmt.Errorf("perf_event_attr of %d bytes: the smallest has %d", len(b), attrSizeFirst)
	}
	if size := int(le.Uint32(b[4:])); size >= attrSizeFirst && size < len(b) {
		b = b[:size]
	}
	full := make([]byte, attrSizeNow)
	copy(full, b)
	u32 := func(at int) uint32 { return le.Uint32(full[at:]) }
	u64 := func(at int) uint64 { return le.Uint64(full[at:]) }
	return Attr{
		Type: u32(0), Config: u64(8), Period: u64(16), SampleType: u64(24), ReadFormat: u64(32), Flags: u64(40),
		Wakeup: u32(48), BPType: u32(52),
		Config1: u64(56), Config2: u64(64), BranchType: u64(72), RegsUser: u64(80), StackUser: u32(88),
		ClockID: int32(u32(92)), RegsIntr: u64(96),
		AuxWatermark: u32(104), MaxStack: le.Uint16(full[108:]), AuxSampleSize: u32(112), SigData: u64(120),
		Config3: u64(128),
	}, nil
}
