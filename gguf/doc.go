// Package gguf reads, checks and writes GGUF model files in pure Go, on the standard library only.
//
// Open and Read parse and check everything before the tensor data; File.Tensors is the map from the file's bytes to
// names, types and shapes. Writer produces a file as a stream: header first, then the tensors' bytes in order.
// AppendRow and DecodeRow convert rows of weights. Nothing here loads weights unless asked, and the memory that a
// reader takes is bounded by the bytes it has really read, whatever counts a hostile file claims.
//
// Facts of the format follow gguf.h and ggml.h of ggml 0.27.0.
package gguf
