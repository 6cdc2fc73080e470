//go:build !linux

package machine

import "os"

const oDirect = 0

func refusesDirect(error) bool { return false }

func datasync(file *os.File) error { return file.Sync() }
