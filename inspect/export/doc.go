// Package export writes captured tensors as files that other programs read: NumPy arrays, safetensors, Parquet,
// Arrow, STRAP-LLM's streams, and shuffled datasets to train on; and accesses to memory as mrm-trace reads them.
//
// It reads the stream in its order, a tensor of one micro-batch at a time, and holds no more than that and buffers
// of a fixed size, however long the capture is. A finished export appears under its name at once, synced; what was
// cut off leaves nothing there. The same capture and the same choices give the same bytes.
//
// [WriteTimeline] writes what a run recorded over time in the formats of tools that show time: Perfetto, Chrome's trace
// viewer, speedscope and pprof. It reads the resource events once, in the order of the log, and holds one execution at
// a time. An execution becomes a graph with its layers, components and ops, nested; tokens, counters, page faults and
// losses have tracks of their own. Every duration is one that was measured: an execution that was not timed inside is a
// graph without parts.
package export
