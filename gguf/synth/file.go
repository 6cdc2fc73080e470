package synth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/store/rundir"
)

// WriteFile makes the model as the file path: under a temporary name in the same folder, synced, then renamed.
// After an error or a cancelled context the folder is as it was.
func (m *Model) WriteFile(ctx context.Context, path string, progress func(done, size int64)) error {
	if err := replaceable(path); err != nil {
		return err
	}
	err := rundir.WriteFile(path, 0o644, func(out io.Writer) error { return m.Write(ctx, out, progress) })
	if err != nil {
		return m.writeError(path, err)
	}
	return nil
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
		return fmt.Errorf("%s is not an ordinary file: a model cannot be written there", path)
	}
	return nil
}

func (m *Model) writeError(path string, err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("write %s: %w: the model needs %d MB there", path, syscall.ENOSPC, m.dataBytes()/1e6+1)
	}
	return fmt.Errorf("write %s: %w", path, cli.Bare(err))
}
