//go:build !linux

package stream

import "os"

// createBlocks makes a file that must not exist; here it is an ordinary one.
func createBlocks(path string) (File, error) {
	return openBlocks(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
}

func openBlocks(path string, flags int) (File, error) {
	return os.OpenFile(path, flags, 0o600)
}
