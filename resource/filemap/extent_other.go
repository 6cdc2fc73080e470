//go:build !linux

package filemap

import "errors"

type extent struct{ physical, logical, length uint64 }

func extentsOf(string) ([]extent, error) { return nil, errors.ErrUnsupported }
