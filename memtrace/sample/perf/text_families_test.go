package perf

import (
	"math/rand/v2"
	"testing"

	"github.com/llamatap/llamatap/memtrace"
)

// A family is what perf mem record writes on CPUs of one maker.
type family struct {
	name   string
	events []Event
	// source are the data sources that its kernels make, with what they say.
	sources []source
}

type source struct {
	event int
	data  DataSrc
	op    memtrace.AccessOp
	level memtrace.CacheLevel
}

// Parts of a data source, after linux/perf_event.h.
const (
	load, store         = 1 << 1, 1 << 2
	hit, miss           = 1 << 6, 1 << 7
	l1, lfb, l2, l3     = 1 << 8, 1 << 9, 1 << 10, 1 << 11
	ram, remoteRAM1     = 1 << 12, 1 << 13
	snoopNone, snoopHit = 1 << 20, 1 << 21
	tlbHit, tlbL1, tlb2 = 1 << 27, 1 << 29, 1 << 30
	numL1, numL2, numL3 = 1 << 33, 2 << 33, 3 << 33
	numAny, numRAM      = 11 << 33, 13 << 33
	numNA               = 15 << 33
	remote, hops0       = 1 << 37, 1 << 43
	lockNA, blkNA       = 1 << 24, 1 << 40
)

const memory = sampleIP | sampleTID | sampleTime | sampleAddr | sampleCPU | samplePeriod |
	sampleDataSrc | samplePhysAddr | sampleIdentifier

const recordedFlags = flagInherit | flagSampleIDAll | flagUseClockID

func attr(kind uint32, config, config1, sampleType uint64) Attr {
	return Attr{Type: kind, Config: config, Config1: config1, Period: 4000, SampleType: sampleType,
		Flags: recordedFlags, ClockID: clockMonotonic,
		ReadFormat: formatID}
}

var families = []family{
	{"intel", []Event{
		{Name: "cpu/mem-loads,ldlat=30/P", IDs: []uint64{101, 102},
			Attr: attr(4, 0x1cd, 30, memory|sampleWeight)},
		{Name: "cpu/mem-stores/P", IDs: []uint64{103, 104}, Attr: attr(4, 0x82d0, 0, memory)},
	}, []source{
		{0, load | hit | l1 | snoopNone | tlbHit | tlbL1 | tlb2 | numL1 | lockNA | blkNA, memtrace.OpRead,
			memtrace.LevelL1},
		{0, load | hit | lfb | snoopNone | numNA | blkNA, memtrace.OpRead, memtrace.LevelLFB},
		{0, load | hit | l2 | numL2 | snoopNone | blkNA, memtrace.OpRead, memtrace.LevelL2},
		{0, load | hit | l3 | numL3 | snoopHit | blkNA, memtrace.OpRead, memtrace.LevelL3},
		{0, load | hit | ram | numRAM | snoopNone | blkNA, memtrace.OpRead, memtrace.LevelDRAM},
		{0, load | hit | remoteRAM1 | numRAM | remote | snoopNone | blkNA, memtrace.OpRead, memtrace.LevelRemoteDRAM},
		{1, store | hit | l1 | numL1 | tlbHit | blkNA, memtrace.OpWrite, memtrace.LevelL1},
		{1, store | miss | l1 | numL1 | blkNA, memtrace.OpWrite, memtrace.LevelUnknown},
	}},
	{"intel-spr", []Event{
		{Name: "cpu/mem-loads,ldlat=30/P", IDs: []uint64{101, 102},
			Attr: attr(4, 0x1cd, 30, memory|sampleWeightStruct)},
		{Name: "cpu/mem-stores/P", IDs: []uint64{103, 104},
			Attr: attr(4, 0x2cd, 0, memory|sampleWeightStruct)},
	}, []source{
		{0, load | hit | l1 | numL1 | snoopNone | blkNA, memtrace.OpRead, memtrace.LevelL1},
		{1, store | hit | l1 | numL1 | blkNA, memtrace.OpWrite, memtrace.LevelL1},
	}},
	{"amd", []Event{
		{Name: "ibs_op//", IDs: []uint64{7, 8}, Attr: attr(11, 0, 0, memory|sampleWeightStruct)},
	}, []source{
		{0, load | hit | l1 | numNA | blkNA, memtrace.OpRead, memtrace.LevelL1},
		{0, load | hit | l2 | numNA | blkNA, memtrace.OpRead, memtrace.LevelL2},
		{0, load | hit | numL3 | blkNA, memtrace.OpRead, memtrace.LevelL3},
		{0, load | hit | numAny | remote | hops0 | blkNA, memtrace.OpRead, memtrace.LevelRemoteCache},
		{0, load | hit | numRAM | blkNA, memtrace.OpRead, memtrace.LevelDRAM},
		{0, store | hit | numNA | blkNA, memtrace.OpWrite, memtrace.LevelUnknown},
	}},
}

// recordOf makes a perf.data of a family: so many samples, with what they say in words.
func recordOf(t testing.TB, f family, n int) (file []byte, want []memtrace.Access) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(len(f.name)), 1))
	const pid = 4000
	records := [][]byte{comm(pid, pid, "llama cli 3", f.events[0].IDs[0]),
		comm(pid, pid+1, "llama cli 3", f.events[0].IDs[0])}
	ns := uint64(1_000_000_000_000)
	for i := range n {
		s := f.sources[rng.IntN(len(f.sources))]
		e := f.events[s.event]
		id := e.IDs[rng.IntN(len(e.IDs))]
		ns += 1000 + uint64(rng.IntN(100000))
		a := memtrace.Access{
			TimeNS: int64(ns), Addr: 0x7f0000000000 + uint64(rng.IntN(1<<30)), IP: 0x555500001000 +
				uint64(rng.IntN(1<<20)), Phys: 0x100000000 + uint64(rng.IntN(1<<30)),
			Weight: 4000, PID: pid, TID: pid + int32(i%2), CPU: int32(rng.IntN(2)), Op: s.op, Level: s.level,
			Collector: collector(e.Name),
		}
		weights := words(uint64(s.data))
		if e.Attr.SampleType&(sampleWeight|sampleWeightStruct) != 0 {
			a.Latency = uint64(3 + rng.IntN(900))
			w := a.Latency
			if e.Attr.SampleType&sampleWeightStruct != 0 {
				w |= uint64(rng.IntN(100)) << 32
			}
			weights = words(w, uint64(s.data))
		}
		records = append(records, record(recordSample, 2|1<<14,
			words(id, a.IP, pair(uint32(a.PID), uint32(a.TID)), ns, a.Addr, pair(uint32(a.CPU), 0), a.Weight), weights,
			words(a.Phys)))
		want = append(want, a)
	}
	return dataOf(t, f.events, records...), want
}
