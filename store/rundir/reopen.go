package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrInUse occurs when another process writes a run.
var ErrInUse = errors.New("is being recorded by another process")

// Reopen makes an ended run one that is being written: it is a result no longer, until it is sealed again. What is made at the end
// is removed, the manifest first; the recorded stream stays.
func Reopen(path string) (*Dir, error) {
	path = filepath.Clean(path)
	d := &Dir{path: path}
	if err := d.take(); err != nil {
		return nil, fmt.Errorf("reopen %s: %w", path, err)
	}
	names := []string{ManifestName, MetadataName, TokensName}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("reopen %s: %w", path, err)
	}
	for _, e := range entries {
		if n := e.Name(); strings.HasPrefix(n, ".") && strings.HasSuffix(n, ".part") || n == "control.sock" {
			names = append(names, n)
		}
	}
	for _, name := range names {
		if err := os.Remove(filepath.Join(path, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("reopen %s: %w", path, err)
		}
		if err := syncDir(path); err != nil {
			return nil, fmt.Errorf("reopen %s: %w", path, err)
		}
	}
	return d, nil
}
