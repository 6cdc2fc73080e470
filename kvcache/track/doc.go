// Package track follows the KV cache and the recurrent states of the contexts of a run, cell by cell, from what a
// tap reports: which cells each micro-batch writes, which its tokens may read, and what the program does to
// sequences. A [Recorder] writes the lives of blocks of cells to kv_block_lifecycle.parquet, reports what happens to
// cells as it happens, and says how the caches are used now.
package track
