package stream

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Mend completes the stream at path after a Close that failed, on a full disk for example. It truncates both files
// after the last commit that they hold in full, adds losses and an end record, and syncs. It calls losses with the
// totals that remain, and records what losses returns. Without a commit only the file headers remain. A stream that
// has its end record is only read. The index may be longer than its file by what the writer holds in its buffer.
func (w *Writer) Mend(path string, losses func(kept Totals) []Loss) (stream, index Sum, err error) {
	data, err := os.ReadFile(path + IndexSuffix)
	if err != nil {
		return stream, index, fmt.Errorf("mend stream: %w", err)
	}
	written := min(int(w.files.index.size), len(data))
	if int64(written) == w.files.index.size {
		data = append(data[:written], w.files.index.buf...)
	}
	if err = mend(path, data, written, losses); err != nil {
		return stream, index, fmt.Errorf("mend stream: %w", err)
	}
	if stream, err = sumFile(path); err == nil {
		index, err = sumFile(path + IndexSuffix)
	}
	return stream, index, err
}

// mend completes a stream. The index file holds the first written bytes of data.
func mend(path string, data []byte, written int, losses func(kept Totals) []Loss) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	in := bytes.NewReader(data)
	p, _, err := findPrefix(in, in.Size(), func(x *index, _ record) bool { return x.totals.StreamBytes <= info.Size() })
	if err != nil {
		return err
	}
	missing, end := losses(p.totals), int(p.IndexBytes)
	if p.ended && end <= written {
		return nil
	}
	written = min(written, end)
	// The index first, so that it never describes bytes that the stream lacks. What it gains comes after both are
	// truncated, when the disk has room.
	if err := rewrite(path+IndexSuffix, int64(written), nil); err != nil {
		return err
	}
	if err := rewrite(path, p.StreamBytes, nil); err != nil {
		return err
	}
	more := slices.Clone(data[written:end])
	if !p.ended {
		if more, err = p.appendEnd(more, in, missing); err != nil {
			return err
		}
	}
	return rewrite(path+IndexSuffix, int64(written), more)
}

// rewrite cuts a file to a size, and appends to it.
func rewrite(path string, size int64, more []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err = f.Truncate(size); err == nil {
		_, err = f.WriteAt(more, size)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("mend %s: %w", path, err)
	}
	return nil
}

func sumFile(path string) (s Sum, err error) {
	f, _, err := openFile(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	hash := sha256.New()
	if s.Size, err = io.Copy(hash, f); err == nil {
		hash.Sum(s.SHA256[:0])
	}
	return s, err
}
