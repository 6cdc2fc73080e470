package rundir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ErrChanged is returned for files that are not what was recorded.
var ErrChanged = errors.New("not what was recorded")

// Report is what Verify found.
type Report struct {
	Sealed  bool     // a manifest is there
	Files   int      // recorded and as recorded
	Missing []string // recorded, not there
	Changed []string // other size or hash
	Extra   []string // there, not recorded
	RunID   string   // of the manifest
}

// madeLater are names in a run directory that no manifest lists.
var madeLater = map[string]bool{"derived": true, DerivedName: true, "report.html": true, SocketName: true,
	StateFolder: true}

// Verify compares a run directory with its manifest. What is made later (derived/, derived.json, report.html), the
// socket of a live run and the states of one that is not finished are left out. A directory without a
// manifest is not an error: Sealed is false then.
func Verify(path string) (Report, error) { return VerifyWith(path, nil) }

// VerifyWith is Verify that reports how many bytes of how many were hashed. progress may be nil.
func VerifyWith(path string, progress func(done, total int64)) (Report, error) {
	var report Report
	manifest, err := ReadManifest(path)
	if errors.Is(err, fs.ErrNotExist) {
		return report, nil
	}
	if err != nil {
		return report, err
	}
	return compare(path, manifest, progress)
}

// VerifyAside compares a run directory with the newest manifest that a repair has put aside. Where there is none,
// or it cannot be read, the report is empty.
func VerifyAside(path string) (Report, error) {
	newest := ""
	for n := 1; ; n++ {
		name := asideName(ManifestName, n)
		if _, err := os.Lstat(filepath.Join(path, name)); err != nil {
			break
		}
		newest = name
	}
	if newest == "" {
		return Report{}, nil
	}
	manifest, err := readManifest(filepath.Join(path, newest))
	if err != nil {
		return Report{}, nil
	}
	return compare(path, manifest, nil)
}

// compare compares a run directory with a manifest. progress may be nil.
func compare(path string, manifest Manifest, progress func(done, total int64)) (Report, error) {
	report := Report{Sealed: true, RunID: manifest.RunID}
	known := maps.Clone(madeLater)
	known[ManifestName] = true
	var done, total int64
	for _, f := range manifest.Files {
		total += f.Size
	}
	for _, f := range manifest.Files {
		top, _, _ := strings.Cut(f.Name, "/") // a segment's manifest stands for its folder
		known[top] = true
		size, sum, err := hashFile(filepath.Join(path, f.Name), f.Size, func(n int64) {
			if done += n; progress != nil {
				progress(done, total)
			}
		})
		switch {
		case errors.Is(err, fs.ErrNotExist):
			report.Missing = append(report.Missing, f.Name)
		case errors.Is(err, ErrNotRegular):
			report.Changed = append(report.Changed, f.Name)
		case err != nil:
			return report, fmt.Errorf("verify %s: %w", f.Name, err)
		case size != f.Size || sum != f.SHA256:
			report.Changed = append(report.Changed, f.Name)
		default:
			report.Files++
		}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return report, err
	}
	for _, e := range entries {
		if !known[e.Name()] && !strings.HasSuffix(e.Name(), CheckpointSuffix) {
			report.Extra = append(report.Extra, e.Name())
		}
	}
	slices.Sort(report.Extra)
	return report, nil
}

