//go:build !linux

package stream

import "os"

// createDirect makes a file that must not exist.
func createDirect(path string) (File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}
