// Package ledger turns what the tap reports of graphs and their executions into the accesses to memory that they are:
// for each executed op, in order, the bytes that it reads of each source and that it writes. It is exact as far as
// graphs say: each operand byte counts once per op.
//
// What is the same in every execution of a graph is worked out once, when the graph is described. An execution adds
// which rows were looked up and written, which cells a mask lets tokens read, and which experts were chosen.
package ledger
