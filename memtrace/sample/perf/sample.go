package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/llamatap/llamatap/memtrace"
)

// Sample holds the fields of a PERF_RECORD_SAMPLE that its attribute asked for; the others are 0.
type Sample struct {
	ID           uint64 // of the event; sampleIdentifier or sampleID
	StreamID     uint64
	IP           uint64
	PID, TID     uint32
	Time         uint64 // nanoseconds of the event's clock
	Addr         uint64
	CPU          uint32
	Period       uint64
	Raw          []byte // of the record, valid as long as that
	Aux          []byte // likewise
	Weight       uint64 // a latency in cycles on most PMUs; with sampleWeightStruct its lower half
	Weight2      uint16 // sampleWeightStruct: the instruction's latency on Intel
	Weight3      uint16
	DataSrc      DataSrc
	PhysAddr     uint64
	DataPageSize uint64
	CodePageSize uint64
}

// ErrRecord occurs when a record is shorter than its attribute says, or has a field that is not known.
var ErrRecord = errors.New("bad perf record")

// fields walks over a record's 64-bit words. It is past its end once bad is set.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) u64() uint64 {
	if len(f.b) < 8 {
		f.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(f.b)
	f.b = f.b[8:]
	return v
}

// two is a word of two halves.
func (f *fields) two() (first, second uint32) {
	v := f.u64()
	return uint32(v), uint32(v >> 32)
}

// bytes reads n bytes.
func (f *fields) bytes(n uint64) []byte {
	if n > uint64(len(f.b)) {
		f.bad = true
		return nil
	}
	taken := f.b[:n]
	f.b = f.b[n:]
	return taken
}

// skipWords skips n words.
func (f *fields) skipWords(n uint64) {
	if n > uint64(len(f.b))/8 {
		f.bad = true
		return
	}
	f.b = f.b[8*n:]
}

// read passes over the values of PERF_SAMPLE_READ.
func (f *fields) read(format uint64) {
	each := uint64(bits.OnesCount64(format & (formatID | formatLost)))
	times := uint64(bits.OnesCount64(format & (formatEnabled | formatRunning)))
	if format&formatGroup == 0 {
		f.skipWords(1 + times + each)
		return
	}
	n := f.u64()
	f.skipWords(times)
	if n > uint64(len(f.b)) {
		f.bad = true
		return
	}
	f.skipWords(n * (1 + each))
}

// regsSIMD is the bit of a sample's register ABI which is set if vector registers follow the others.
const regsSIMD = 1 << 2

// regs passes over the registers of a mask, whose number depends on whether there are any, and over those of
// vectors and predicates after them, which say themselves how many and how wide they are.
func (f *fields) regs(mask uint64) {
	abi := f.u64()
	if abi == 0 {
		return
	}
	f.skipWords(uint64(bits.OnesCount64(mask)))
	if abi&regsSIMD != 0 {
		n := f.u64()
		f.skipWords((n&0xffff)*(n>>16&0xffff) + (n>>32&0xffff)*(n>>48))
	}
}

// Bits of Attr.BranchType that change how long a branch stack is.
const (
	branchHWIndex  = 1 << 17
	branchCounters = 1 << 19
)

func (f *fields) branches(kind uint64) {
	n := f.u64()
	if n > uint64(len(f.b)) {
		f.bad = true
		return
	}
	if kind&branchHWIndex != 0 {
		f.skipWords(1)
	}
	f.skipWords(3 * n)
	if kind&branchCounters != 0 {
		f.skipWords(n)
	}
}

