// Package vector multiplies matrices of float32 on the processor, with the widest vectors that it has (512, 256 or 128
// bits), chosen when the program runs; and it measures how fast processors multiply and add on such vectors ([Peak]).
//
// The operations of a [Kernel] are those of a sparse autoencoder: products of all rows with all rows, sums and products
// of few rows that an index chooses, and a step of Adam. Matrices are row by row without gaps. Each call computes on
// the calling thread and adds in one order, so that a result depends neither on the other rows nor on how work is
// spread over threads.
//
// Why not a library: on two idle cores of an AMD EPYC this package reaches 157 GFLOP/s, ggml's mul_mat, which comes
// with llama.cpp, 46, and gonum 27. OpenBLAS reaches 170; builds against another llama.cpp do not have it.
//
// The kernel of [Peak] is independent fused multiply-adds that stay in registers; each counts as two operations per
// element. It is the flat part of a machine's roofline: nothing that a processor computes for llama.cpp in float32 is
// faster. What it computes on quantised weights may be: integer products of eight bits have instructions of their own.
package vector
