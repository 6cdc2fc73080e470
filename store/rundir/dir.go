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
	"sync/atomic"
	"syscall"
	"time"
)

// ManifestVersion is the version of the manifests that this package writes. Version 1 has no checksum of its own.
const ManifestVersion = 2

// The errors of writing a run.
var (
	ErrName   = errors.New("not a name for a file of a run") // leads out of the directory, or has a meaning of its own
	ErrOpen   = errors.New("a file of the run is still being written")
	ErrSealed = errors.New("run directory is sealed")
)

// Dir is a run directory that is being written. Its methods may be called from several goroutines.
type Dir struct {
	path   string
	id     string // "" = the folder's name
	mu     sync.Mutex
	files  []File
	open   int  // files of Create that are not closed
	again  bool // it was there: a process that was killed may have left files
	sealed bool
	lock   *os.File // of the directory, while this process writes it

	written atomic.Int64
}

// Written is how many bytes were written to files of Create and CreateLive, finished or not. Any goroutine may call it.
func (d *Dir) Written() int64 { return d.written.Load() }

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
	// SHA256 is that of the manifest's own bytes, with 64 zeros in place of itself.
	SHA256 string `json:"sha256,omitempty"`
}

// noSum stands in a manifest while its checksum is computed.
var noSum = strings.Repeat("0", 2*sha256.Size)

// Encode returns the text of the manifest, with its checksum.
func (m Manifest) Encode() ([]byte, error) {
	m.Version, m.SHA256 = ManifestVersion, noSum
	text, err := encode(m)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	at := bytes.LastIndex(text, []byte(noSum)) // it is the last key
	hex.Encode(text[at:], sum[:])
	return text, nil
}

// checkSum reports whether the text of a manifest has the checksum that is written in it.
func (m *Manifest) checkSum(text []byte) bool {
	at := bytes.LastIndex(text, []byte(m.SHA256))
	if len(m.SHA256) != len(noSum) || at < 0 {
		return false
	}
	plain := bytes.Clone(text)
	copy(plain[at:], noSum)
	sum := sha256.Sum256(plain)
	return hex.EncodeToString(sum[:]) == m.SHA256
}

// Create makes <out>/<model_id>/run_YYYYMMDD_HHMMSS_xxxx, xxxx being random, with permissions for its owner only:
// prompts are user data. modelID is made path-safe.
func Create(out, modelID string, now time.Time) (*Dir, error) {
	parent := filepath.Join(out, pathSafe(modelID))
	for range 100 {
		if err := os.MkdirAll(parent, 0o700); err != nil {
			return nil, fmt.Errorf("make run directory: %w", err)
		}
		var random [2]byte
		rand.Read(random[:])
		path := filepath.Join(parent, "run_"+now.Format("20060102_150405")+"_"+hex.EncodeToString(random[:]))
		err := os.Mkdir(path, 0o700)
		if err == nil {
			d := &Dir{path: path}
			return d, d.take()
		}
		// A run that recorded nothing and removes the model's folder with its own may come between the two calls.
		if !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("make run directory: %w", err)
		}
	}
	return nil, fmt.Errorf("make run directory: no name tried in %s could be had", parent)
}

// Path returns the directory's path.
func (d *Dir) Path() string { return d.path }

// ID returns the run's id, which is the directory's name; a segment's has the run's before it.
func (d *Dir) ID() string {
	if d.id != "" {
		return d.id
	}
	return filepath.Base(d.path)
}

// Create opens a file of the run for writing; it is hashed while it is written and appears under its name by Close.
// After a failed Write, Close removes it and returns that error.
func (d *Dir) Create(name string) (io.WriteCloser, error) {
	if name == ManifestName || !plainName(name) {
		return nil, fmt.Errorf("make %q: %w", name, ErrName)
	}
	return d.create(name)
}

// plainName reports whether name is one of a visible file in the directory itself.
func plainName(name string) bool {
	return name != "" && name[0] != '.' && filepath.Base(name) == name && filepath.IsLocal(name)
}

func (d *Dir) create(name string) (io.WriteCloser, error) {
	file, err := d.begin(name, partName(name))
	if err != nil {
		return nil, err
	}
	return &hashedFile{dir: d, name: name, file: file, sum: sha256.New()}, nil
}

