package rundir

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// ManifestName is the file that makes a directory a result.
const ManifestName = "manifest.json"

// ManifestVersion is the version of the manifests that this package writes.
const ManifestVersion = 1

// Dir is a run directory that is being written. Its methods may be called from several goroutines.
type Dir struct {
	path  string
	mu    sync.Mutex
	files []File
}

// File is a recorded file as the manifest lists it.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Manifest is manifest.json: every recorded file of the run, and the hash that makes it what it was.
type Manifest struct {
	Version int       `json:"version"`
	RunID   string    `json:"run_id"`
	Sealed  time.Time `json:"sealed"`
	Files   []File    `json:"files"`
}

// Create makes <out>/<model_id>/run_YYYYMMDD_HHMMSS_xxxx, with permissions for its owner only: prompts are user data.
func Create(out, modelID string, now time.Time) (*Dir, error) {
	parent := filepath.Join(out, modelID)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	for range 100 {
		var random [2]byte
		rand.Read(random[:])
		path := filepath.Join(parent, "run_"+now.Format("20060102_150405")+"_"+hex.EncodeToString(random[:]))
		err := os.Mkdir(path, 0o700)
		if err == nil {
			return &Dir{path: path}, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("make run directory: %w", err)
		}
	}
	return nil, fmt.Errorf("make run directory: every name tried in %s is taken", parent)
}

// Path returns the directory's path.
func (d *Dir) Path() string { return d.path }

// ID returns the directory's name, the run's id.
func (d *Dir) ID() string { return filepath.Base(d.path) }

// Create opens a file of the run for writing; it is hashed while it is written and appears under its name by Close.
func (d *Dir) Create(name string) (io.WriteCloser, error) {
	file, err := os.OpenFile(filepath.Join(d.path, "."+name+".part"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	return &hashedFile{dir: d, name: name, file: file, sum: sha256.New()}, nil
}

// hashedFile is a file on its way to its name. A failed write keeps it from getting there.
type hashedFile struct {
	dir  *Dir
	name string
	file *os.File
	sum  hash.Hash
	size int64
	err  error
	done bool
}

func (f *hashedFile) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	f.sum.Write(p[:n])
	f.size += int64(n)
	if f.err == nil {
		f.err = err
	}
	return n, err
}

func (f *hashedFile) Close() error {
	if f.done {
		return f.err
	}
	f.done = true
	temporary := f.file.Name()
	if f.err == nil {
		f.err = f.file.Sync()
	}
	if err := f.file.Close(); f.err == nil {
		f.err = err
	}
	if f.err == nil {
		f.err = os.Rename(temporary, filepath.Join(f.dir.path, f.name))
	}
	if f.err == nil {
		f.err = syncDir(f.dir.path)
	}
	if f.err != nil {
		os.Remove(temporary)
		f.err = fmt.Errorf("write %s: %w", f.name, f.err)
		return f.err
	}
	f.dir.AddSum(f.name, f.size, [32]byte(f.sum.Sum(nil)))
	return nil
}

// AddSum records a file that was hashed elsewhere.
func (d *Dir) AddSum(name string, size int64, sha256 [32]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = slices.DeleteFunc(d.files, func(f File) bool { return f.Name == name })
	d.files = append(d.files, File{name, size, hex.EncodeToString(sha256[:])})
}

// WriteJSON writes v to a file of the run, indented.
func (d *Dir) WriteJSON(name string, v any) error {
	text, err := encode(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	file, err := d.Create(name)
	if err != nil {
		return err
	}
	if _, err := file.Write(text); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(v)
	return text.Bytes(), err
}

// Seal writes the manifest, last: from then on the directory is a result.
func (d *Dir) Seal() error {
	d.mu.Lock()
	files := slices.Clone(d.files)
	d.mu.Unlock()
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range files {
		if err := syncFile(filepath.Join(d.path, f.Name)); err != nil {
			return fmt.Errorf("seal %s: %w", d.path, err)
		}
	}
	manifest := Manifest{Version: ManifestVersion, RunID: d.ID(), Sealed: time.Now().UTC(), Files: files}
	if err := d.WriteJSON(ManifestName, manifest); err != nil {
		return fmt.Errorf("seal %s: %w", d.path, err)
	}
	return syncDir(filepath.Dir(d.path))
}

func syncFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// syncDir makes renames in a folder last. A file system that cannot do that for folders says EINVAL, and needs it not.
func syncDir(path string) error {
	err := syncFile(path)
	if err != nil && strings.Contains(err.Error(), "invalid argument") {
		return nil
	}
	return err
}

// ModelID makes a path-safe model id from a model's name and file type: letters, digits, dots, dashes and underscores, no leading
// dot, at most 128 bytes.
func ModelID(name, fileType string) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '_'
	}, strings.Trim(name+"-"+fileType, "-"))
	id = strings.TrimLeft(id, ".")
	if len(id) > 128 {
		id = id[:128]
	}
	if id == "" {
		return "model"
	}
	return id
}
