// Package report says why a run was slow: a verdict of one to three sentences, and the causes that were considered,
// each with its share of the time and the evidence.
//
// Read gathers what the other packages of inspect compute from the files of a run directory. Each cause is a function
// in one table. It judges from measured figures alone; where the files that it needs are absent, it names the flag
// that would record them.
package report
