package rundir

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile makes a file with this mode that appears under its name when it is complete and on the disk, in the place
// of one that is there. What write writes is buffered. After an error the folder is as it was; that of a full disk has
// a remedy.
func WriteFile(path string, mode fs.FileMode, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*"+partSuffix) // of mode 0600
	if err == nil {
		err = finish(file, path, func(file *os.File) error {
			buffered := bufio.NewWriterSize(diskFile{file}, 256<<10)
			if err := write(buffered); err != nil {
				return err
			}
			if mode != 0o600 {
				return errors.Join(buffered.Flush(), file.Chmod(mode))
			}
			return buffered.Flush()
		})
	}
	return ExplainFull(path, err)
}

// ReplaceFile is WriteFile of a file with mode 0600 that only one process writes at a time. Its temporary name is
// always the same, so that the next call removes what a killed process has left.
func ReplaceFile(path string, write func(*os.File) error) error {
	part := filepath.Join(filepath.Dir(path), partName(filepath.Base(path)))
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return finish(file, path, write)
}

// finish writes a file that has a temporary name, and gives it its own when it is on the disk.
func finish(file *os.File, path string, write func(*os.File) error) error {
	err := write(file)
	if err == nil {
		err = disk.sync(file)
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = disk.rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
		return err
	}
	return Sync(filepath.Dir(path))
}
