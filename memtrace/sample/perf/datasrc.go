package perf

import "github.com/llamatap/llamatap/memtrace"

// DataSrc is union perf_mem_data_src: what a sampled access was and where it found its data.
type DataSrc uint64

// Where the fields of a DataSrc begin, and their bits; linux/perf_event.h, PERF_MEM_*.
const (
	opLoad     = 1 << 1
	opStore    = 1 << 2
	opPrefetch = 1 << 3

	lvlShift = 5
	lvlHit   = 1 << 1
	lvlMiss  = 1 << 2

	lvlNumShift = 33
	remoteShift = 37
	hopsShift   = 43
)

// levels are the bits of mem_lvl with what they say.
var levels = []struct {
	bit   uint64
	level memtrace.CacheLevel
}{
	{1 << 3, memtrace.LevelL1}, {1 << 4, memtrace.LevelLFB}, {1 << 5, memtrace.LevelL2}, {1 << 6, memtrace.LevelL3},
	{1 << 7, memtrace.LevelDRAM}, {1 << 8, memtrace.LevelRemoteDRAM}, {1 << 9, memtrace.LevelRemoteDRAM},
	{1 << 10, memtrace.LevelRemoteCache}, {1 << 11, memtrace.LevelRemoteCache}, {1 << 12, memtrace.LevelIO},
	{1 << 13, memtrace.LevelUncached},
}

// numbered are the values of mem_lvl_num.
var numbered = [16]memtrace.CacheLevel{
	1: memtrace.LevelL1, 2: memtrace.LevelL2, 3: memtrace.LevelL3, 4: memtrace.LevelL4,
	5: memtrace.LevelLFB, 6: memtrace.LevelCache, 7: memtrace.LevelCache, // those of L2; a cache beside memory; L0
	8: memtrace.LevelUncached, 9: memtrace.LevelCXL, 10: memtrace.LevelIO, 11: memtrace.LevelCache,
	12: memtrace.LevelLFB, 13: memtrace.LevelDRAM, 14: memtrace.LevelPMEM,
}

// Op is what the access did. Prefetches are reads.
func (d DataSrc) Op() memtrace.AccessOp {
	switch {
	case d&opStore != 0:
		return memtrace.OpWrite
	case d&(opLoad|opPrefetch) != 0:
		return memtrace.OpRead
	}
	return memtrace.OpUnknown
}

// Level is where the access found its data. Of one that is only said to have missed a level, it is not known where
// that was. The number of newer kernels goes before the bits of older ones.
func (d DataSrc) Level() memtrace.CacheLevel {
	if lvl := uint64(d) >> lvlShift; lvl&lvlMiss != 0 && lvl&lvlHit == 0 {
		return memtrace.LevelUnknown
	}
	remote := uint64(d)>>remoteShift&1 != 0 || uint64(d)>>hopsShift&7 != 0
	level := numbered[uint64(d)>>lvlNumShift&15]
	if level == memtrace.LevelUnknown {
		for _, l := range levels {
			if uint64(d)>>lvlShift&l.bit != 0 {
				return l.level
			}
		}
		return level
	}
	switch {
	case !remote:
		return level
	case level == memtrace.LevelDRAM:
		return memtrace.LevelRemoteDRAM
	case level <= memtrace.LevelCache:
		return memtrace.LevelRemoteCache
	}
	return level
}
