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
	dir := filepath.Join(entry, path.Base(s.prefix))
	part := filepath.Join(entry, "part")
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
		err = s.fetch(ctx, c, entry, dir, part)
	}
	if err != nil {
		os.Remove(entry) // if it is empty
		return "", fmt.Errorf("fetch %s: %w", s.url, err)
	}
	return dir, nil
}

func (s *Store) fetch(ctx context.Context, c Cache, entry, dir, part string) error {
	var text bytes.Buffer
	err := s.insist(ctx, func() error {
		text.Reset()
		_, _, err := s.sumOf(ctx, path.Join(s.prefix, rundir.ManifestName), &text, rundir.MaxDocument)
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
		return os.Chtimes(entry, now, now)
	}
	if err := os.MkdirAll(part, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(part, rundir.ManifestName), text.Bytes(), 0o600); err != nil {
		return err
	}
	if err := s.fetchFiles(ctx, c, part, ""); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Rename(part, dir); err != nil {
		return err
	}
	return os.Chtimes(entry, now, now)
}

// fetchFiles gets what the manifest of a run, or of the segment in it, lists.
func (s *Store) fetchFiles(ctx context.Context, c Cache, part, segment string) error {
	m, err := rundir.ReadManifest(filepath.Join(part, segment))
	if err != nil {
		return err
	}
	for _, f := range m.Files {
		f.Name = path.Join(segment, f.Name)
		if err := s.get(ctx, c, part, f); err != nil {
			return err
		}
		if below, ok := strings.CutSuffix(f.Name, "/"+rundir.ManifestName); ok && segment == "" {
			if err := s.fetchFiles(ctx, c, part, below); err != nil {
				return err
			}
		}
	}
	return nil
}

// get gets one file; it has its name when its checksum is right.
func (s *Store) get(ctx context.Context, c Cache, part string, f rundir.File) error {
	local := filepath.Join(part, filepath.FromSlash(f.Name))
	if sum, err := sumFile(local); err == nil && sum == f.SHA256 {
		return nil // of a copy that was cut off
	}
	if err := c.room(filepath.Dir(part), f.Size); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(local), 0o700); err != nil {
		return err
	}
	return s.insist(ctx, func() error {
		file, err := os.OpenFile(local+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return permanent{err}
		}
		size, sum, err := s.sumOf(ctx, path.Join(s.prefix, f.Name), file, f.Size)
		if closing := file.Close(); err == nil && closing != nil {
			return permanent{closing}
		}
		if errors.As(err, new(*os.PathError)) || missing(err) {
			return permanent{fmt.Errorf("%s: %w", f.Name, err)}
		}
		if err == nil && (size != f.Size || sum != f.SHA256) {
			return permanent{fmt.Errorf("%s: %w in the store: push the run again from where it was recorded", f.Name,
				rundir.ErrChanged)}
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

// room removes copies of other runs until n bytes more fit.
func (c Cache) room(mine string, n int64) error {
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
		return fmt.Errorf("the cache %s would take more than %d bytes: copy the run to a directory with another program",
			c.Dir, c.Bytes)
	}
	return nil
}
