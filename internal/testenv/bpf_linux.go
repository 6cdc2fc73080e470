package testenv

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
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
	if err := features.HaveProgramType(ebpf.TracePoint); err != nil {
		bpf.miss(t, err.Error())
	}
}

// NeedFio returns the path of fio.
func NeedFio(t testing.TB) string {
	t.Helper()
	return fio.find(t, "fio")
}
