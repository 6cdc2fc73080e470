// Package bench measures models as llama-bench does, and what the tap costs them.
//
// A [Plan] lists tests, from flags or a [Script]. A [Conductor] visits each several times, in rounds of random order;
// a visit is a process that computes one test with [Measure]. [Rows] summarises the visits, [WriteRows] writes
// llama-bench's md, csv, json, jsonl and sql with further columns after llama-bench's, and [Compare] reads two such
// files.
//
// [Tap] compares two configurations in pairs: each pair runs both, in random order, one after the other, and gives one
// ratio. The figure is the median of the ratios with a 95 % bootstrap interval. A gate passes or fails where the whole
// interval lies on one side of it. Otherwise more pairs run until the time is up, and the gate is not resolved on this
// machine.
package bench
