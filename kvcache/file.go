package kvcache

// FileName is the name of the table of lives in a run directory. docs/KV.md describes it.
const FileName = "kv_block_lifecycle.parquet"

// Keys of the table's metadata.
const (
	VersionKey  = "mrm_trace_schema_version"
	SnapshotKey = "llamatap_kv" // a Snapshot as JSON: how the caches were used when watching ended
)

// Version is that of the table's schema. Readers refuse another major version, which is what stands before the dot.
const Version = "1.0"
