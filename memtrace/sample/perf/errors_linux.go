package perf

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const paranoidFile = "/proc/sys/kernel/perf_event_paranoid"

// paranoid is the kernel's setting, and whether there is one.
func paranoid() (int, bool) {
	b, err := os.ReadFile(paranoidFile)
	if err != nil {
		return 0, false
	}
	level, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return level, err == nil
}

// explain says why an event could not be opened, and what helps.
func explain(name string, o Options, err error) error {
	level, known := paranoid()
	if !known {
		return fmt.Errorf("%w: %s: %w; needs: a kernel with CONFIG_PERF_EVENTS=y, outside of a sandbox that hides "+
			"perf events", ErrOpen, name, err)
	}
	return fmt.Errorf("%w: %s: %w; %s", ErrOpen, name, err, remedy(o, err, level))
}

// remedy is what helps against an error of perf_event_open(2).
func remedy(o Options, err error, level int) string {
	want := 1 // the highest setting that lets a user without rights sample own processes
	if o.UserOnly {
		want = 2
	}
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		if level > want {
			return fmt.Sprintf("kernel.perf_event_paranoid is %d: as root, sysctl kernel.perf_event_paranoid=%d, or "+
				"give the program the right once: "+
				"setcap cap_perfmon,cap_sys_ptrace+ep $(readlink -f $(command -v llamatap))", level, want)
		}
		return fmt.Sprintf("process %d belongs to somebody else, or a sandbox forbids perf_event_open(2): run as "+
			"root or as its owner, or "+
			"setcap cap_perfmon,cap_sys_ptrace+ep $(readlink -f $(command -v llamatap))", o.PID)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP):
		return "this machine does not count it: a virtual machine seldom has a PMU; sample page faults instead"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "an event needs a descriptor per thread and CPU: raise the limit, ulimit -n"
	case errors.Is(err, unix.EINVAL):
		return "the kernel does not know all that is asked for: Linux 5.13 or newer is needed, 6.3 for some PMUs"
	case errors.Is(err, unix.ENOSYS):
		return "needs a kernel with CONFIG_PERF_EVENTS=y, outside of a sandbox that forbids perf_event_open(2)"
	case errors.Is(err, unix.EBUSY):
		return "another program has the PMU for itself: end it"
	}
	return "see man perf_event_open"
}

// explainRing says why there is no ring, and what helps.
func explainRing(o Options, page int, err error) error {
	kb := (1 + o.Pages) * page / 1024
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("%w: %w: %d KiB per CPU: %w; as root, sysctl kernel.perf_event_mlock_kb=%d or more, or ask "+
			"for fewer pages", ErrOpen, ErrRing, kb, err, kb)
	}
	return fmt.Errorf("%w: a ring of %d KiB: %w", ErrOpen, kb, err)
}
