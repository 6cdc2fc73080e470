//go:build !linux

package filemap

import "errors"

func keyOf(string) (fileKey, error) { return fileKey{}, errors.ErrUnsupported }
