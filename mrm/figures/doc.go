// Package figures draws what is known of a run's memory: for how long data is needed, what is accessed where and
// when, working sets, reads and writes by phase, lives of the KV cache's blocks, and which regions suit which
// memory. Pictures are as wide as a column or a page of a journal, as PNG (300 dots per inch) and SVG with its
// fonts inside. docs/MRM_DATA.md shows how to read each.
package figures
