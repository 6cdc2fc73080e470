// Package kvcache holds the words of llama.cpp's memory: cells, the blocks that they are counted in, and lives,
// which last from the first write of a cell to its eviction. A [Cache] follows every cell of one cache through what
// a program does to it, as [Attention] or as [States]. Sub-packages record what a tap reports of them.
//
// Nothing here guesses. What nobody saw, such as the cells that a state was loaded into, is unknown until evidence
// shows it, and every answer says whether it is known.
package kvcache
