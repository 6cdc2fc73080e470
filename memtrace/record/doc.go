// Package record writes the table of accesses of a run: rows as package memtrace names their columns, in Parquet files that are each complete
// by themselves.
//
// A Parquet file can be read when its end has been written, and not before. So the table is written in parts: the first is complete after ten
// seconds, each further one takes twice as long as the one before, up to five minutes. What a crash or a full disk costs is the last part.
package record
