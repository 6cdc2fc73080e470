package doctor

import (
	"fmt"
	"io/fs"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openEvent opens an event and closes it.
func openEvent(attribute unix.PerfEventAttr, pid, cpu int) error {
	attribute.Size = uint32(unsafe.Sizeof(attribute))
	fd, err := unix.PerfEventOpen(&attribute, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("perf_event_open: %w", err)
	}
	return unix.Close(fd)
}

// tracepoint opens one that recorders of scheduling need, for all processes.
func tracepoint(root fs.FS) Fact {
	f := Fact{Topic: sensorTopic, Name: "tracepoint"}
	status, costs := withoutTracepoints(root)
	for _, dir := range []string{"sys/kernel/tracing", "sys/kernel/debug/tracing"} {
		id, err := number(root, dir+"/events/sched/sched_switch/id")
		if absent(err) {
			continue
		}
		if err == nil {
			err = openEvent(unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id}, -1, 0)
		}
		return f.tried(err, "sched:sched_switch was opened for all processes").
			lacking(costs, "run as root or with CAP_PERFMON")
	}
	return f.with(status, "without tracefs the number of sched:sched_switch is not known").lacking(costs, mountTracefs)
}

// cycles opens the counter that every PMU has.
func cycles() Fact {
	err := openEvent(unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES,
		Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}, 0, -1)
	return Fact{Topic: sensorTopic, Name: "cycles"}.tried(err, "counted in this process").
		lacking("no cycles, instructions and cache misses",
			"run on bare metal, or give the guest a virtual PMU; CAP_PERFMON where it is refused")
}

// uprobe puts a probe into a file that no process runs.
func uprobe(root fs.FS) Fact {
	f := Fact{Topic: sensorTopic, Name: "uprobe"}
	kind, err := number(root, sources+"/uprobe/type")
	if err == nil {
		err = probeFile(uint32(kind))
	} else if isAbsentInKernel(root, "sys", err) {
		return f.with(Missing, "no /"+sources+"/uprobe").
			lacking("no probes in programs without the tap", "a kernel with CONFIG_UPROBE_EVENTS=y")
	} else {
		return f.unknown(err)
	}
	return f.tried(err, "one was put into a file of its own").
		lacking("no probes in programs without the tap", "run as root or with CAP_PERFMON")
}

func probeFile(kind uint32) error {
	fd, err := unix.MemfdCreate("llamatap-doctor", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.Pwrite(fd, make([]byte, 4096), 0); err != nil {
		return err
	}
	path, err := unix.BytePtrFromString(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err
	}
	var pin runtime.Pinner
	pin.Pin(path)
	defer pin.Unpin()
	return openEvent(unix.PerfEventAttr{Type: kind, Ext1: uint64(uintptr(unsafe.Pointer(path)))}, 0, -1)
}
