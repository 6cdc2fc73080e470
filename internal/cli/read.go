package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"
)

// MaxConfig bounds the size of a configuration file in bytes.
const MaxConfig = 1 << 20

// Errors of reading a file of a user.
var (
	ErrTooLarge = errors.New("too large") // more bytes than such a file has
	ErrTooDeep  = errors.New("nested too deeply")
)

// ReadFile reads a file that a user names as a whole; it may be a device without an end, or a disk image. One of more
// than limit bytes is ErrTooLarge; no more than limit bytes are kept of it.
func ReadFile(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > limit {
		return nil, tooLarge(limit)
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, tooLarge(limit)
	}
	return data, err
}

// Bare leaves the operation and the path out of a file error, for a message that names the file already.
func Bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// InvalidUTF8 is the offset of the first byte that is not a part of a UTF-8 character, or -1.
func InvalidUTF8(s string) int {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

func tooLarge(limit int64) error {
	return fmt.Errorf("%w: such a file has at most %d bytes", ErrTooLarge, limit)
}

// Most brackets, list items in front of one value, and references of a YAML document. Parsers take memory with the
// square of the depth.
const (
	maxBrackets   = 10000
	maxItems      = 64
	maxReferences = 32
)

// CheckYAML is ErrTooDeep for a document that a parser may take much memory or time for: with thousands of brackets,
// with list items inside of each other on one line, or with dozens of references, each of which may stand for as many
// others. It parses nothing, so that nothing can hide from it: brackets in texts and comments count, too.
func CheckYAML(data []byte) error {
	if n := bytes.Count(data, []byte("[")) + bytes.Count(data, []byte("{")); n > maxBrackets {
		return fmt.Errorf("%w: %d opening brackets, at most %d are supported; give long texts as files", ErrTooDeep, n,
			maxBrackets)
	}
	references := 0
	for line := range bytes.Lines(data) {
		if n := leadingItems(line); n > maxItems {
			return fmt.Errorf("%w: %d list items begin on one line, at most %d are supported", ErrTooDeep, n, maxItems)
		}
		for i := 1; i < len(line); i++ {
			if line[i] == '*' && line[min(i+1, len(line)-1)] > ' ' &&
				bytes.IndexByte([]byte(" \t:,[{"), line[i-1]) >= 0 {
				references++
			}
		}
	}
	if references > maxReferences {
		return fmt.Errorf("%w: %d references (*name), at most %d are supported; write their values out", ErrTooDeep,
			references, maxReferences)
	}
	return nil
}

// leadingItems counts the indicators of lists and keys that a line begins with: "- - - a" has three.
func leadingItems(line []byte) (n int) {
	for i, c := range line {
		switch {
		case (c == '-' || c == '?') && i+1 < len(line) && (line[i+1] == ' ' || line[i+1] == '\t' || line[i+1] == '\n'):
			n++
		case c != ' ' && c != '\t':
			return n
		}
	}
	return n
}
