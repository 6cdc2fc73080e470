package doctor

import (
	"io/fs"
	"strconv"
)

// kernel looks at what the kernel shows of itself.
func kernel(root fs.FS) []Fact {
	return []Fact{
		present(root, "kernel", "btf", "sys/kernel/btf/vmlinux").
			lacking("no portable BPF programs", "a kernel with CONFIG_DEBUG_INFO_BTF=y"),
		pressure(root),
		paranoid(root),
	}
}

// pressure reads the stall accounting; with psi=0 its files are there and reading them fails.
func pressure(root fs.FS) Fact {
	f := present(root, "kernel", "psi", "proc/pressure/memory")
	if f.Status == OK {
		if _, err := word(root, "proc/pressure/memory"); err != nil {
			f.Status, f.Value = Unknown, err.Error()
		}
	}
	return f.lacking("no stall times", "boot with psi=1, on a kernel with CONFIG_PSI=y")
}

// paranoid reads what an unprivileged process may measure with perf_event_open.
func paranoid(root fs.FS) Fact {
	f := Fact{Topic: "kernel", Name: "perf_event_paranoid", Status: Unknown}
	text, err := word(root, "proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		f.Value = err.Error()
		return f
	}
	f.Value = text
	switch level, err := strconv.Atoi(text); {
	case err != nil:
		f.Value = err.Error()
	case level >= 2:
		f.Status = Limited
	default:
		f.Status = OK
	}
	return f.lacking("without CAP_PERFMON no kernel events", "sysctl kernel.perf_event_paranoid=1, or CAP_PERFMON")
}
