package object

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llamatap/llamatap/store/rundir"
)

// Cache is a folder for copies of runs.
type Cache struct {
	Dir   string
	Bytes int64 // that all copies may take together; the ones that were used longest ago make room
}

// Fetch returns a directory with a copy of the sealed run, whose every file has the SHA-256 of its manifest. It is read
// only; a run that is in the cache costs one request.
func (s *Store) Fetch(ctx context.Context, c Cache) (string, error) {
	id := sha256.Sum256([]byte(s.endpoint + "\n" + s.url))
	entry := filepath.Join(c.Dir, hex.EncodeToString(id[:8]))
	dir, part := filepath.Join(entry, path.Base(s.prefix)), filepath.Join(entry, "part")
	err := os.MkdirAll(entry, 0o700)
	if err == nil {
		var lock *os.File
		for lock, err = rundir.Lock(entry); errors.Is(err, rundir.ErrInUse) && ctx.Err() == nil; {
			time.Sleep(100 * time.Millisecond) // another process fetches it
			lock, err = rundir.Lock(entry)
		}
		defer lock.Close()
	}
	if err == nil {
		err = (&fetch{s, c, entry, part}).run(ctx, dir)
	}
	if err != nil {
		os.Remove(entry) // if it is empty
		return "", fmt.Errorf("fetch %s: %w", s.url, err)
	}
	return dir, nil
}

// fetch copies a run into its entry of the cache: as part, until it is whole.
type fetch struct {
	*Store
	cache       Cache
	entry, part string
}

// run makes dir the copy of the run, unless it is.
func (f *fetch) run(ctx context.Context, dir string) error {
	var text bytes.Buffer
	err := f.insist(ctx, func() error {
		text.Reset()
		_, _, err := f.sumOf(ctx, path.Join(f.prefix, rundir.ManifestName), &text, rundir.MaxDocument)
		if missing(err) {
			return permanent{ErrNoRun}
		}
		return err
	})
	if err != nil {
		return err
	}
	now := time.Now()
	have, err := os.ReadFile(filepath.Join(dir, rundir.ManifestName))
	if err == nil && bytes.Equal(have, text.Bytes()) {
		return os.Chtimes(f.entry, now, now)
	}
	if err := os.MkdirAll(f.part, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(f.part, rundir.ManifestName), text.Bytes(), 0o600); err != nil {
		return err
	}
	if err := f.files(ctx, ""); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Rename(f.part, dir); err != nil {
		return err
	}
	return os.Chtimes(f.entry, now, now)
}

// files gets what the manifest of a run, or of the segment in it, lists.
func (f *fetch) files(ctx context.Context, segment string) error {
	m, err := rundir.ReadManifest(filepath.Join(f.part, segment))
	if err != nil {
		return err
	}
	for _, file := range m.Files {
		file.Name = path.Join(segment, file.Name)
		if err := f.get(ctx, file); err != nil {
			return err
		}
		if below, ok := strings.CutSuffix(file.Name, "/"+rundir.ManifestName); ok && segment == "" {
			if err := f.files(ctx, below); err != nil {
				return err
			}
		}
	}
	return nil
}

// get gets one file; it has its name when its checksum is right.
func (f *fetch) get(ctx context.Context, want rundir.File) error {
	local := filepath.Join(f.part, filepath.FromSlash(want.Name))
	if sum, err := sumFile(local); err == nil && sum == want.SHA256 {
		return nil // of a copy that was cut off
	}
	if err := f.cache.makeRoom(f.entry, want.Size); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(local), 0o700); err != nil {
		return err
	}
	return f.insist(ctx, func() error {
		file, err := os.OpenFile(local+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return permanent{err}
		}
		size, sum, err := f.sumOf(ctx, path.Join(f.prefix, want.Name), file, want.Size)
		if closing := file.Close(); err == nil && closing != nil {
			return permanent{closing}
		}
		if errors.As(err, new(*os.PathError)) || missing(err) {
			return permanent{fmt.Errorf("%s: %w", want.Name, err)}
		}
		if err == nil && (size != want.Size || sum != want.SHA256) {
			return permanent{fmt.Errorf("%s: %w in the store: push the run again from where it was recorded",
				want.Name, rundir.ErrChanged)}
		}
		if err != nil {
			return err
		}
		return os.Rename(local+".part", local)
	})
}

func sumFile(path string) (string, error) {
	file, err := rundir.OpenFile(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	return hex.EncodeToString(hash.Sum(nil)), err
}

// makeRoom removes copies of other runs until n bytes more fit.
func (c Cache) makeRoom(mine string, n int64) error {
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return err
	}
	type copied struct {
		path string
		size int64
		used time.Time
	}
	var others []copied
	for _, e := range entries {
		path := filepath.Join(c.Dir, e.Name())
		n += rundir.SizeOf(path)
		if info, err := e.Info(); err == nil && path != mine {
			others = append(others, copied{path, rundir.SizeOf(path), info.ModTime()})
		}
	}
	slices.SortFunc(others, func(a, b copied) int { return a.used.Compare(b.used) })
	for _, o := range others {
		if n <= c.Bytes {
			return nil
		}
		lock, err := rundir.Lock(o.path)
		if err != nil {
			continue // it is being fetched
		}
		err = os.RemoveAll(o.path)
		lock.Close()
		if err != nil {
			return err
		}
		n -= o.size
	}
	if n > c.Bytes {
		return fmt.Errorf("the cache %s would take more than %d bytes: copy the run to a directory with another "+
			"program",
			c.Dir, c.Bytes)
	}
	return nil
}
