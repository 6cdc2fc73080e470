// Package analyze computes what follows from sealed runs and writes it below their derived folder, which no manifest
// lists. It has four parts, by file name:
//
//   - survey reads the tables of one run, row group by row group, in memory that does not grow with the trace:
//     regions, how long their data was needed, and the bins that figures draw.
//   - whatif asks whether these regions could live in another memory: one that retains data for a limited time, wears
//     out with writes, and takes a published energy per bit. It computes refreshes, wear, energy and verdicts.
//   - figure draws both as PNG (300 dots per inch), SVG or PDF.
//   - aggregate checks the runs of an experiment and computes mean and 95 % interval of each metric of each cell. It
//     also copies runs into a dataset partitioned model_id=/run_id=.
//
// [Run] analyses one run, [Aggregate] those of experiments. docs/MRM_DATA.md describes files, formulas and figures.
package analyze
