package gguf

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
)

// The parts of a file that its fingerprint is made of: its beginning, where metadata and the list of tensors are,
// and windows spread over the rest.
const (
	fingerprintHead    = 8 << 20
	fingerprintWindows = 64
	fingerprintWindow  = 64 << 10
)

// Fingerprint identifies the bytes of a file of any size in a few milliseconds: the SHA-256 of its size, its first
// 8 MiB and 64 windows of 64 KiB at even distances over all of it. Files that differ in a window, which a fine-tune
// or another quantisation does, have different ones; a single value changed by hand may go unseen. It is
// hexadecimal.
func Fingerprint(r io.ReaderAt, size int64) (string, error) {
	hash := sha256.New()
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(size))
	hash.Write(n[:])
	add := func(from, to int64) error {
		_, err := io.Copy(hash, io.NewSectionReader(r, from, min(to, size)-from))
		return err
	}
	if err := add(0, fingerprintHead); err != nil {
		return "", fmt.Errorf("read for a fingerprint: %w", err)
	}
	for i := int64(0); i < fingerprintWindows && size > fingerprintHead; i++ {
		at := (size - fingerprintWindow) / (fingerprintWindows - 1) * i
		if i == fingerprintWindows-1 {
			at = size - fingerprintWindow
		}
		if err := add(at, at+fingerprintWindow); err != nil {
			return "", fmt.Errorf("read for a fingerprint: %w", err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
