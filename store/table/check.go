package table

import (
	"errors"
	"fmt"
	"strings"

	"github.com/llamatap/llamatap/store/rundir"
)

// VersionKey is the key of a table's metadata under which the version of its schema stands. All tables of a run
// have one.
const VersionKey = "llamatap_schema_version"

// Version is that of the schema of all tables. Readers refuse another major version, which is what stands before
// the dot. Version 1 stood under oldVersionKey: its times are integers, and it has no step.
const Version = "2.0"

const oldVersionKey = "mrm_trace_schema_version"

// ErrVersion occurs when a table has a schema of another major version than the reader knows, or names none.
var ErrVersion = errors.New("a schema of another version")

// Form is what a reader needs to find in a table.
type Form struct {
	Name string // what the table is, for errors: trace
	// those that it reads; of them Kind and Name count. Int32 and Int64, and the same without sign, are alike
	Columns []Column
}

// SchemaVersion is the version of a table's schema as its metadata has it, "" where it has none.
func (t *Reader) SchemaVersion() string {
	version, ok := t.Metadata(VersionKey)
	if !ok {
		version, _ = t.Metadata(oldVersionKey)
	}
	return version
}

// ReadableVersion reports whether this package knows the schema version of a table, or of the metadata of a run:
// 1.x and 2.x.
func ReadableVersion(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	return major == "1" || major == "2"
}

// Check reports why a reader cannot take a table: because it is none, because its schema has another major version,
// or because columns are missing or of another kind. The first two are ErrVersion, all are ErrTable. Further
// columns do not matter.
func (t *Reader) Check(f Form) error {
	switch version := t.SchemaVersion(); {
	case version == "":
		return refuse(t, "%w: it has no %s, so it is not a table %s: give one that llamatap wrote", ErrVersion,
			VersionKey,
			f.Name)
	case !ReadableVersion(version):
		return refuse(t, "%w: %.20q of %s is not known, %s is: read it with the version of llamatap that wrote it",
			ErrVersion, version, f.Name, Version)
	}
	return t.CheckColumns(f)
}

// CheckColumns is Check for tables of other programs, which have other versions.
func (t *Reader) CheckColumns(f Form) error {
	for _, c := range f.Columns {
		l, ok := t.names[c.Name]
		if !ok {
			return refuse(t, "it has no column %s, which a table %s has: is it another table?", c.Name, f.Name)
		}
		if kind, ok := l.kind(); !ok || kind.family() != c.Kind.family() {
			is := "another type"
			if ok {
				is = kind.String()
			}
			return refuse(t, "its column %s is of %s, in a table %s it is of %s: is it another table?", c.Name, is,
				f.Name, c.Kind)
		}
	}
	return nil
}

func refuse(t *Reader, format string, args ...any) error {
	return named(t, fmt.Errorf("%w: %w", ErrTable, fmt.Errorf(format, args...)))
}

// family is the same for kinds that readers take alike.
func (k Kind) family() Kind {
	switch k {
	case Int32, Uint32, Uint64:
		return Int64
	}
	return k
}

// Check reports why a file is not the table that a reader wants: see [Reader.Check].
func Check(path string, f Form) error {
	file, err := rundir.OpenFile(path)
	if err != nil {
		return err
	}
	defer file.Close()
	r, err := NewReader(file)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return r.Check(f)
}
