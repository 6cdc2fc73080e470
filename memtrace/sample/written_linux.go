package sample

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"github.com/llamatap/llamatap/memtrace/sample/perf"
	"golang.org/x/sys/unix"
)

// Written watches which pages of a process are written. It is for one goroutine.
type Written struct {
	pid     int
	page    uint64
	pidfd   int
	uffd    int
	pagemap *os.File
	found   []pageRegion // of one call of the kernel
}

// pageRegion is struct page_region of linux/fs.h.
type pageRegion struct{ start, end, categories uint64 }

// scanArg is struct pm_scan_arg.
type scanArg struct {
	size, flags, start, end, walkEnd, vec, vecLen, maxPages   uint64
	categoryInverted, categoryMask, categoryAnyOf, returnMask uint64
}

// Numbers of linux/fs.h and linux/userfaultfd.h that golang.org/x/sys does not have.
const (
	pagemapScan    = 3<<30 | unsafe.Sizeof(scanArg{})<<16 | 'f'<<8 | 16
	scanProtect    = 1 << 0 // PM_SCAN_WP_MATCHING
	scanCheck      = 1 << 1 // PM_SCAN_CHECK_WPASYNC
	pageIsWritten  = 1 << 1
	pageIsPresent  = 1 << 3
	pageIsSwapped  = 1 << 4
	userModeOnly   = 1 // UFFD_USER_MODE_ONLY
	uffdAPI        = 0xAA
	uffdioAPI      = 3<<30 | 24<<16 | uffdAPI<<8 | 0x3F
	uffdioRegister = 3<<30 | 32<<16 | uffdAPI<<8 // number 0
	modeProtect    = 1 << 1
	featureShmem   = 1 << 12 // files in memory and huge pages of hugetlbfs too
	featureUnused  = 1 << 13 // pages that nobody has touched too
	featureAsync   = 1 << 15
)

// regions is the most pieces that one call of the kernel returns; there are as many calls as needed.
const regions = 4096

// Watch prepares to watch a process that was started with the tap and [WrittenEnv]. Nothing is watched until Add.
func Watch(pid int) (*Written, error) {
	w := &Written{pid: pid, page: uint64(os.Getpagesize()), uffd: -1, pidfd: -1, found: make([]pageRegion, regions)}
	if err := w.openUserfaultfd(); err != nil {
		w.Close()
		return nil, err
	}
	pagemap, err := os.OpenFile(filepath.Join("/proc", strconv.Itoa(pid), "pagemap"), os.O_RDONLY, 0)
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("%w: %w: run as root or as the owner of process %d", ErrWatch, err, pid)
	}
	w.pagemap = pagemap
	return w, nil
}

// openUserfaultfd gets a copy of the process's userfaultfd.
func (w *Written) openUserfaultfd() error {
	dir := filepath.Join("/proc", strconv.Itoa(w.pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%w: %w: process %d is gone, or somebody else's: run as root or as its owner", ErrWatch, err,
			w.pid)
	}
	if w.pidfd, err = unix.PidfdOpen(w.pid, 0); err != nil {
		return fmt.Errorf("%w: process %d: %w; Linux 6.7 or newer is needed", ErrWatch, w.pid, err)
	}
	refused := errors.New("it has opened none: start it with llamatap, as root or with sysctl " +
		"vm.unprivileged_userfaultfd=1 before Linux 5.11")
	for _, e := range entries {
		number, err := strconv.Atoi(e.Name())
		if link, _ := os.Readlink(filepath.Join(dir, e.Name())); err != nil || link != uffdLink {
			continue
		}
		if inherited(w.pid, number) {
			refused = errors.New("it was forked and has the one of its parent alone: it was made without fork(3)")
			continue
		}
		fd, err := unix.PidfdGetfd(w.pidfd, number, 0)
		if err != nil {
			return fmt.Errorf("%w: take a descriptor of process %d: %w; needs the right to trace it: be its parent, "+
				"its owner with sysctl kernel.yama.ptrace_scope=0, or root", ErrWatch, w.pid, err)
		}
		api := [3]uint64{uffdAPI, featureAsync | featureUnused | featureShmem, 0}
		if refused = ioctl(fd, uffdioAPI, unsafe.Pointer(&api)); refused == nil {
			w.uffd = fd
			return nil
		}
		unix.Close(fd)
		refused = fmt.Errorf("%w; Linux 6.7 or newer is needed, and nobody else may watch the process", refused)
	}
	return fmt.Errorf("%w: userfaultfd of process %d: %w", ErrWatch, w.pid, refused)
}

// uffdLink is what the link of a userfaultfd in /proc/PID/fd says.
const uffdLink = "anon_inode:[userfaultfd]"

