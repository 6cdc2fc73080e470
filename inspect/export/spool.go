package export

import (
	"bufio"
	"cmp"
	"errors"
	"os"
	"slices"
)

// spoolName is the file of a draft that holds the packets of one execution.
const spoolName = "spool"

// turned is a packet of one token and tensor.
type turned struct {
	token int64
	order int // of the tensor
	name  string
	at    int64 // in the spool
	size  int
}

// A turner writes packets token by token that come tensor by tensor. Those of one execution wait in a file, which
// the page cache holds.
type turner struct {
	write func(name string, packet []byte) error
	exec  uint64
	wait  []turned
	spool spool
	data  []byte
}

// execution begins an execution: what came of the one before is written.
func (t *turner) execution(exec uint64) error {
	if exec == t.exec {
		return nil
	}
	t.exec = exec
	return t.flush()
}

// add takes a packet, which the caller may overwrite after.
func (t *turner) add(p turned, packet []byte) (err error) {
	p.size = len(packet)
	p.at, err = t.spool.append(packet)
	t.wait = append(t.wait, p)
	return err
}

// flush writes what waits.
func (t *turner) flush() error {
	slices.SortStableFunc(t.wait, func(a, b turned) int {
		return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.order, b.order))
	})
	for _, p := range t.wait {
		t.data = slices.Grow(t.data[:0], p.size)[:p.size]
		if err := t.spool.read(t.data, p.at); err != nil {
			return err
		}
		if err := t.write(p.name, t.data); err != nil {
			return err
		}
	}
	t.wait = t.wait[:0]
	return t.spool.reset()
}

// spool is a file that is made when something is appended, and emptied often.
type spool struct {
	path string
	file *os.File
	out  *bufio.Writer
	size int64
}

// append returns where data lies.
func (s *spool) append(data []byte) (at int64, err error) {
	if s.file == nil {
		if s.file, err = os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return 0, err
		}
		s.out = bufio.NewWriterSize(s.file, 1<<20)
	}
	at = s.size
	s.size += int64(len(data))
	_, err = s.out.Write(data)
	return at, err
}

// read fills data with what lies at a place.
func (s *spool) read(data []byte, at int64) error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	_, err := s.file.ReadAt(data, at)
	return err
}

// reset empties the file.
func (s *spool) reset() error {
	if s.size == 0 {
		return nil
	}
	s.size = 0
	_, err := s.file.Seek(0, 0)
	return errors.Join(s.file.Truncate(0), err)
}

// discard closes and removes the file.
func (s *spool) discard() {
	if s.file != nil {
		s.file.Close()
		os.Remove(s.path)
	}
}
