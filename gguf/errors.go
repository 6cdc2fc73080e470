package gguf

import "errors"

// Errors of Open and Read, wrapped with what and where; test with errors.Is.
var (
	// ErrNotGGUF: the file does not begin with the four letters GGUF.
	ErrNotGGUF = errors.New("not a GGUF file")
	// ErrVersion: a GGUF file of a version, or of a byte order, that cannot be read.
	ErrVersion = errors.New("unsupported GGUF version")
	// ErrTruncated: the file ends before what its header promises.
	ErrTruncated = errors.New("GGUF file is cut short")
	// ErrMalformed: the header contradicts itself or the format.
	ErrMalformed = errors.New("malformed GGUF file")
)
