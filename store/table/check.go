package table

import (
	"errors"
	"fmt"
	"strings"

	"github.com/llamatap/llamatap/store/rundir"
)

// VersionKey is the key of a table's metadata under which the version of its schema stands, as in mrm-trace.
const VersionKey = "mrm_trace_schema_version"

// ErrVersion occurs when a table has a schema of another major version than the reader knows, or tells of none.
var ErrVersion = errors.New("a schema of another version")

// Form is what a reader needs to find in a table.
type Form struct {
	Name    string   // what the table is, for errors: trace
	Version string   // of the schema that the reader knows, such as 1.0: another number before the dot is refused
	Columns []Column // those that it reads; of them Kind and Name count. Int32 and Int64, and the same without sign, are alike
}

// Check tells why a reader cannot take a table: because it is none, because its schema has another major version, or because columns are
// missing or of another kind. The first two are ErrVersion, all are ErrTable. Further columns do not matter.
func (t *Reader) Check(f Form) error {
	version, ok := t.Metadata(VersionKey)
	if !ok {
		return t.refuse("%w: it has no %s, so it is no table %s: give one that llamatap or mrm-trace wrote", ErrVersion, VersionKey, f.Name)
	}
	known, _, _ := strings.Cut(f.Version, ".")
	if major, _, _ := strings.Cut(version, "."); major != known {
		return t.refuse("%w: %.20q of %s is not known, %s.x is: read it with the version of llamatap that wrote it", ErrVersion, version, f.Name, known)
	}
	for _, c := range f.Columns {
		l, ok := t.names[c.Name]
		if !ok {
			return t.refuse("it has no column %s, which a table %s has: is it another table?", c.Name, f.Name)
		}
		if kind, ok := l.kind(); !ok || kind.family() != c.Kind.family() {
			is := "another type"
			if ok {
				is = kind.String()
			}
			return t.refuse("its column %s is of %s, in a table %s it is of %s: is it another table?", c.Name, is, f.Name, c.Kind)
		}
	}
	return nil
}

func (t *Reader) refuse(format string, args ...any) error {
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

// Check tells why a file is not the table that a reader wants, as mrm-trace's check_parquet_schema does: see [Reader.Check].
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
