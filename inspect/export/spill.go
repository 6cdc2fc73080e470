package export

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/llamatap/llamatap/store/stream"
)

// spill is a file of rows that wait for their shard. What fills its buffer goes past the page cache: filling new pages
// of it would take more of the model's time than everything else that is done with a row.
type spill struct {
	path    string
	at      int64 // of what is in the buffer
	buffer  []byte
	limit   int // of the buffer, a multiple of stream.BlockAlign
	waiting *atomic.Int64
}

// row adds a row of a piece behind its head. scratch is used for what does not fit into the buffer, and returned.
func (s *spill) row(head []byte, p *piece, data []byte, i int64, scratch []byte) ([]byte, error) {
	if s.buffer == nil {
		s.buffer = stream.AlignedBuffer(s.limit)
	}
	size := len(head) + int(p.rowBytes())
	s.waiting.Add(int64(size))
	if len(s.buffer)+size <= cap(s.buffer) {
		s.buffer = p.appendRow(append(s.buffer, head...), data, i)
		return scratch, nil
	}
	scratch = p.appendRow(append(scratch[:0], head...), data, i)
	for rest := scratch; ; {
		n := min(len(rest), cap(s.buffer)-len(s.buffer))
		s.buffer, rest = append(s.buffer, rest[:n]...), rest[n:]
		if len(rest) == 0 {
			return scratch, nil
		}
		if err := s.flush(oDirect); err != nil {
			return scratch, err
		}
	}
}

// flush writes the buffer, with a flag for its file: 0 where it may end within a block.
func (s *spill) flush(flag int) error {
	if len(s.buffer) == 0 {
		return nil
	}
	err := s.put(flag)
	if err != nil && flag != 0 && (errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported)) {
		err = s.put(0)
	}
	s.at += int64(len(s.buffer))
	s.waiting.Add(-int64(len(s.buffer)))
	s.buffer = s.buffer[:0]
	return err
}

func (s *spill) put(flag int) error {
	file, err := os.OpenFile(s.path, os.O_WRONLY|flag, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(s.buffer, s.at)
	return errors.Join(err, file.Close())
}
