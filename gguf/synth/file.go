package synth

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/llamatap/llamatap/store/rundir"
)

// WriteFile makes the model as the file path: under a temporary name in the same folder, synced, then renamed.
// After an error or a cancelled context the folder is as it was.
func (m *Model) WriteFile(ctx context.Context, path string, progress func(done, size int64)) (err error) {
	if err := replaceable(path); err != nil {
		return err
	}
	folder := filepath.Dir(path)
	out, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*.part")
	if err != nil {
		return fmt.Errorf("create a file beside %s: %w", path, reason(err))
	}
	defer func() {
		if err != nil {
			out.Close()
			os.Remove(out.Name())
		}
	}()
	buffered := bufio.NewWriterSize(out, 1<<20)
	if err := m.Write(ctx, buffered, progress); err != nil {
		return m.writeError(path, err)
	}
	for _, step := range []func() error{
		buffered.Flush,
		func() error { return out.Chmod(0o644) },
		out.Sync,
		out.Close,
		func() error { return os.Rename(out.Name(), path) },
	} {
		if err := step(); err != nil {
			return m.writeError(path, err)
		}
	}
	return rundir.Sync(folder)
}

// replaceable refuses a path that stands for something other than an ordinary file.
func replaceable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder: name a file in it, such as %s", path, filepath.Join(path, "model.gguf"))
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no ordinary file: a model cannot be written there", path)
	}
	return nil
}

func (m *Model) writeError(path string, err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("write %s: %w: the model needs %d MB there", path, reason(err), m.dataBytes()/1e6+1)
	}
	return fmt.Errorf("write %s: %w", path, reason(err))
}

// reason is what went wrong without the temporary file's name.
func reason(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
