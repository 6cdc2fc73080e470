package testenv

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// NeedBPF asks for the rights to run BPF programs, and mounts tracefs where it is missing: programs for kernels
// without BTF need it.
func NeedBPF(t testing.TB) {
	t.Helper()
	NeedRoot(t)
	if _, err := os.Stat("/sys/kernel/tracing/events"); err != nil {
		_ = unix.Mount("nodev", "/sys/kernel/tracing", "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	}
	if err := loadProgram(); err != nil {
		bpf.miss(t, err.Error())
	}
}

// loadProgram loads a BPF program that returns 0, and lets go of it. Most test programs need no library for BPF.
func loadProgram() error {
	code := [2]uint64{0xb7, 0x95} // r0 = 0; exit
	license := [4]byte{'G', 'P', 'L'}
	attr := struct {
		kind, n uint32
		code    *[2]uint64
		license *[4]byte
		_       [24]byte
	}{kind: unix.BPF_PROG_TYPE_TRACEPOINT, n: 2, code: &code, license: &license}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)),
		unsafe.Sizeof(attr))
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// NeedFio returns the path of fio.
func NeedFio(t testing.TB) string {
	t.Helper()
	return fio.find(t, "fio")
}
