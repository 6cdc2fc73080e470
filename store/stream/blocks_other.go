//go:build !linux

package stream

import "os"

// createBlocks makes a file that must not exist; here it is an ordinary one.
func createBlocks(path string) (File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}
