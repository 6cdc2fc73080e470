// Package memory says how the memory of a run was used, from its tables of accesses, regions and lives of cache
// blocks: mrm-trace's metrics by type of region and by region, bytes over time and per execution of a graph, what
// samples say, and how far they agree with the ledger.
//
// A table may be of any size: it is read once, row group by row group, and what is kept grows with the number of
// regions and of different ranges that were accessed. docs/MEMORY_METRICS.md defines every figure.
package memory
