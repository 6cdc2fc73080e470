package export

import (
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// schemaVersion is mrm-trace's, of all of its files, under versionKey in its tables.
const (
	schemaVersion = "1.0"
	versionKey    = "mrm_trace_schema_version"
)

// The columns of its trace.parquet, in order.
const (
	colRun = iota
	colSample
	colTime
	colPhase
	colAddress
	colPage
	colOp
	colSymbol
	colDSO
	colType
	colRegion
	colLatency
	colLevel
	colNUMA
	colCPU
	colThread
	colToken
	colContext
)

var mrmTraceColumns = []table.Column{
	{Name: "run_id", Kind: table.Text, Description: "run"},
	{Name: "sample_id", Kind: table.Uint64, Description: "number of the row, from 0"},
	{Name: "timestamp_ns", Kind: table.Uint64, Description: "Unix time in ns"},
	{Name: "phase", Kind: table.Text, Null: true, Description: "weight_load, generation or teardown"},
	{Name: "address", Kind: table.Uint64, Description: "first address touched in the page"},
	{Name: "address_page", Kind: table.Uint64, Description: "address / 4096"},
	{Name: "op_type", Kind: table.Text, Description: "load or store"},
	{Name: "symbol", Kind: table.Text, Null: true,
		Description: "function of a sample; null: from the ledger, or unknown"},
	{Name: "dso", Kind: table.Text, Null: true, Description: "null: not recorded"},
	{Name: "region_type", Kind: table.Text, Description: "weight, kv_cache, activation, runtime or unknown"},
	{Name: "region_id", Kind: table.Uint32, Description: "region_id of llamatap + 1"},
	{Name: "access_latency_ns", Kind: table.Uint32, Null: true, Description: "null: llamatap records cycles"},
	{Name: "cache_level", Kind: table.Text, Null: true, Description: "of a sample"},
	{Name: "numa_node", Kind: table.Uint32, Null: true, Description: "null: not recorded"},
	{Name: "cpu_id", Kind: table.Uint32, Null: true, Description: "of a sample"},
	{Name: "thread_id", Kind: table.Uint32, Null: true, Description: "of a sample"},
	{Name: "token_index", Kind: table.Uint32, Null: true, Description: "number of the token in the run"},
	{Name: "context_tokens", Kind: table.Uint32, Null: true, Description: "null: not recorded"},
}

// mrmRegionColumns are those of its region_map.parquet, with what its definitions say of each region.
var mrmRegionColumns = []table.Column{
	{Name: "region_id", Kind: table.Uint32, Description: "region_id of llamatap + 1"},
	{Name: "region_type", Kind: table.Text, Description: "weight, kv_cache, activation, runtime or unknown"},
	{Name: "page_min", Kind: table.Uint64, Description: "lowest page touched"},
	{Name: "page_max", Kind: table.Uint64, Description: "highest page touched"},
	{Name: "first_seen_ns", Kind: table.Uint64, Description: "first access, Unix time in ns"},
	{Name: "last_seen_ns", Kind: table.Uint64, Description: "last access, Unix time in ns"},
	{Name: "access_count", Kind: table.Uint64, Description: "rows of the trace"},
	{Name: "mrm_trace_retention_s", Kind: table.Float64, Unit: "s",
		Description: "from the first write of the region to its last read"},
	{Name: "mrm_trace_working_set_pages", Kind: table.Uint64,
		Description: "different pages touched in the whole trace"},
}

// mrmLifeColumns are those of its kv_block_lifecycle.parquet.
var mrmLifeColumns = []table.Column{
	{Name: "block_id", Kind: table.Uint32, Description: "block_id of llamatap"},
	{Name: "address", Kind: table.Uint64, Null: true,
		Description: "first cell of keys; null where cells have no address of their own"},
	{Name: "address_page", Kind: table.Uint64, Null: true, Description: "address / 4096"},
	{Name: "write_ns", Kind: table.Uint64, Null: true, Description: "first write, Unix time in ns"},
	{Name: "last_read_ns", Kind: table.Uint64, Null: true, Description: "last read, Unix time in ns"},
	{Name: "evict_ns", Kind: table.Uint64, Null: true,
		Description: "end of the life, Unix time in ns; null: it had not ended"},
	{Name: "total_reads", Kind: table.Uint64, Description: "reads of cells"},
	{Name: "lifetime_ns", Kind: table.Uint64,
		Description: "from the first write to the end of the life, or to the last read"},
	{Name: "layer", Kind: table.Int32, Description: "layer, which mrm-trace does not know"},
	{Name: "kv", Kind: table.Text, Description: "tensor of the cache"},
}

func schemaOf(columns []table.Column) table.Schema {
	return table.Schema{Columns: columns, Metadata: [][2]string{{versionKey, schemaVersion}}}
}

// typeOf is what mrm-trace calls a type of region, and the type that stands for all that it calls so.
func typeOf(kind memtrace.RegionType) (string, memtrace.RegionType) {
	switch kind {
	case memtrace.Weight, memtrace.KVCache, memtrace.Activation:
		return kind.String(), kind
	case memtrace.Other:
		return "unknown", kind
	}
	return memtrace.Runtime.String(), memtrace.Runtime
}

// phaseOf returns mrm-trace's phase: warm-up comes before generation, and work on caches is part of it.
func phaseOf(name string) string {
	switch name {
	case memtrace.Setup.String():
		return memtrace.WeightLoad.String()
	case memtrace.Maintenance.String():
		return memtrace.Generation.String()
	}
	return name
}
