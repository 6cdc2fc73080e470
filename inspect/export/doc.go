// Package export writes captured tensors as files that other programs read: NumPy arrays, safetensors, Parquet,
// Arrow, STRAP-LLM's streams, and shuffled datasets to train on; and accesses to memory as mrm-trace reads them.
//
// It reads the stream in its order, a tensor of one micro-batch at a time, and holds no more than that and buffers
// of a fixed size, however long the capture is. A finished export appears under its name at once, synced; what was
// cut off leaves nothing there. The same capture and the same choices give the same bytes.
package export
