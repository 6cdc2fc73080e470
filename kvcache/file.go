package kvcache

// SnapshotKey is the key of the table's metadata under which a Snapshot stands, as JSON: how the caches were used
// when watching ended.
const SnapshotKey = "llamatap_kv"