// Sealed reports whether a run directory has a manifest that is what was sealed. The error says why one that is there
// is not, or cannot be read.
func Sealed(path string) (bool, error) {
	_, err := ReadManifest(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ReadManifest reads manifest.json of a run directory. It refuses a newer version, and names that lead out of the
// directory.
func ReadManifest(path string) (Manifest, error) {
	return readManifest(filepath.Join(path, ManifestName))
}

func readManifest(file string) (Manifest, error) {
	text, err := ReadFile(file, MaxDocument)
	if err != nil {
		return Manifest{}, err
	}
	return ParseManifest(text)
}

// ParseManifest is ReadManifest of the text of one.
func ParseManifest(text []byte) (m Manifest, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("read %s: %w", ManifestName, err)
	}
	if foreign, ok := foreignManifest(text); ok {
		return foreign, foreign.checkNames()
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields() // a damaged key would leave out what it names
	if m.Version < 1 || m.Version > manifestVersion {
		return m, fmt.Errorf(
			"read %s: version %d, this program reads up to %d; use the llamatap that wrote it, or a newer one",
			ManifestName, m.Version, manifestVersion)
	}
	if err := strict.Decode(new(Manifest)); err != nil {
		return m, fmt.Errorf("read %s: %w", ManifestName, err)
	}
	if m.Version == 1 && m.SHA256 != "" || m.Version > 1 && !m.checkSum(text) {
		return m, fmt.Errorf("read %s: %w: its checksum is another", ManifestName, ErrChanged)
	}
	return m, m.checkNames()
}

// checkNames refuses names that lead out of the run directory.
func (m *Manifest) checkNames() error {
	for _, f := range m.Files {
		if !filepath.IsLocal(f.Name) {
			return fmt.Errorf("read %s: the file name %q leads out of the run directory", ManifestName, f.Name)
		}
	}
	return nil
}

// foreignManifest reads the manifest of a run that mrm-trace wrote. It has no checksum of its own.
func foreignManifest(text []byte) (m Manifest, ok bool) {
	var theirs struct {
		Version string    `json:"manifest_schema_version"`
		RunID   string    `json:"run_id"`
		Created time.Time `json:"created_at_utc"`
		Files   []struct {
			Path   string `json:"path"`
			Size   int64  `json:"size_bytes"`
			SHA256 string `json:"sha256"`
		} `json:"files"`
	}
	if json.Unmarshal(text, &theirs) != nil || theirs.Version == "" {
		return m, false
	}
	m = Manifest{Version: 1, RunID: theirs.RunID, Sealed: theirs.Created}
	for _, f := range theirs.Files {
		m.Files = append(m.Files, File{Name: f.Path, Size: f.Size, SHA256: f.SHA256})
	}
	return m, true
}

// ReadMetadata reads metadata.json of a run directory.
func ReadMetadata(path string) (Metadata, error) {
	text, err := ReadFile(filepath.Join(path, MetadataName), MaxDocument)
	if err != nil {
		return Metadata{}, err
	}
	return ParseMetadata(text)
}

// FindMetadata is ReadMetadata of a directory that may have none: that of a run which only starts, or was killed early.
// It returns nil then.
func FindMetadata(path string) (*Metadata, error) {
	m, err := ReadMetadata(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w: 'llamatap verify %s' reports more", path, err, path)
	}
	return &m, nil
}

// ParseMetadata is ReadMetadata of the text of one.
func ParseMetadata(text []byte) (m Metadata, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("read %s: %w", MetadataName, err)
	}
	if m.Version > MetadataVersion {
		return m, fmt.Errorf("read %s: version %d, this program reads %d; use a newer llamatap", MetadataName,
			m.Version, MetadataVersion)
	}
	return m, nil
}

// anySize is for hashFile of a file of which nothing is recorded.
const anySize = -1

// hashFile returns the size of a file and its SHA-256, "" where the size is not the one that is wanted: such a file
// is not read.
func hashFile(path string, want int64, hashed func(n int64)) (int64, string, error) {
	file, err := OpenFile(path)
	if err != nil {
		return 0, "", err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || want != anySize && info.Size() != want {
		return -1, "", err
	}
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(sum, counter(hashed)), file)
	return size, hex.EncodeToString(sum.Sum(nil)), err
}

// counter is a writer that reports the sizes of writes.
type counter func(n int64)

func (c counter) Write(p []byte) (int, error) {
	c(int64(len(p)))
	return len(p), nil
}
