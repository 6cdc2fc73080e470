package export

import "os"

// Bounds of what is held while arrays are filled.
const (
	maxOpenFiles = 128
	bufferBytes  = 64 << 20 // of all arrays together
	minBuffer    = 4 << 10  // of one
	maxBuffer    = 1 << 20
)

// files are those that are being filled, of which a few are open.
type files struct {
	draft draft
	open  map[string]*os.File
	order []string // opened longest ago first
}

// file returns a file of the draft, opened for writing anywhere.
func (f *files) file(name string) (*os.File, error) {
	if file := f.open[name]; file != nil {
		return file, nil
	}
	if len(f.order) == maxOpenFiles {
		oldest := f.order[0]
		f.order = f.order[1:]
		if err := f.open[oldest].Close(); err != nil {
			return nil, err
		}
		delete(f.open, oldest)
	}
	file, err := os.OpenFile(f.draft.Path(name), os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	f.open[name] = file
	f.order = append(f.order, name)
	return file, nil
}

// close closes all.
func (f *files) close() error {
	var first error
	for _, file := range f.open {
		if err := file.Close(); first == nil {
			first = err
		}
	}
	f.open, f.order = nil, nil
	return first
}

// place is a part of a file that is filled from its beginning to its end.
type place struct {
	files  *files
	name   string
	at     int64 // of what is in the buffer
	buffer []byte
	limit  int
}

func (p *place) write(data []byte) error {
	if len(p.buffer)+len(data) > p.limit {
		if err := p.flush(); err != nil {
			return err
		}
		if len(data) >= p.limit {
			return p.put(data)
		}
	}
	p.buffer = append(p.buffer, data...)
	return nil
}

func (p *place) put(data []byte) error {
	file, err := p.files.file(p.name)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, p.at)
	p.at += int64(len(data))
	return err
}

func (p *place) flush() error {
	if len(p.buffer) == 0 {
		return nil
	}
	err := p.put(p.buffer)
	p.buffer = p.buffer[:0]
	return err
}
