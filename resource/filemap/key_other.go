//go:build !linux

package filemap

import "errors"

func keyOf(string) (FileKey, error) { return FileKey{}, errors.ErrUnsupported }
