// Package codec turns tensor elements into stored bytes and back: conversion of the element type, and compression.
//
// An [Encoder] or [Decoder] belongs to one goroutine and allocates nothing per call once its buffers have grown. Every
// function appends to the slice that it is given and returns it.
package codec

import (
	"errors"
	"fmt"
	"slices"
)

// ID names a compression. The numbers are stored in index files; never renumber them.
type ID uint8

// The compressions.
const (
	None ID = iota // element bytes as they are
	LZ4            // one LZ4 frame, level 1, content size stored
	Zstd           // one Zstandard frame, level 3, content size stored, no checksum
	Q              // F32 rows as whole multiples of a step, within a Bound
	QFSE           // the same with an entropy stage
	// ZstdShuffle is a Zstandard frame of the elements' first bytes, one of their second bytes, and so on.
	ZstdShuffle
)

var idNames = [...]string{"none", "lz4", "zstd", "q", "q-fse", "zstd-shuffle"}

// oldNames are names that codecs had in files and flags once.
var oldNames = map[string]ID{"q-huff": QFSE}

// ErrUnknown is returned for a codec or element type that this version does not know.
var ErrUnknown = errors.New("unknown codec or element type")

// ErrCorrupt is returned for bytes that do not decode to what they claim to be.
var ErrCorrupt = errors.New("corrupt compressed data")

// String returns the codec's name as flags and files spell it.
func (id ID) String() string {
	if int(id) < len(idNames) {
		return idNames[id]
	}
	return fmt.Sprintf("codec(%d)", uint8(id))
}

// Bounded reports whether the codec makes an error, which a Bound bounds.
func (id ID) Bounded() bool { return id == Q || id == QFSE }

// Known reports whether this version can decode the codec.
func (id ID) Known() bool { return int(id) < len(idNames) }

// Parse is the inverse of String. Names that codecs had once are taken as well.
func Parse(s string) (ID, error) {
	if id, ok := oldNames[s]; ok {
		return id, nil
	}
	if i := slices.Index(idNames[:], s); i >= 0 {
		return ID(i), nil
	}
	return None, fmt.Errorf("codec %q: %w; use one of %v", s, ErrUnknown, idNames)
}

// MarshalText writes the codec's name.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the codec's name.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}
