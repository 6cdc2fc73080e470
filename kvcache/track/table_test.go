package track

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/store/table"
)

// rowOfTable is one row of kv_block_lifecycle.parquet, with -1 for null.
type rowOfTable map[string]int64

// readTable reads a table with its texts, which stand as kv/… in their own map.
func readTable(t *testing.T, text []byte) (rows []rowOfTable, texts []map[string]string, last kvcache.Snapshot) {
	t.Helper()
	r, err := table.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if version, ok := r.Metadata(table.VersionKey); !ok || version != table.Version {
		t.Errorf("version %q", version)
	}
	summary, _ := r.Metadata(kvcache.SnapshotKey)
	if err := json.Unmarshal([]byte(summary), &last); err != nil {
		t.Errorf("%q: %v", summary, err)
	}
	for group := range r.Groups() {
		first := len(rows)
		for _, c := range lifeSchema().Columns {
			v, err := r.Column(group, c.Name)
			if err != nil {
				t.Fatal(err)
			}
			for i, valid := range v.Valid {
				if len(rows) == first+i {
					rows, texts = append(rows, rowOfTable{}), append(texts, map[string]string{})
				}
				switch {
				case c.Kind == table.Text:
					texts[first+i][c.Name] = v.Texts[i]
				case valid:
					rows[first+i][c.Name] = v.Ints[i]
				default:
					rows[first+i][c.Name] = -1
				}
			}
		}
	}
	return rows, texts, last
}
