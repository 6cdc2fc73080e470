// Package peak measures how fast a machine's processors multiply and add, which is the flat part of its roofline.
//
// The kernel is independent fused multiply-adds on vectors of float32 that stay in registers, in the widest form
// that the processor has (512, 256 or 128 bits); each counts as two operations per element. Nothing that a
// processor computes for llama.cpp in float32 is faster. What it computes on quantised weights may be: integer
// products of eight bits have instructions of their own.
package peak
