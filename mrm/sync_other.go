//go:build !unix

package mrm

// syncFolder does nothing here: folders are not synced.
func syncFolder(string) error { return nil }
