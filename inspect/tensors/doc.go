// Package tensors computes results from captured tensors: what a run directory or a stream holds, statistics per
// tensor, packet and token, one tensor as values, attention maps, and whether everything on disk is what the
// recorder wrote.
//
// It reads files and nothing else, in bounded memory whatever their size, and needs neither llama.cpp nor cgo.
// Tokens are attributed by the index, which states for every packet the tokens of its rows; nothing is guessed.
package tensors
