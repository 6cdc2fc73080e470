package rundir

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// manifestVersion is the version of the manifests that this package writes. Version 1 has no checksum of its own.
const manifestVersion = 2

// The errors of writing a run.
var (
	ErrName   = errors.New("not a name for a file of a run") // leads out of the directory, or has a meaning of its own
	ErrOpen   = errors.New("a file of the run is still being written")
	ErrSealed = errors.New("run directory is sealed")
)

// Dir is a run directory that is being written. Its methods may be called from several goroutines.
type Dir struct {
	id       string   // "" = the folder's name
	lock     *os.File // of the directory, while this process writes it
	contents contents
}

// Written is how many bytes the files of Create and CreateLive hold, finished or not. Any goroutine may call it.
func (d *Dir) Written() int64 { return d.contents.written.Load() }

// Hold makes the writers of all files wait until resume is called, but for that of the tokens: what is free on the disk
// is left to it and to the stream.
func (d *Dir) Hold() (resume func()) {
	d.contents.hold.Lock()
	return d.contents.hold.Unlock
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
	// SHA256 is that of the manifest's own bytes, with 64 zeros in place of itself.
	SHA256 string `json:"sha256,omitempty"`
}

// noSum stands in a manifest while its checksum is computed.
var noSum = strings.Repeat("0", 2*sha256.Size)

// Encode returns the text of the manifest, with its checksum.
func (m Manifest) Encode() ([]byte, error) {
	m.Version, m.SHA256 = manifestVersion, noSum
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
			d := &Dir{contents: contents{path: path}}
			d.lock, err = Lock(path)
			return d, err
		}
		// A run that recorded nothing and removes the model's folder with its own may come between the two calls.
		if !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("make run directory: %w", err)
		}
	}
	return nil, fmt.Errorf("make run directory: no name tried in %s could be had", parent)
}

// Path returns the directory's path.
func (d *Dir) Path() string { return d.contents.path }

// ID returns the run's id, which is the directory's name; a segment's has the run's before it.
func (d *Dir) ID() string {
	if d.id != "" {
		return d.id
	}
	return filepath.Base(d.Path())
}

// Create opens a file of the run for writing; it is hashed while it is written and appears under its name by Close.
// After a failed Write, Close removes it and returns that error.
func (d *Dir) Create(name string) (io.WriteCloser, error) {
	if name == ManifestName || !plainName(name) {
		return nil, fmt.Errorf("make %q: %w", name, ErrName)
	}
	return d.contents.create(name)
}

// CreateLive opens a file of the run that can be read under its name while it is written, such as one of lines. It
// is hashed while it is written. What was written stays and is recorded by Close, whatever fails; the error of the
// last Sync is Close's.
func (d *Dir) CreateLive(name string) (io.WriteCloser, error) {
	if name == ManifestName || !plainName(name) {
		return nil, fmt.Errorf("make %q: %w", name, ErrName)
	}
	file, err := d.contents.open(name, name)
	if err != nil {
		return nil, err
	}
	return &liveFile{hashing{in: &d.contents, name: name, file: file, sum: sha256.New()}}, nil
}

// AddSum records a file that was hashed elsewhere.
func (d *Dir) AddSum(name string, size int64, sha256 [32]byte) {
	d.contents.add(File{name, size, hex.EncodeToString(sha256[:])})
}

// AddFound records every file that is in the directory and not recorded yet, with the size and hash that it has
// now. What is made later, sockets, checkpoints, and what begins with a dot are left out; segments are added with
// AddSegment.
func (d *Dir) AddFound() error {
	entries, err := os.ReadDir(d.Path())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), CheckpointSuffix) ||
			madeLater[e.Name()] || e.Name() == ManifestName || d.contents.has(e.Name()) {
			continue
		}
		size, sum, err := hashFile(filepath.Join(d.Path(), e.Name()), anySize, func(int64) {})
		if err != nil {
			return fmt.Errorf("hash %s: %w", e.Name(), err)
		}
		d.contents.add(File{e.Name(), size, sum})
	}
	return nil
}

// Size is the size of all files that are recorded so far, the manifest included once the directory is sealed.
func (d *Dir) Size() (n int64) {
	for _, f := range d.contents.list() {
		n += f.Size
	}
	return n
}

// Recorded lists the files of a directory that are recorded so far, with what they held when they were closed. Those
// that were moved are among them.
func Recorded(d *Dir) []File { return d.contents.list() }

// Rename gives a file of the run that was closed another name, which no other file may have.
func (d *Dir) Rename(from, to string) error {
	if to == ManifestName || !plainName(to) {
		return fmt.Errorf("rename %s to %q: %w", from, to, ErrName)
	}
	return d.contents.rename(from, to)
}

// Release gives up a directory without sealing it.
func (d *Dir) Release() { d.lock.Close() }

// plainName reports whether name is one of a visible file in the directory itself.
func plainName(name string) bool {
	return name != "" && name[0] != '.' && filepath.Base(name) == name && filepath.IsLocal(name)
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
	files, err := d.contents.settle()
	if err == nil {
		err = Sync(filepath.Dir(d.Path())) // before the manifest makes the directory a result
	}
	var file io.WriteCloser
	if err == nil {
		file, err = d.contents.create(ManifestName)
	}
	if err == nil {
		err = writeJSON(file, Manifest{RunID: d.ID(), Sealed: time.Now().UTC(), Files: files})
	}
	if err != nil {
		return fmt.Errorf("seal %s: %w", d.Path(), err)
	}
	d.contents.seal()
	d.Release()
	return nil
}

// Sync brings what a file holds, or the names in a folder, to the disk. A file system that cannot do that for folders
// says EINVAL, and needs it not.
func Sync(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	if err = disk.sync(file); errors.Is(err, syscall.EINVAL) {
		err = nil
	}
	return errors.Join(err, file.Close())
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
