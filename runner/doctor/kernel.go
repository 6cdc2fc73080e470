package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// kernel looks at what the kernel shows of itself.
func kernel(root fs.FS) []Fact {
	return []Fact{release(root), btf(root), pressure(root), paranoid(root), pointers(root), tracing(root)}
}

func release(root fs.FS) Fact {
	f := Fact{Topic: "kernel", Name: "release"}
	text, err := word(root, "proc/sys/kernel/osrelease")
	if err != nil {
		return f.unknown(err)
	}
	return f.with(OK, text)
}

// btf opens the kernel's type information and looks at its magic number.
func btf(root fs.FS) Fact {
	const name = "sys/kernel/btf/vmlinux"
	f := Fact{Topic: "kernel", Name: "btf"}
	file, err := root.Open(name)
	if isAbsentInKernel(root, "sys", err) {
		return f.with(Missing, "no /"+name).lacking("no BPF programs that fit every kernel",
			"a kernel with CONFIG_DEBUG_INFO_BTF=y")
	}
	if err != nil {
		return f.unknown(err)
	}
	defer file.Close()
	var magic [2]byte
	if _, err := io.ReadFull(file, magic[:]); err != nil {
		return f.unknown(fmt.Errorf("read /%s: %w", name, err))
	}
	if n := binary.NativeEndian.Uint16(magic[:]); n != 0xeb9f {
		return f.unknown(fmt.Errorf("/%s begins with %#x, which is not BTF", name, n))
	}
	return f.with(OK, "/"+name)
}

// pressure reads the stall accounting; with psi=0 its files are there and reading them fails.
func pressure(root fs.FS) Fact {
	f := Fact{Topic: "kernel", Name: "psi"}
	const costs, remedy = "no stall times", "boot with psi=1, on a kernel with CONFIG_PSI=y"
	text, err := word(root, "proc/pressure/memory")
	switch {
	case isAbsentInKernel(root, "proc", err):
		return f.with(Missing, "no /proc/pressure/memory").lacking(costs, remedy)
	case err != nil && errors.Is(err, errNotSupported):
		return f.with(Missing, "/proc/pressure/memory is turned off").lacking(costs, remedy)
	case err != nil:
		return f.unknown(err)
	case !strings.HasPrefix(text, "some "):
		return f.unknown(errors.New("/proc/pressure/memory does not begin with some"))
	}
	return f.with(OK, "/proc/pressure")
}

// paranoid reads what an unprivileged process may measure with perf_event_open.
func paranoid(root fs.FS) Fact {
	f := Fact{Topic: "kernel", Name: "perf_event_paranoid"}
	text, err := word(root, "proc/sys/kernel/perf_event_paranoid")
	if isAbsentInKernel(root, "proc", err) {
		return f.with(Missing, "the kernel has no perf_event_open").
			lacking("no counters, no samples", "a kernel with CONFIG_PERF_EVENTS=y")
	}
	if err != nil {
		return f.unknown(err)
	}
	level, err := strconv.Atoi(text)
	if err != nil {
		return f.unknown(err)
	}
	switch r, err := rightsOf(root); {
	case level < 0:
		return f.with(OK, text)
	case err == nil && r.perf():
		return f.with(OK, text+", which this process's rights override")
	case level >= 3:
		f = f.with(Limited, text+": no events at all on kernels that know this level (Debian, Ubuntu, Android)")
	case level == 2:
		f = f.with(Limited, text+": only this process, only outside of the kernel")
	case level == 1:
		f = f.with(Limited, text+": only this process")
	default:
		f = f.with(Limited, text+": no tracepoints")
	}
	return f.lacking("events of the kernel and of the whole machine",
		"run as root or with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=-1")
}

// pointers reads whether addresses of the kernel can be turned into names.
func pointers(root fs.FS) Fact {
	f := Fact{Topic: "kernel", Name: "kptr_restrict"}
	text, err := word(root, "proc/sys/kernel/kptr_restrict")
	if err != nil {
		return f.unknown(err)
	}
	list, err := root.Open("proc/kallsyms")
	if err != nil {
		return f.unknown(fmt.Errorf("kptr_restrict is %s, and whether it hides addresses cannot be seen: %w", text,
			err))
	}
	defer list.Close()
	start := make([]byte, 4096)
	n, _ := io.ReadFull(list, start)
	shown := false
	for line := range strings.Lines(string(start[:n])) {
		address, _, _ := strings.Cut(line, " ")
		shown = shown || strings.Trim(address, "0") != ""
	}
	if shown {
		return f.with(OK, text+", this process sees the kernel's addresses")
	}
	return f.with(Limited, text+", /proc/kallsyms hides addresses").
		lacking("stacks in the kernel have no names",
			"run as root, or with CAP_SYSLOG and sysctl kernel.kptr_restrict=1")
}

// tracing looks for the file system of tracepoints.
func tracing(root fs.FS) Fact {
	f := Fact{Topic: "kernel", Name: "tracefs"}
	status, costs := withoutTracepoints(root)
	for _, dir := range []string{"sys/kernel/tracing", "sys/kernel/debug/tracing"} {
		entries, err := fs.ReadDir(root, dir+"/events")
		switch {
		case err == nil && len(entries) > 0:
			return f.with(OK, "/"+dir)
		case errors.Is(err, fs.ErrPermission):
			return f.with(Limited, "/"+dir+" is closed to this user").lacking(costs, "run as root")
		}
	}
	return f.with(status, "not mounted at /sys/kernel/tracing").lacking(costs, mountTracefs)
}

const mountTracefs = "as root: mount -t tracefs tracefs /sys/kernel/tracing"

// withoutTracepoints says how much is lost without tracefs: where the kernel has BTF, the collectors of --tap-host
// do not need it.
func withoutTracepoints(root fs.FS) (Status, string) {
	if btf(root).Status == OK {
		return Limited, "page faults do not say whether they read or wrote"
	}
	return Missing, "no tracepoints: no block I/O, no scheduling, unless a recording by root mounts tracefs"
}
