// Package survey reads what a sealed run's tables tell of its memory, row group by row group, in memory that does
// not grow with the trace: regions with how long their data was needed, for the questions of package whatif, and
// what figures need, gathered in bins while the rows pass by.
//
// What is known depends on what was recorded. region_map.parquet alone tells sizes, bytes, and how long weights
// were read; kv_block_lifecycle.parquet the lives of cells; trace.parquet every access.
package survey
