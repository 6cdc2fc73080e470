// Package record writes the table of accesses of a run: rows as package memtrace names their columns, from one
// recorder or from several, into parts that are whole by themselves (docs/TABLES.md).
//
// The [Table] belongs to the run. Each recorder has a [Writer] of it, gathers rows in batches, and a goroutine
// packs them: so rows of a recorder stand in their order, and those of several alternate by batches.
package record
