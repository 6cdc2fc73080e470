package perf

import (
	"encoding/binary"
	"fmt"
)

// Types of events, Attr.Type. Those of a machine's PMUs stand in /sys/bus/event_source/devices/NAME/type.
const (
	TypeSoftware   = 1
	TypeTracepoint = 2
)

// Software events, Attr.Config of TypeSoftware.
const (
	SWCPUClock      = 0
	SWPageFaults    = 2
	SWPageFaultsMin = 5
	SWPageFaultsMaj = 6
)

// Bits of Attr.SampleType: the fields of a sample. The order of the fields in a sample is not that of the bits.
const (
	SampleIP           = 1 << 0
	SampleTID          = 1 << 1
	SampleTime         = 1 << 2
	SampleAddr         = 1 << 3
	SampleRead         = 1 << 4
	SampleCallchain    = 1 << 5
	SampleID           = 1 << 6
	SampleCPU          = 1 << 7
	SamplePeriod       = 1 << 8
	SampleStreamID     = 1 << 9
	SampleRaw          = 1 << 10
	SampleBranchStack  = 1 << 11
	SampleRegsUser     = 1 << 12
	SampleStackUser    = 1 << 13
	SampleWeight       = 1 << 14
	SampleDataSrc      = 1 << 15
	SampleIdentifier   = 1 << 16
	SampleTransaction  = 1 << 17
	SampleRegsIntr     = 1 << 18
	SamplePhysAddr     = 1 << 19
	SampleAux          = 1 << 20
	SampleCgroup       = 1 << 21
	SampleDataPageSize = 1 << 22
	SampleCodePageSize = 1 << 23
	SampleWeightStruct = 1 << 24
	sampleKnown        = 1<<25 - 1
)

// Bits of Attr.ReadFormat.
const (
	FormatEnabled = 1 << 0
	FormatRunning = 1 << 1
	FormatID      = 1 << 2
	FormatGroup   = 1 << 3
	FormatLost    = 1 << 4
)

// Bits of Attr.Flags.
const (
	FlagDisabled      = 1 << 0
	FlagInherit       = 1 << 1
	FlagExcludeKernel = 1 << 5
	FlagMmap          = 1 << 8
	FlagComm          = 1 << 9
	FlagFreq          = 1 << 10
	FlagTask          = 1 << 13
	FlagWatermark     = 1 << 14
	flagPreciseShift  = 15 // two bits
	FlagMmapData      = 1 << 17
	FlagSampleIDAll   = 1 << 18
	FlagExcludeGuest  = 1 << 20
	FlagMmap2         = 1 << 23
	FlagUseClockID    = 1 << 25
	// FlagInheritThread makes only threads inherit an event, no child processes. It needs Linux 5.13.
	FlagInheritThread = 1 << 35
)

// Precise is the flag for how far the instruction of a sample may be from the one that caused it: 0 arbitrary, 3
// not at all.
func Precise(level uint64) uint64 { return (level & 3) << flagPreciseShift }

// ClockMonotonic is the clock of every time of llamatap, Attr.ClockID.
const ClockMonotonic = 1

// Attr is struct perf_event_attr: what an event counts and what its samples contain.
type Attr struct {
	Type          uint32
	Config        uint64
	Period        uint64 // events per sample; with FlagFreq, samples per second
	SampleType    uint64
	ReadFormat    uint64
	Flags         uint64
	Wakeup        uint32 // bytes with FlagWatermark, else samples
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

// ParseAttr reads an attribute of any version: fields that its size does not reach are 0, what lies beyond those
// that are known is passed over.
func ParseAttr(b []byte) (a Attr, err error) {
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
