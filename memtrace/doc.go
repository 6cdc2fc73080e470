// Package memtrace holds the words of memory accesses: buffers, the regions that they consist of, and a
// [RegionMap], which finds the region of a place in a buffer, or of an address at a time. Sub-packages listen to a
// tap and feed it.
//
// A [Meter] computes mrm-trace's metrics from touches as they come: retention with its censored share and the
// estimator of Kaplan and Meier, write-once ratio, read frequency, working sets, inter-access intervals, reuse
// distance, locality, and the label of suitability.
//
// A place is a buffer and an offset, never an address alone: addresses are used again after memory was freed, and
// those of a device may be equal to those of the host. What nobody reported is [Other], never guessed.
package memtrace
