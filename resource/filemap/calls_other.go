//go:build !linux

package filemap

import "strconv"

func readsFiles(uint32) bool { return false }

func callName(call uint32) string { return strconv.Itoa(int(call)) }
