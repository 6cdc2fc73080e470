// Package verdict holds the words in which a run of an experiment says what it is worth: which cell of the matrix
// it is, what observing it cost, and the class of validity that follows from that by mrm-trace's rules ([Judge]).
// docs/MRM_RUN.md describes the file that they stand in.
package verdict
