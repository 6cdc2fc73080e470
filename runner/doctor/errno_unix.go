//go:build unix

package doctor

import "syscall"

// errNotSupported is what reading a file of a feature that is turned off gives.
var errNotSupported error = syscall.EOPNOTSUPP
