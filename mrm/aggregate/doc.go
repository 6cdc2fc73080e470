// Package aggregate puts sealed runs of experiments together: each metric of each cell of the matrix as a mean over
// its repetitions, with an interval of confidence. Runs are checked before they are believed: manifest, hashes,
// versions of schemas. It also copies runs into a dataset that is partitioned as Hive does it, model_id=/run_id=,
// which DuckDB, Spark and pandas read as one. docs/MRM_DATA.md describes both.
package aggregate
