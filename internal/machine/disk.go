package machine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
	"unsafe"
)

const (
	firstRound = 1 << 20
	writeSize  = 4 << 20
	alignment  = 4096 // of memory and lengths for O_DIRECT on every disk that is in use
)

// Buffered measures writing through the page cache, in a file of its own in dir that is gone afterwards.
func Buffered(dir string, limit Limit) (Rate, error) { return disk(dir, limit, 0) }

// Direct measures writing past the page cache. The error is errors.ErrUnsupported where the file system or the
// system has no O_DIRECT.
func Direct(dir string, limit Limit) (Rate, error) {
	if oDirect == 0 {
		return Rate{}, fmt.Errorf("write past the page cache: %w on this system", errors.ErrUnsupported)
	}
	return disk(dir, limit, oDirect)
}

// disk writes rounds into a file in dir.
func disk(dir string, limit Limit, flag int) (Rate, error) {
	file, err := scratch(dir, flag)
	if err != nil {
		return Rate{}, err
	}
	defer file.Close()
	buf := random(min(writeSize, limit.Bytes))
	began := time.Now()
	return rounds(limit, func() time.Duration { return time.Since(began) }, func(n int64) (time.Duration, error) {
		return round(file, buf, n)
	})
}

// scratch makes a file that is gone when it is closed, also when the process is killed.
func scratch(dir string, flag int) (*os.File, error) {
	name := filepath.Join(dir, fmt.Sprintf(".llamatap-speed-%d-%x", os.Getpid(), rand.Uint64()))
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|flag, 0o600)
	if err != nil {
		os.Remove(name) // some file systems make it before they refuse the flag
		if flag != 0 && refusesDirect(err) {
			return nil, fmt.Errorf("write past the page cache: %w by the file system of %s", errors.ErrUnsupported, dir)
		}
		return nil, err
	}
	if err := os.Remove(name); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// rounds lets write write ever more until a limit, and returns the last round.
func rounds(limit Limit, elapsed func() time.Duration, write func(n int64) (time.Duration, error)) (Rate, error) {
	if limit.Bytes < firstRound {
		return Rate{}, fmt.Errorf("measure the disk: %d bytes are too few, it takes %d", limit.Bytes, firstRound)
	}
	var last Rate
	for n := int64(firstRound); n <= limit.Bytes; n *= 2 {
		took, err := write(n)
		if err != nil {
			return Rate{}, fmt.Errorf("measure the disk: %w", err)
		}
		last = Rate{n, took}
		if elapsed()+2*took > limit.Time {
			break
		}
	}
	return last, nil
}

// round writes n bytes into the empty file and onto the disk.
func round(file *os.File, buf []byte, n int64) (time.Duration, error) {
	if err := file.Truncate(0); err != nil {
		return 0, err
	}
	began := time.Now()
	for at := int64(0); at < n; {
		wrote, err := file.WriteAt(buf[:min(int64(len(buf)), n-at)], at)
		if err != nil {
			return 0, err
		}
		at += int64(wrote)
	}
	if err := datasync(file); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

// random returns n pseudo-random bytes whose address O_DIRECT takes.
func random(n int64) []byte {
	buf := make([]byte, n+alignment)
	skip := -uintptr(unsafe.Pointer(&buf[0])) & (alignment - 1)
	buf = buf[skip : int64(skip)+n : int64(skip)+n]
	rand.NewChaCha8([32]byte{}).Read(buf)
	return buf
}
