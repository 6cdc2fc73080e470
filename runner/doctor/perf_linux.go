package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/memtrace/sample/perf"
)

const onlyUser = unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv

// openEvent opens an event and closes it.
func openEvent(attribute unix.PerfEventAttr, pid, cpu int) error {
	fd, err := perfOpen(attribute, pid, cpu)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func perfOpen(attribute unix.PerfEventAttr, pid, cpu int) (int, error) {
	attribute.Size = uint32(unsafe.Sizeof(attribute))
	fd, err := unix.PerfEventOpen(&attribute, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("perf_event_open: %w", err)
	}
	return fd, nil
}

// tracepoint opens one that recorders of scheduling stand on, for all processes.
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
	return f.is(status, "without tracefs the number of sched:sched_switch is not known").lacking(costs, mountTracefs)
}

// pageFaults counts one of its own.
func pageFaults() Fact {
	return Fact{Topic: sensorTopic, Name: "page faults"}.tried(countFault(), "counted in this process").
		lacking("no page faults by perf_event_open",
			"sysctl kernel.perf_event_paranoid=2, or CAP_PERFMON; allow it in the sandbox")
}

func countFault() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer unix.Munmap(page)
	fd, err := perfOpen(unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_PAGE_FAULTS,
		Bits: onlyUser}, 0, -1)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	page[0] = 1
	var count [8]byte
	if _, err := unix.Read(fd, count[:]); err != nil {
		return fmt.Errorf("read the count of page faults: %w", err)
	}
	if binary.NativeEndian.Uint64(count[:]) == 0 {
		return errors.New("a page was touched for the first time, and no fault was counted")
	}
	return nil
}

// cycles opens the counter that every PMU has.
func cycles() Fact {
	err := openEvent(unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES,
		Bits: onlyUser}, 0, -1)
	return Fact{Topic: sensorTopic, Name: "cycles"}.tried(err, "counted in this process").
		lacking("no cycles, instructions and cache misses",
			"run on bare metal, or give the guest a virtual PMU; CAP_PERFMON where it is refused")
}

// A sampler is a way in which processors report addresses of single accesses.
type sampler struct{ source, event, name string }

var samplers = []sampler{
	{"cpu", "mem-loads", "PEBS mem-loads"}, {"cpu_core", "mem-loads", "PEBS mem-loads"}, {"ibs_op", "", "IBS"},
	{"arm_spe_0", "", "SPE"},
}

// memorySampling opens the sampling of memory accesses that this processor has.
func memorySampling(root fs.FS) Fact {
	f := Fact{Topic: sensorTopic, Name: "memory sampling"}
	if _, err := fs.ReadDir(root, sources); err != nil {
		return f.unknown(err)
	}
	for _, s := range samplers {
		attribute, err := s.attribute(root)
		if absent(err) {
			continue
		}
		if err == nil {
			err = openEvent(attribute, 0, -1)
		}
		// older kernels cannot leave themselves out of IBS
		if errors.Is(err, unix.EINVAL) && attribute.Bits&onlyUser != 0 {
			attribute.Bits &^= onlyUser
			err = openEvent(attribute, 0, -1)
		}
		return f.tried(err, s.name+" of "+s.source+"; sampling with it is "+perf.NotYetRun).
			lacking("no addresses of loads and stores from hardware",
				"run as root or with CAP_PERFMON, on a kernel for this processor")
	}
	return f.is(Missing, "the kernel shows neither mem-loads (PEBS) nor ibs_op nor arm_spe_0").
		lacking("no addresses of loads and stores from hardware", "run on bare metal; a guest is rarely given them")
}

// attribute describes the sampler to the kernel. An error that is fs.ErrNotExist means that this processor has none.
func (s sampler) attribute(root fs.FS) (a unix.PerfEventAttr, err error) {
	dir := sources + "/" + s.source
	kind, err := number(root, dir+"/type")
	if err != nil {
		return a, err
	}
	a = unix.PerfEventAttr{Type: uint32(kind), Sample: 100_003, Sample_type: unix.PERF_SAMPLE_ADDR, Bits: onlyUser}
	if s.event == "" {
		return a, nil
	}
	terms, err := word(root, dir+"/events/"+s.event)
	if err != nil {
		return a, err
	}
	a.Bits |= unix.PerfBitPreciseIPBit2 // precise_ip 2, asked to be without skid, as perf mem does
	for term := range strings.SplitSeq(terms, ",") {
		if err := addTerm(root, dir, term, &a); err != nil {
			return a, fmt.Errorf("event %s of %s: %w", s.event, s.source, err)
		}
	}
	return a, nil
}

// addTerm puts a term such as umask=0x1 where the PMU's folder format says, such as config:8-15.
func addTerm(root fs.FS, dir, term string, a *unix.PerfEventAttr) error {
	name, text, given := strings.Cut(term, "=")
	value, err := uint64(1), error(nil)
	if given {
		value, err = strconv.ParseUint(text, 0, 64)
	}
	if err != nil {
		return err
	}
	format, err := word(root, dir+"/format/"+name)
	if err != nil {
		return fmt.Errorf("term %s: %w", name, errors.New(oneLine(err.Error())))
	}
	where, bits, _ := strings.Cut(format, ":")
	first, _, _ := strings.Cut(bits, "-")
	shift, err := strconv.ParseUint(first, 10, 6)
	if err != nil {
		return fmt.Errorf("term %s: format %q is not understood", name, format)
	}
	switch where {
	case "config":
		a.Config |= value << shift
	case "config1":
		a.Ext1 |= value << shift
	case "config2":
		a.Ext2 |= value << shift
	default:
		return fmt.Errorf("term %s: format %q is not understood", name, format)
	}
	return nil
}

// uprobe puts a probe into a file that no process runs.
func uprobe(root fs.FS) Fact {
	f := Fact{Topic: sensorTopic, Name: "uprobe"}
	kind, err := number(root, sources+"/uprobe/type")
	if err == nil {
		err = probeFile(uint32(kind))
	} else if without(root, "sys", err) {
		return f.is(Missing, "no /"+sources+"/uprobe").
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
