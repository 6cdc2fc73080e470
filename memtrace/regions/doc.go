// Package regions builds the map of a process's memory from what the tap reports of buffers and graphs, counts how
// the ops of graphs use each region, and writes region_map.parquet.
package regions