// begin opens a new file, which counts as open until closed is called. as is what it is called meanwhile.
func (d *Dir) begin(name, as string) (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sealed {
		return nil, fmt.Errorf("make %s: %w", name, ErrSealed)
	}
	if d.again && leftover(as) {
		if err := os.Remove(filepath.Join(d.path, as)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("make %s: %w", name, err)
		}
	}
	file, err := os.OpenFile(filepath.Join(d.path, as), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	d.open++
	return file, nil
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
	n, err := disk.write(f.file, p)
	f.sum.Write(p[:n])
	f.size += int64(n)
	f.dir.written.Add(int64(n))
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
	defer f.dir.closed()
	temporary := f.file.Name()
	if f.err == nil {
		f.err = disk.sync(f.file)
	}
	if err := f.file.Close(); f.err == nil {
		f.err = err
	}
	if f.err == nil {
		f.err = disk.rename(temporary, filepath.Join(f.dir.path, f.name))
	}
	if f.err == nil {
		if f.err = syncDir(f.dir.path); f.err != nil {
			os.Remove(filepath.Join(f.dir.path, f.name)) // a name that may be gone after a crash is none
		}
	}
	if f.err != nil {
		os.Remove(temporary)
		f.err = fmt.Errorf("write %s: %w", f.name, f.err)
		return f.err
	}
	f.dir.AddSum(f.name, f.size, [32]byte(f.sum.Sum(nil)))
	return nil
}

func (d *Dir) closed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
}

// AddSum records a file that was hashed elsewhere.
func (d *Dir) AddSum(name string, size int64, sha256 [32]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = slices.DeleteFunc(d.files, func(f File) bool { return f.Name == name })
	d.files = append(d.files, File{name, size, hex.EncodeToString(sha256[:])})
}

// WriteJSON writes v to a file of the run, indented. When it returns, the file is on the disk.
func (d *Dir) WriteJSON(name string, v any) error {
	file, err := d.Create(name)
	if err != nil {
		return err
	}
	return writeJSON(file, v)
}

func writeJSON(file io.WriteCloser, v any) error {
	var text []byte
	var err error
	if m, ok := v.(Manifest); ok {
		text, err = m.Encode()
	} else {
		text, err = encode(v)
	}
	if err == nil {
		_, err = file.Write(text)
	} else if f, ok := file.(*hashedFile); ok {
		f.err = err // keeps an empty file from its name
	}
	if closing := file.Close(); closing != nil { // it says what writing failed of, too
		return closing
	}
	return err
}

func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(v)
	return text.Bytes(), err
}

// Seal writes the manifest, last: from then on the directory is a result, and nothing can be added. A file that is
// still being written is ErrOpen; one that was recorded and does not have its size is ErrChanged.
func (d *Dir) Seal() error {
	if err := d.seal(); err != nil {
		return fmt.Errorf("seal %s: %w", d.path, err)
	}
	return nil
}

func (d *Dir) seal() error {
	d.mu.Lock()
	files, open, sealed := slices.Clone(d.files), d.open, d.sealed
	d.mu.Unlock()
	if sealed {
		return ErrSealed
	}
	if open > 0 {
		return ErrOpen
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range files {
		if err := d.settle(f); err != nil {
			return err
		}
	}
	if err := syncDir(filepath.Dir(d.path)); err != nil { // before there is a manifest: a result is one for good
		return err
	}
	file, err := d.create(ManifestName)
	if err != nil {
		return err
	}
	if err := writeJSON(file, Manifest{RunID: d.ID(), Sealed: time.Now().UTC(), Files: files}); err != nil {
		return err
	}
	d.mu.Lock()
	d.sealed = true
	d.lock.Close()
	d.mu.Unlock()
	return nil
}

// settle makes sure that a recorded file is on the disk as it was recorded.
func (d *Dir) settle(f File) error {
	path := filepath.Join(d.path, f.Name)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() != f.Size {
		return fmt.Errorf("%s: %w: %d bytes, %d were recorded", f.Name, ErrChanged, info.Size(), f.Size)
	}
	return syncFile(path)
}

func syncFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(disk.sync(file), file.Close())
}

// syncDir makes renames in a folder last. A file system that cannot do that for folders says EINVAL, and needs it not.
func syncDir(path string) error {
	err := syncFile(path)
	if errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

// ModelID makes a path-safe model id from a model's name and file type: letters, digits, dots, dashes and
// underscores, no leading dot, at most 128 bytes.
func ModelID(name, fileType string) string { return pathSafe(strings.Trim(name+"-"+fileType, "-")) }

func pathSafe(id string) string {
	id = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '_'
	}, id)
	id = strings.TrimLeft(id, ".")
	if len(id) > 128 {
		id = id[:128]
	}
	if id == "" {
		return "model"
	}
	return id
}
