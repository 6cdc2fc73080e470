// Package mrmtrace writes a run's accesses to memory as a directory of mrm-trace (PyPI, 0.1), which its own
// programs read. docs/EXPORT.md says what stands for what.
package mrmtrace
