package memtrace

// AccessOp is what an access does to memory.
type AccessOp uint8

// The ops.
const (
	OpUnknown AccessOp = iota // the collector does not know: a page fault of software events
	OpRead
	OpWrite
	OpAlloc
	OpFree
	accessOps
)

var accessOpNames = []string{"", "read", "write", "alloc", "free"}

// String returns the op's name as written in files, "" where it is not known.
func (o AccessOp) String() string { return nameOf(o, accessOpNames, "access_op") }

// ParseAccessOp is the inverse of String.
func ParseAccessOp(s string) (AccessOp, error) { return parseName[AccessOp](s, accessOpNames, "op") }

// Collector is what recorded an access.
type Collector uint8

// The collectors.
const (
	CollectorGraph Collector = iota // the ledger of executed graphs: exact
	CollectorPerf                   // samples of loads and stores, Intel's
	CollectorIBS                    // samples of AMD's instruction-based sampling
	CollectorSPE                    // samples of Arm's statistical profiling extension
	CollectorFault                  // page faults
	CollectorPage                   // pages that were found written between two scans
	collectors
)

var collectorNames = []string{"graph", "perf", "ibs", "spe", "fault", "page"}

// String returns the collector's name as written in files.
func (c Collector) String() string { return nameOf(c, collectorNames, "collector") }

// ParseCollector is the inverse of String.
func ParseCollector(s string) (Collector, error) {
	return parseName[Collector](s, collectorNames, "collector")
}

// CacheLevel is where an access found its data.
type CacheLevel uint8

// The levels.
const (
	LevelUnknown CacheLevel = iota
	LevelL1
	LevelLFB // a line fill buffer: a miss that was under way already
	LevelL2
	LevelL3
	LevelL4
	LevelCache       // a cache, unknown which
	LevelRemoteCache // of another core beyond the shared levels, or of another socket
	LevelDRAM        // of this node
	LevelRemoteDRAM
	LevelPMEM
	LevelCXL
	LevelIO
	LevelUncached
	cacheLevels
)

var cacheLevelNames = []string{"", "L1", "LFB", "L2", "L3", "L4", "cache", "remote_cache", "DRAM", "remote_DRAM",
	"PMEM", "CXL", "IO", "uncached"}

// String returns the level's name as written in files, "" where it is not known.
func (l CacheLevel) String() string { return nameOf(l, cacheLevelNames, "cache_level") }

// Access is one access to memory as a collector records it, before anybody says which region and phase it belongs to.
// What a collector does not know is 0, and left out of files.
type Access struct {
	TimeNS    int64 // CLOCK_MONOTONIC; an imported file may have another clock, and says so
	Addr      uint64
	Size      uint64 // bytes
	Phys      uint64 // physical address
	IP        uint64 // address of the instruction
	Latency   uint64 // cycles
	Weight    uint64 // how many events this one stands for: the sampling period
	PID, TID  int32
	CPU       int32 // -1: unknown
	Op        AccessOp
	Level     CacheLevel
	Collector Collector
	Symbol    string // name of the function at IP
}