// decodeSample reads the body of a PERF_RECORD_SAMPLE, that is, what follows its header of 8 bytes. It is as long
// as a switch over all fields is.
func (a *Attr) decodeSample(body []byte, s *Sample) error {
	*s = Sample{}
	if unknown := a.SampleType &^ sampleKnown; unknown != 0 {
		return fmt.Errorf("%w: sample_type has the unknown bits %#x: a newer llamatap may know them", ErrRecord,
			unknown)
	}
	f := fields{b: body}
	has := func(bit uint64) bool { return a.SampleType&bit != 0 }
	if has(sampleIdentifier) {
		s.ID = f.u64()
	}
	if has(sampleIP) {
		s.IP = f.u64()
	}
	if has(sampleTID) {
		s.PID, s.TID = f.two()
	}
	if has(sampleTime) {
		s.Time = f.u64()
	}
	if has(sampleAddr) {
		s.Addr = f.u64()
	}
	if has(sampleID) {
		s.ID = f.u64()
	}
	if has(sampleStreamID) {
		s.StreamID = f.u64()
	}
	if has(sampleCPU) {
		s.CPU, _ = f.two()
	}
	if has(samplePeriod) {
		s.Period = f.u64()
	}
	a.decodeStacks(&f, s)
	a.decodeMemory(&f, s)
	if f.bad {
		return fmt.Errorf("%w: a sample of %d bytes ends within its fields, sample_type %#x", ErrRecord, len(body),
			a.SampleType)
	}
	return nil
}

// decodeStacks passes over what says where the program was, and keeps the raw data.
func (a *Attr) decodeStacks(f *fields, s *Sample) {
	has := func(bit uint64) bool { return a.SampleType&bit != 0 }
	if has(sampleRead) {
		f.read(a.ReadFormat)
	}
	if has(sampleCallchain) {
		f.skipWords(f.u64())
	}
	if has(sampleRaw) && len(f.b) >= 4 {
		size := binary.LittleEndian.Uint32(f.b)
		if whole := f.bytes(4 + uint64(size)); whole != nil {
			s.Raw = whole[4:]
		}
	} else if has(sampleRaw) {
		f.bad = true
	}
	if has(sampleBranchStack) {
		f.branches(a.BranchType)
	}
	if has(sampleRegsUser) {
		f.regs(a.RegsUser)
	}
	if has(sampleStackUser) {
		if n := f.u64(); n != 0 {
			f.bytes(n)
			f.u64()
		}
	}
}

// decodeMemory reads what a sampled access says of memory.
func (a *Attr) decodeMemory(f *fields, s *Sample) {
	has := func(bit uint64) bool { return a.SampleType&bit != 0 }
	switch {
	case has(sampleWeightStruct):
		v := f.u64()
		s.Weight, s.Weight2, s.Weight3 = v&(1<<32-1), uint16(v>>32), uint16(v>>48)
	case has(sampleWeight):
		s.Weight = f.u64()
	}
	if has(sampleDataSrc) {
		s.DataSrc = DataSrc(f.u64())
	}
	if has(sampleTransaction) {
		f.u64()
	}
	if has(sampleRegsIntr) {
		f.regs(a.RegsIntr)
	}
	if has(samplePhysAddr) {
		s.PhysAddr = f.u64()
	}
	if has(sampleCgroup) {
		f.u64()
	}
	if has(sampleDataPageSize) {
		s.DataPageSize = f.u64()
	}
	if has(sampleCodePageSize) {
		s.CodePageSize = f.u64()
	}
	if has(sampleAux) {
		s.Aux = f.bytes(f.u64())
	}
}

// Access converts a sample. period is that of its event, for samples without their own.
func (s *Sample) Access(sampleType, period uint64, from memtrace.Collector) memtrace.Access {
	a := memtrace.Access{
		TimeNS: int64(s.Time), Addr: s.Addr, Phys: s.PhysAddr, IP: s.IP, Latency: s.Weight, Weight: period,
		PID: int32(s.PID), TID: int32(s.TID), CPU: -1,
		Op: s.DataSrc.Op(), Level: s.DataSrc.Level(), Collector: from,
	}
	if sampleType&sampleCPU != 0 {
		a.CPU = int32(s.CPU)
	}
	if sampleType&samplePeriod != 0 {
		a.Weight = s.Period
	}
	return a
}