// inherited reports whether a descriptor of a process is the same as one of its parent's, as far as the kernel says: a
// userfaultfd that came with a fork is about the parent's memory.
func inherited(pid, number int) bool {
	parent, ok := perf.Parent(pid)
	if !ok || parent == os.Getpid() { // who may have taken a copy
		return false
	}
	dir := filepath.Join("/proc", strconv.Itoa(parent), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		theirs, err := strconv.Atoi(e.Name())
		if link, _ := os.Readlink(filepath.Join(dir, e.Name())); err != nil || link != uffdLink {
			continue
		}
		const file = 0 // KCMP_FILE
		same, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(parent), file, uintptr(number),
			uintptr(theirs), 0)
		if errno == 0 && same == 0 {
			return true
		}
	}
	return false
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// Add watches a range from now on, widened to whole pages: its first and last may hold bytes of others. It may be
// added again, after ErrRange.
func (w *Written) Add(r Range) error {
	r = around(r, w.page)
	arg := [4]uint64{r.Start, r.Bytes(), modeProtect, 0}
	if err := ioctl(w.uffd, uffdioRegister, unsafe.Pointer(&arg)); err != nil {
		return fmt.Errorf("%w: %#x to %#x of process %d: %w: is it mapped, and of a kind that may be watched "+
			"(memory, not a device)?", ErrWatch, r.Start, r.End, w.pid, err)
	}
	_, err := w.Scan(nil, r)
	return err
}

// Scan adds to dst the pages of a watched range that were written since it was scanned before, or added, and watches
// them again: a write is in exactly one scan, even if it happens meanwhile. Pages are in the order of addresses,
// neighbours merged.
func (w *Written) Scan(dst []Range, r Range) ([]Range, error) {
	r = around(r, w.page)
	first := len(dst)
	arg := scanArg{
		flags: scanProtect | scanCheck, start: r.Start, end: r.End, vec: uint64(uintptr(unsafe.Pointer(&w.found[0]))),
		vecLen:       uint64(len(w.found)),
		categoryMask: pageIsWritten, returnMask: pageIsWritten | pageIsPresent | pageIsSwapped,
	}
	arg.size = uint64(unsafe.Sizeof(arg))
	for arg.start < r.End {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, w.pagemap.Fd(), uintptr(pagemapScan), uintptr(unsafe.Pointer(&arg)))
		if errno != 0 {
			return dst, w.explain(r, errno)
		}
		for _, f := range w.found[:n] {
			dst = w.join(dst, first, f)
		}
		if arg.walkEnd <= arg.start {
			break
		}
		arg.start = arg.walkEnd
	}
	if len(dst) == first && w.ended() { // some kernels scan the memory of an ended process, and find nothing
		return dst, w.explain(r, unix.ESRCH)
	}
	return dst, nil
}

// ended reports whether the process has ended.
func (w *Written) ended() bool {
	fds := []unix.PollFd{{Fd: int32(w.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0
}

// join adds what the kernel found to what it found before.
func (w *Written) join(dst []Range, first int, f pageRegion) []Range {
	isFreed := f.categories&(pageIsPresent|pageIsSwapped) == 0
	if n := len(dst); n > first && dst[n-1].End == f.start && dst[n-1].Gone == isFreed {
		dst[n-1].End = f.end
		return dst
	}
	return append(dst, Range{Start: f.start, End: f.end, Gone: isFreed})
}

// explain says why a scan failed, and what helps.
func (w *Written) explain(r Range, errno unix.Errno) error {
	switch errno {
	case unix.EPERM:
		return fmt.Errorf("%w: %#x to %#x of process %d: add it again", ErrRange, r.Start, r.End, w.pid)
	case unix.ENOTTY:
		return fmt.Errorf("%w: scan pages of process %d: %w; Linux 6.7 or newer is needed", ErrWatch, w.pid, errno)
	case unix.ESRCH:
		return fmt.Errorf("%w: process %d has ended: %w", ErrWatch, w.pid, errno)
	}
	return fmt.Errorf("scan pages %#x to %#x of process %d: %w", r.Start, r.End, w.pid, errno)
}

// Close ends all watching. It is safe to call twice.
func (w *Written) Close() error {
	var first error
	if w.uffd >= 0 {
		first = unix.Close(w.uffd)
		w.uffd = -1
	}
	if w.pidfd >= 0 {
		first = cmp.Or(first, unix.Close(w.pidfd))
		w.pidfd = -1
	}
	if w.pagemap != nil {
		if err := w.pagemap.Close(); err != nil && first == nil {
			first = err
		}
		w.pagemap = nil
	}
	return first
}

// CanWatch reports whether pages of a process that this one starts can be watched: the error names cause and remedy. It
// tries with this process.
func CanWatch() error {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|userModeOnly, 0, 0)
	if errno != 0 {
		return fmt.Errorf("%w: userfaultfd: %w; allow userfaultfd(2) in the sandbox, and before Linux 5.11 be root "+
			"or sysctl vm.unprivileged_userfaultfd=1", ErrWatch, errno)
	}
	defer unix.Close(int(fd))
	api := [3]uint64{uffdAPI, featureAsync | featureUnused | featureShmem, 0}
	if err := ioctl(int(fd), uffdioAPI, unsafe.Pointer(&api)); err != nil {
		return fmt.Errorf("%w: userfaultfd with asynchronous write protection: %w; Linux 6.7 or newer is needed",
			ErrWatch, err)
	}
	return nil
}
