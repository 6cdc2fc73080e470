package kvcache

// FileName is the name of the table of lives in a run directory. docs/KV.md describes it.
const FileName = "kv_block_lifecycle.parquet"

// SnapshotKey is the key of the table's metadata under which a Snapshot stands, as JSON: how the caches were used
// when watching ended.
const SnapshotKey = "llamatap_kv"
