//go:build unix

package server

import (
	"io/fs"
	"os"
	"syscall"
)

// ownFile reports whether this process's user owns a file.
func ownFile(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// withPrivateMode calls make while new files get mode 0600.
func withPrivateMode(make func() error) error {
	defer syscall.Umask(syscall.Umask(0o177))
	return make()
}
