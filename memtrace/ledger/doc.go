// Package ledger turns what the tap reports of graphs and their executions into the accesses to memory that they are:
// for each executed op, in order, the bytes that it reads of each source and that it writes. It is exact as far as
// graphs say: each operand byte counts once per op.
//
// What is the same in every execution of a graph is worked out once, when the graph is described. An execution adds
// which rows were looked up and written, which cells a mask lets tokens read, and which experts were chosen.
//
// A [RegionRecorder] builds the map of a process's memory from what the tap reports of buffers and graphs, counts how
// the ops of graphs use each region, and writes region_map.parquet.
//
// The [Table] of accesses belongs to the run, with columns as package memtrace names them, in parts that are whole by
// themselves (docs/TABLES.md). Recorders of samples write to it too: each has a [Writer] of its own and gathers rows in
// batches, which a goroutine packs. So rows of a recorder stand in their order, and those of several alternate by
// batches.
package ledger
