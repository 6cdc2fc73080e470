// Package memory says how the memory of a run was used, from its tables of accesses, regions and lives of cache
// blocks: mrm-trace's metrics by type of region and by region, bytes over time and per execution of a graph, what
// samples say, and how far they agree with the ledger.
//
// A table may be of any size: it is read once, row group by row group, and what is kept grows with the number of
// regions and of different ranges that were accessed. docs/MEMORY_METRICS.md defines every figure.
//
// [ReadMetadata] reads what an experiment says of a run: its place in the matrix, what observing it cost, and the class
// of validity that follows from that by mrm-trace's rules ([Judge]). docs/MRM_RUN.md describes the file.
package memory
