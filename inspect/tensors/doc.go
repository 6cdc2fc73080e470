// Package tensors computes results from captured tensors: what a run directory or a stream holds, statistics per
// tensor, packet and token, one tensor as values, attention maps, and whether everything on disk is what the
// recorder wrote.
//
// It reads files in bounded memory, whatever their size, and needs neither llama.cpp nor cgo. Repair alone writes: it
// makes damaged and unsealed run directories whole as far as possible, streams and their indexes, tokens, metadata and
// manifest. What it replaces it puts aside, and what it could not bring back it writes into the run's metadata.
// Tokens are attributed by the index, which states for every packet the tokens of its rows; nothing is guessed.
package tensors
