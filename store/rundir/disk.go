package rundir

import "os"

// disk is how this package changes what is on one. Tests let every call go wrong.
var disk = struct {
	write  func(f *os.File, p []byte) (int, error)
	sync   func(f *os.File) error
	rename func(from, to string) error
}{(*os.File).Write, (*os.File).Sync, os.Rename}

// diskFile is an io.Writer to a file.
type diskFile struct{ *os.File }

func (f diskFile) Write(p []byte) (int, error) { return disk.write(f.File, p) }
