// Package vm runs test binaries on other kernels: in a virtual machine without hardware, that boots a
// distribution's kernel and sees the files of this machine, read-only. scripts/vm-kernels fetches the kernels,
// scripts/setup the emulator.
package vm
