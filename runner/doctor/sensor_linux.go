package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

const sensorTopic = "sensors"

// sensors tries what recorders of the kernel's events ask of it. Each is opened and closed again; nothing of it stays.
func sensors(root fs.FS) []Fact {
	return []Fact{
		bpfProgram(), bpfRing(), tracepoint(root), cycles(), uprobe(root), writeTracking(), lowPriority(),
	}
}

// tried says how an attempt ended. The kernel's refusal of what it has is distinguished from not having it; what else
// went
// wrong shows nothing.
func (f Fact) tried(err error, works string) Fact {
	switch {
	case err == nil:
		return f.with(OK, works)
	case isOneOf(err, unix.EPERM, unix.EACCES):
		return f.with(Missing, "refused: "+oneLine(err.Error()))
	case isOneOf(err, unix.ENOSYS, unix.EINVAL, unix.ENOENT, unix.ENODEV, unix.ENXIO, unix.EOPNOTSUPP, unix.ENOTTY):
		return f.with(Missing, "none here: "+oneLine(err.Error()))
	}
	return f.unknown(err)
}

func isOneOf(err error, numbers ...unix.Errno) bool {
	for _, n := range numbers {
		if errors.Is(err, n) {
			return true
		}
	}
	return false
}

// What bpf(2) reads lies in variables, whose addresses do not change: the structures that it is given hold them as
// numbers.
var (
	bpfReturnZero = [2]uint64{0x00000000000000b7, 0x0000000000000095} // r0 = 0; exit
	bpfLicence    = [4]byte{'G', 'P', 'L', 0}
)

const (
	bpfMapCreate = 0
	bpfProgLoad  = 5
)

// bpfCall makes a map or a program and closes it.
func bpfCall(command int, attribute unsafe.Pointer, bytes uintptr) error {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attribute), bytes)
	if errno != 0 {
		return fmt.Errorf("bpf: %w", errno)
	}
	return unix.Close(int(fd))
}

// bpfProgram loads a program for tracepoints that does nothing.
func bpfProgram() Fact {
	attribute := struct {
		kind, count           uint32
		instructions, licence uint64
		logLevel, logSize     uint32
		log                   uint64
		version, flags        uint32
	}{
		kind: unix.BPF_PROG_TYPE_TRACEPOINT, count: uint32(len(bpfReturnZero)),
		instructions: uint64(uintptr(unsafe.Pointer(&bpfReturnZero))),
		licence:      uint64(uintptr(unsafe.Pointer(&bpfLicence))),
	}
	err := bpfCall(bpfProgLoad, unsafe.Pointer(&attribute), unsafe.Sizeof(attribute))
	return Fact{Topic: sensorTopic, Name: "bpf program"}.tried(err, "a program for tracepoints was loaded").
		lacking("no block I/O, scheduling and page faults of each layer",
			"run as root or with CAP_BPF and CAP_PERFMON, outside of a sandbox that forbids bpf(2)")
}

// bpfRing makes the buffer through which programs report what they see.
func bpfRing() Fact {
	attribute := struct{ kind, key, value, entries, flags uint32 }{kind: unix.BPF_MAP_TYPE_RINGBUF,
		entries: uint32(unix.Getpagesize())}
	err := bpfCall(bpfMapCreate, unsafe.Pointer(&attribute), unsafe.Sizeof(attribute))
	return Fact{Topic: sensorTopic, Name: "bpf ring buffer"}.tried(err, "one was made").
		lacking("no events from BPF programs", "a kernel from 5.8 on; root or CAP_BPF")
}

// lowPriority lowers a thread that ends afterwards to where the collector works.
func lowPriority() Fact {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks: the thread ends with the goroutine
		err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19)
		var parameter struct{ priority int32 }
		if _, _, errno := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_IDLE,
			uintptr(unsafe.Pointer(&parameter))); errno != 0 {
			err = errors.Join(err, fmt.Errorf("SCHED_IDLE: %w", errno))
		}
		ended <- err
	}()
	return Fact{Topic: sensorTopic, Name: "low priority"}.tried(<-ended, "nice 19 and SCHED_IDLE").
		lacking("the recording takes time from the model", "allow setpriority and sched_setscheduler in the sandbox")
}
