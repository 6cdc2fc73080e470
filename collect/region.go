//go:build linux

package collect

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const headerBytes = uint64(unsafe.Sizeof(shmHeader{}))

// TapBuild is what the symbol tap_build of a tap says that this collector understands: the version of the shared
// memory and the size of its header.
func TapBuild() [2]uint32 { return [2]uint32{shmVersion, uint32(headerBytes)} }

// Region is the memory shared with one model process. Its methods may be called from several goroutines.
type Region struct {
	file   *os.File
	life   [2]*os.File // a pipe that nobody writes to: its other end shows the model's process that this one is gone
	mem    []byte
	header *shmHeader
	plan   plan // the header repeats it for the tap; a model that scribbles over the header must not mislead us
	pool   *pool
	wishes wishes
	Tap
}

// NewRegion makes the memory and writes down what the tap shall record. The caller closes it.
func NewRegion(o Options) (*Region, error) {
	p, err := o.plan()
	if err != nil {
		return nil, err
	}
	file, err := makeMemory(p.size)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, int(p.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		file.Close()
		return nil,
			fmt.Errorf("map %d bytes of shared memory: %w; give a smaller --tap-memory, or raise the limit of address "+
				"space (ulimit -v)", p.size, err)
	}
	h := (*shmHeader)(unsafe.Pointer(&mem[0]))
	r := &Region{file: file, mem: mem, header: h, plan: p, pool: newPool(mem, p), Tap: Tap{h}}
	if r.life[0], r.life[1], err = os.Pipe(); err != nil {
		r.Close()
		return nil, fmt.Errorf("make the pipe to the model's process: %w", err)
	}
	h.HeaderBytes = uint32(headerBytes)
	h.TotalBytes = p.size
	h.QueueOffset, h.QueueBytes = p.queueOffset, p.queueBytes
	h.RingOffset, h.RingEntries = p.ringOffset, p.ringEntries
	h.SlotsOffset, h.SlotBytes, h.NSlots = p.slotsOffset, SlotBytes, p.slots
	h.SteerOffset, h.SteerBytes = p.steerOffset, p.steerBytes
	if err := fillConfig(&h.Config, o); err != nil {
		r.Close()
		return nil, err
	}
	r.wishes.newest = o.Start.Selection
	h.Version = shmVersion
	h.Magic = shmMagic
	return r, nil
}

// makeMemory makes the memory's file. What forbids it is a limit or a sandbox, and the error says which.
func makeMemory(size uint64) (*os.File, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err == nil && limit.Cur < size {
		return nil, fmt.Errorf("make %d bytes of shared memory: files may have %d bytes here; raise the limit "+
			"(ulimit -f), or give a smaller --tap-memory", size, limit.Cur)
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("llamatap", flags|unix.MFD_NOEXEC_SEAL) // some machines allow no other
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("llamatap", flags) // kernels before 6.3
	}
	if err != nil {
		return nil, fmt.Errorf("make shared memory: %w; something (a sandbox, seccomp) forbids memfd_create, which "+
			"the tap cannot do without: allow it, or run outside of it", err)
	}
	file := os.NewFile(uintptr(fd), "llamatap-shm")
	if err := file.Truncate(int64(size)); err != nil {
		file.Close()
		return nil, fmt.Errorf("size shared memory to %d bytes: %w; give a smaller --tap-memory", size, err)
	}
	// A model that cut the file short would kill us with SIGBUS.
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		file.Close()
		return nil, fmt.Errorf("fix the size of shared memory: %w", err)
	}
	return file, nil
}

func fillConfig(c *shmConfig, o Options) error {
	if err := fillSelection(&c.Start, o.Start); err != nil {
		return err
	}
	c.Overflow = uint32(o.Overflow)
	c.CollectorPID = int32(os.Getpid())
	if o.StopOnFailure {
		c.OnFailure = failureStop
	}
	c.Exact = 1
	if o.Cold {
		c.Cold = 1
	}
	if o.InStep {
		c.InStep = 1
	}
	if o.Judge {
		c.Judge = 1
	}
	if o.NoLogits {
		c.NoLogits = 1
	}
	c.Turns = o.Turns
	c.KeepBytes = keepAuto
	if o.Keep != nil {
		c.KeepBytes = uint64(*o.Keep)
	}
	if len(o.Backends) >= pathSize {
		return fmt.Errorf("the path of the backends has %d bytes: at most %d can be used", len(o.Backends), pathSize-1)
	}
	copy(c.Backends[:], o.Backends)
	return nil
}

// File is the memfd to pass on to the model's process. It stays the Region's.
func (r *Region) File() *os.File { return r.file }

// PoolBytes is the size of the slot pool.
func (r *Region) PoolBytes() int64 { return int64(r.plan.slots * SlotBytes) }

// Size is the size of the whole shared memory.
func (r *Region) Size() int64 { return int64(len(r.mem)) }

// Life is the pipe to pass on beside File: it ends with this process. It stays the Region's.
func (r *Region) Life() *os.File { return r.life[0] }

// Close informs processes that are still there that nothing is recorded any more, and unmaps the memory. No lease may
// be in use.
func (r *Region) Close() error {
	if r.mem == nil {
		return nil
	}
	r.Stop()
	err := unix.Munmap(r.mem)
	r.mem, r.header, r.pool, r.Tap = nil, nil, nil, Tap{}
	for _, end := range r.life {
		if end != nil {
			err = errors.Join(err, end.Close())
		}
	}
	return errors.Join(err, r.file.Close())
}

// Stop informs the tap that nothing is recorded any more. A model that waits for room continues.
func (r *Region) Stop() { r.end(tapClosed) }

// Count makes the tap take in no more tensors, and count them: graphs are reported, and what is wanted of them is
// lost, by the cause [LossStopped]. A model that waits for room in the pool continues.
func (r *Region) Count() { r.end(tapCounts) }

func (r *Region) end(how uint32) {
	atomic.StoreUint32(&r.header.Closed, how)
	atomic.AddUint32(&r.header.Room, 1)
	futex(&r.header.Room, futexWake, 1<<30, nil)
}

// Pool is how many bytes the pool of tensors has, and how many of them tensors hold that were not written yet.
func (r *Region) Pool() (size, used uint64) {
	returned := atomic.LoadUint64(&r.header.Returned) // first: what is returned was taken before
	return r.plan.slots * SlotBytes, (atomic.LoadUint64(&r.header.Taken) - returned) * SlotBytes
}

// Moved is a number that grows with what passes through the shared memory, and whether a thread of the model waits
// for room in it.
func (r *Region) Moved() (moved uint64, modelWaits bool) {
	h := r.header
	moved = atomic.LoadUint64(&h.QueueHead) + atomic.LoadUint64(&h.QueueTail) + atomic.LoadUint64(&h.Returned)
	return moved, atomic.LoadUint32(&h.Waiting) > 0
}
