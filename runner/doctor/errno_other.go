//go:build !unix

package doctor

import "errors"

// errNotSupported is never met on a machine without /proc.
var errNotSupported = errors.New("not supported")
