package doctor

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/llamatap/llamatap/internal/present"
	"golang.org/x/sys/unix"
)

// defaultShared is the default of --tap-memory, which a recording takes at least.
const defaultShared = 256 << 20

// shared makes memory as the tap and the collector share it. The limit of file sizes holds for it, and is looked at
// first: a process that passes it is ended.
func shared() Fact {
	f := Fact{Topic: "tap", Name: "shared memory"}
	const costs = "no recording: the tap cannot do without it"
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return f.unknown(err)
	}
	if limit.Cur < 1<<20 {
		return f.with(Missing, "files may have "+present.Bytes(limit.Cur)).lacking(costs, "ulimit -f unlimited")
	}
	if err := memfd(); err != nil {
		return f.tried(err, "").lacking(costs, "allow memfd_create in the sandbox")
	}
	if limit.Cur < defaultShared {
		return f.with(Limited, "memfd_create, but files may have "+present.Bytes(limit.Cur)).
			lacking("a recording needs a smaller --tap-memory than its default", "ulimit -f unlimited")
	}
	return f.with(OK, "memfd_create, sealed")
}

// memfd makes a memfd as the collector does, seals and maps it.
func memfd() error {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("llamatap-doctor", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("llamatap-doctor", flags) // kernels before 6.3
	}
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 1<<16); err != nil {
		return fmt.Errorf("ftruncate: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	bytes, err := unix.Mmap(fd, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	bytes[0] = 1
	return unix.Munmap(bytes)
}

// Numbers of linux/userfaultfd.h and linux/fs.h, the same on every architecture that llamatap records on.
const (
	uffdUserModeOnly    = 1
	uffdioAPI           = 0xc018aa3f
	uffdioRegister      = 0xc020aa00
	uffdAPI             = 0xaa
	uffdWPUnpopulated   = 1 << 13
	uffdWPAsync         = 1 << 15
	uffdRegisterWP      = 1 << 1
	pagemapScan         = 0xc0606610
	scanWriteProtect    = 1 << 0
	scanCheckAsync      = 1 << 1
	pageIsWritten       = 1 << 1
	pagesLookedAt       = 4
	pageThatIsWrittenTo = 2
)

// writeTracking lets the kernel find the page that is written to: userfaultfd's asynchronous write protection and
// PAGEMAP_SCAN.
func writeTracking() Fact {
	return Fact{Topic: sensorTopic, Name: "userfaultfd"}.tried(trackWrite(),
		"write protection (async) and PAGEMAP_SCAN found a written page").
		lacking("which pages were written is known from samples and page faults alone",
			"a kernel from 6.7 on; allow userfaultfd(2) in the sandbox")
}

func trackWrite() error {
	page := unix.Getpagesize()
	memory, err := unix.Mmap(-1, 0, (pagesLookedAt+1)*page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer unix.Munmap(memory)
	start := uint64(uintptr(unsafe.Pointer(&memory[0])))
	end := start + uint64(pagesLookedAt*page)
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|uffdUserModeOnly, 0, 0)
	if errno != 0 {
		return fmt.Errorf("userfaultfd: %w", errno)
	}
	defer unix.Close(int(fd))
	api := [3]uint64{uffdAPI, uffdWPAsync | uffdWPUnpopulated, 0}
	if err := ioctl(fd, uffdioAPI, unsafe.Pointer(&api)); err != nil {
		return fmt.Errorf("userfaultfd with WP_ASYNC: %w", err)
	}
	register := [4]uint64{start, end - start, uffdRegisterWP, 0}
	if err := ioctl(fd, uffdioRegister, unsafe.Pointer(&register)); err != nil {
		return fmt.Errorf("register with userfaultfd: %w", err)
	}
	pagemap, err := os.Open("/proc/self/pagemap")
	if absent(err) {
		return errors.New("/proc is not mounted, and PAGEMAP_SCAN is asked there")
	} else if err != nil {
		return err
	}
	defer pagemap.Close()
	found := memory[pagesLookedAt*page:] // does not move, and is not looked at
	scan := func(flags uint64) (regions int64, err error) {
		a := [12]uint64{96, flags, start, end, 0, uint64(uintptr(unsafe.Pointer(&found[0]))), uint64(page / 24), 0, 0,
			pageIsWritten, 0, pageIsWritten}
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, pagemap.Fd(), pagemapScan, uintptr(unsafe.Pointer(&a)))
		if errno != 0 {
			return 0, fmt.Errorf("PAGEMAP_SCAN: %w", errno)
		}
		return int64(n), nil
	}
	if _, err := scan(scanWriteProtect | scanCheckAsync); err != nil {
		return err
	}
	memory[pageThatIsWrittenTo*page] = 1
	regions, err := scan(scanCheckAsync)
	if err != nil {
		return err
	}
	at := *(*uint64)(unsafe.Pointer(&found[0]))
	if want := start + uint64(pageThatIsWrittenTo*page); regions != 1 || at != want {
		return fmt.Errorf("PAGEMAP_SCAN found %d written regions, the first at %#x, where one page at %#x was written",
			regions, at, want)
	}
	return nil
}

func ioctl(fd uintptr, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
