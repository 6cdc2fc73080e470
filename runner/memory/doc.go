// Package memory samples the memory accesses of any program, whatever computes in it, and imports what the program
// perf has sampled, into run directories as those of models are: trace.parquet, region_map.parquet, process.jsonl,
// metadata.json, sealed by a manifest.
package memory
