// Package track follows the KV cache and the recurrent states of the contexts of a run, cell by cell, from what a
// tap reports: which cells each micro-batch writes, which its tokens may read, and what the program does to
// sequences. A [Recorder] writes the lives of blocks of cells to kv_block_lifecycle.parquet, reports what happens to
// cells as it happens, and says how the caches are used now.
//
// A [Publisher] sends routers which blocks of tokens a server's cache holds, as vLLM does: batches of events in msgpack
// over a ZeroMQ PUB socket, and past batches over a ROUTER socket. docs/KV_EVENTS.md describes both.
//
// [Requests] records the requests of a server: when each came and went, what its prompt found in the cache, when its
// tokens came, and why a part of its prompt was computed again although it had been computed before. docs/REQUESTS.md
// lists each field with its source.
package track
