package analyze

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/table"
)

// TestCharacterize writes the data set of a sweep: its checksums are those of the files, its schema is that of the
// tables, and its rows say what the runs did.
func TestCharacterize(t *testing.T) {
	found, err := Find([]string{sweep(t)}, false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Characterize(t.Context(), found, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "set")
	if err := c.Save(dir, []string{"svg"}); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(dir, sumsName))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			t.Errorf("%s: %v, or another checksum", name, err)
		}
	}
	for _, name := range []string{characterName, agreementName, schemaName, cardName} {
		if !strings.Contains(string(sums), "  "+name+"\n") {
			t.Errorf("no checksum of %s", name)
		}
	}
	var schema struct {
		Tables map[string][]describedColumn `json:"tables"`
	}
	text, err := os.ReadFile(filepath.Join(dir, schemaName))
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	form := table.Form{Name: characterName}
	for _, column := range schema.Tables[characterName] {
		if kind, ok := map[string]table.Kind{"string": table.Text, "int64": table.Int64}[column.Type]; ok {
			form.Columns = append(form.Columns, table.Column{Name: column.Name, Kind: kind})
		}
	}
	var read, ids []string
	_, err = table.EachRow(t.Context(), dir, form, nil, 1000, func(r *table.Row) error {
		if r.Text("region_type") == "weight" && r.Text("phase") == "all" {
			read = append(read, fmt.Sprint(r.Int("executions"), " ", r.Int("bytes_read"), " ",
				r.Int("retention_p99_executions")))
			ids = append(ids, r.Text("run_id"))
		}
		return nil
	})
	slices.Sort(ids)
	// Each of the four runs that are not contaminated reads 4000 bytes ten times.
	if want := slices.Repeat([]string{"10 40000 10"}, 4); err != nil || !slices.Equal(read, want) ||
		len(slices.Compact(ids)) != 4 {
		t.Errorf("%v: %q of %q", err, read, ids)
	}
	found.Runs = nil
	if _, err := Characterize(t.Context(), found, nil); !errors.Is(err, errNoRuns) {
		t.Errorf("no runs: %v", err)
	}
}
