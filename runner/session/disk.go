//go:build linux

package session

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/rundir"
	"golang.org/x/sys/unix"
)

// The causes for which recording stops by a bound.
const (
	causeFull    = "disk_full"
	causeMaxDisk = "max_disk"
	causeMinFree = "min_free"
)

// limitError says at which bound of the disk recording stops.
type limitError struct {
	cause string
	tap   *config.Tap
	full  string // folder on whose disk too little is left
}

func (e *limitError) Error() string {
	if e.cause == causeMinFree {
		return fmt.Sprintf("recording stopped: less than --tap-min-free (%v) would be left on the disk of %s",
			e.tap.MinFree, e.full)
	}
	text := fmt.Sprintf("recording stopped at --tap-max-disk %v", e.tap.MaxDisk)
	if e.tap.Store != "" && e.tap.MaxDisk.Action == config.DiskRotate {
		text += fmt.Sprintf(": what is there is not copied to %s yet: give a larger bound", e.tap.Store)
	}
	return text
}

// room keeps the run within --tap-max-disk and --tap-min-free. It is asked before anything is written and counts
// with the most that it may take; at the disk it looks only now and then, in the collector.
type room struct {
	tap  *config.Tap
	use  func() (all, waiting int64) // the most that the run takes without beside, and what of it is not in files yet
	give func(cause string) bool     // makes room, if it can
	// beside is how many bytes are written without take, or held to be: events, lines of collectors, tables.
	beside func() int64
	// spare, unless it is nil, gets how many bytes may be kept ahead of what is written.
	spare func(n int64)

	known  int64 // of beside
	left   int64 // bytes that may be written before the next look
	looked time.Time
	statfs func(path string, s *unix.Statfs_t) error
}

// How much is written and how long it takes until the next look, at most: others write to the disk as well.
const (
	lookBytes = 16 << 20
	lookEvery = 250 * time.Millisecond
)

// aheadShare is the share of what may still be written that is kept ahead of it at most: towards a bound that
// becomes nothing, and what was kept is used up.
const aheadShare = 16

// reserve asks for n bytes.
func (r *room) reserve(n int64) error {
	if r.left -= n; r.left >= 0 {
		return nil
	}
	return r.checkFree(n)
}

// tick looks at the disk when it is time, and when what was written beside may have used up what was left.
func (r *room) tick() error {
	beside := r.beside()
	r.left, r.known = r.left-(beside-r.known), beside
	if r.left >= 0 && time.Since(r.looked) < lookEvery {
		return nil
	}
	return r.checkFree(0)
}

// checkFree finds out what is left when n bytes more are written, and makes room as long as it is too little.
func (r *room) checkFree(n int64) error {
	for {
		r.looked = time.Now()
		left, cause, full := int64(math.MaxInt64), "", ""
		all, waiting := r.use()
		all += r.beside()
		if r.tap.MaxDisk.Bytes > 0 {
			left, cause = int64(r.tap.MaxDisk.Bytes)-all, causeMaxDisk
		}
		for _, folder := range []string{r.tap.Out, r.tap.Dataset.Dir} {
			if free, floor, ok := r.free(folder); ok && free-floor-waiting < left {
				left, cause, full = free-floor-waiting, causeMinFree, folder
			}
		}
		if r.spare != nil {
			r.spare(max(0, left/aheadShare))
		}
		if r.left = min(left-n, lookBytes); left >= n {
			return nil
		}
		if !r.give(cause) {
			return &limitError{cause, r.tap, full}
		}
	}
}

// free is what a folder's file system has left for us, and how much of it must stay; not ok where nothing must, or the
// file system does not say.
func (r *room) free(folder string) (free, floor int64, ok bool) {
	var fs unix.Statfs_t
	if folder == "" || r.statfs(folder, &fs) != nil {
		return 0, 0, false
	}
	unit := uint64(fs.Frsize)
	floor = int64(r.tap.MinFree.Of(fs.Blocks * unit))
	return int64(fs.Bavail * unit), floor, floor > 0
}

// check refuses to begin where there is less room than must stay.
func (r *room) check() error {
	free, floor, ok := r.free(r.tap.Out)
	if !ok || free >= floor+sealRoom {
		return nil
	}
	return fmt.Errorf("output folder %s: %s are free, and --tap-min-free leaves %s: free room there, or choose "+
		"another folder with --tap-out",
		r.tap.Out, present.Bytes(uint64(free)), present.Bytes(uint64(floor)))
}

// reserve is disk space kept free for sealing the run on a full disk: an unnamed file, which the kernel removes when
// this process ends.
type reserve struct {
	file *os.File
	size int64
}

// newReserve keeps n bytes in the folder. A file system that cannot promise room gives none, and that is not an error.
func newReserve(dir *rundir.Dir, n int64) (*reserve, error) {
	file, err := rundir.Scratch(dir.Path())
	if err != nil {
		return nil, err
	}
	r := &reserve{file: file}
	if err := r.grow(n); err != nil {
		r.release()
		return nil, err
	}
	return r, nil
}

// grow makes the reserve n bytes large, if it is smaller.
func (r *reserve) grow(n int64) error {
	if r == nil || r.file == nil || n <= r.size {
		return nil
	}
	err := unix.Fallocate(int(r.file.Fd()), 0, 0, n)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	if err == nil {
		r.size = n
	}
	return err
}

// held is the size of the reserve.
func (r *reserve) held() int64 {
	if r == nil || r.file == nil {
		return 0
	}
	return r.size
}

// free gives the room back, until grow takes some again.
func (r *reserve) free() {
	if r != nil && r.file != nil && r.file.Truncate(0) == nil {
		r.size = 0
	}
}

// release gives the room back for good.
func (r *reserve) release() {
	if r != nil && r.file != nil {
		r.file.Close()
		r.file = nil
	}
}
