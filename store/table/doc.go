// Package table writes tables that other programs read: Parquet for what is kept and queried, Arrow files for what
// is mapped into memory. Rows are gathered in a [Batch], column by column, and a writer takes them batch by batch,
// so that memory is bounded by the batch. The libraries that it uses stay inside.
package table
