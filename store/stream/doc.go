// Package stream writes and reads activations.stream, the file of captured tensors, and its index.
//
// The stream itself is laid out byte for byte as STRAP-LLM writes it, so that its readers open
// ours: packets back to back, each a 6-byte header, a name and a payload. Everything that this layout leaves out
// (element type, shape, codec, tokens, layer, time, checksum) stands in the sidecar activations.stream.idx, an
// append-only journal whose records are chained by their checksums. docs/STREAM_FORMAT.md and docs/INDEX_FORMAT.md
// describe them.
//
// A [Writer] packs packets on several goroutines and writes them in the order of [Writer.Append]. A [Reader] finds and
// decodes them again.
package stream
