package analyze

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// The files of a published data set.
const (
	characterName = "characterization.parquet"
	agreementName = "agreement.parquet"
	schemaName    = "schema.json"
	cardName      = "README.md"
	sumsName      = "SHA256SUMS"
)

//go:embed characterize_card.md
var cardText string

// variesKey is the key of a table's metadata that lists the columns that differ from one recording to the next.
const variesKey = "llamatap_varies"

// Save writes the data set into a folder: its tables, their schema, figures in some forms, a data card, and the
// checksums of all of these.
func (c *Characterization) Save(dir string, forms []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of the data set: %w", err)
	}
	character, agreement := characterColumns(), agreementColumns()
	written := []string{characterName, agreementName, schemaName, cardName}
	for name, write := range map[string]func(io.Writer) error{
		characterName: func(w io.Writer) error { return writePublished(w, character, c.rows) },
		agreementName: func(w io.Writer) error { return writePublished(w, agreement, c.agreements) },
		cardName:      c.writeCard,
		schemaName: func(w io.Writer) error {
			return writeJSON(w, map[string]any{"llamatap_schema_version": table.Version,
				"tables": map[string]any{characterName: describe(character), agreementName: describe(agreement)}})
		},
	} {
		if err := saveFile(filepath.Join(dir, name), write); err != nil {
			return err
		}
	}
	drawn, err := DrawAcross(c.figures(), filepath.Join(dir, "figures"), forms)
	if err != nil {
		return err
	}
	for _, path := range drawn {
		written = append(written, "figures/"+filepath.Base(path))
	}
	return saveFile(filepath.Join(dir, sumsName), func(w io.Writer) error {
		slices.Sort(written)
		for _, name := range written {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%x  %s\n", sha256.Sum256(data), name); err != nil {
				return err
			}
		}
		return nil
	})
}

// saveFile writes a file.
func saveFile(path string, write func(io.Writer) error) error {
	if err := rundir.WriteFile(path, 0o644, write); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// writePublished writes a table.
func writePublished[R any](w io.Writer, columns []publishedColumn[R], rows []R) error {
	s, varying := table.Schema{}, []string{}
	for _, c := range columns {
		s.Columns = append(s.Columns, c.Column)
		if c.Varies != "" {
			varying = append(varying, c.Name)
		}
	}
	s.Metadata = [][2]string{{variesKey, strings.Join(varying, ",")}}
	all := make([][]any, len(rows))
	for i := range rows {
		for _, c := range columns {
			all[i] = append(all[i], c.of(&rows[i]))
		}
	}
	return writeRows(w, s, all)
}

// describedColumn is a column as schema.json describes it.
type describedColumn struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Unit        string `json:"unit,omitempty"`
	Null        bool   `json:"null"`
	Description string `json:"description"`
	Varies      string `json:"varies,omitempty"` // with time, or sample
}

func describe[R any](columns []publishedColumn[R]) (describedColumns []describedColumn) {
	for _, c := range columns {
		kind := map[table.Kind]string{table.Text: "string", table.Int64: "int64", table.Float64: "double"}[c.Kind]
		describedColumns = append(describedColumns, describedColumn{c.Name, kind, string(c.Unit), c.Null,
			c.Description, c.Varies})
	}
	return describedColumns
}

// summaryLine is the median over all rows of a phase and a type of region.
type summaryLine struct {
	Phase, Type             string
	Rows                    int
	ReadWrite, ReadPerToken string
	WriteOnce, Censored     string
	Retention               string
}

// summary has a line for every phase and type of region.
func (c *Characterization) summary() (lines []summaryLine) {
	by := map[[2]string][]*characterRow{}
	for i := range c.rows {
		key := [2]string{c.rows[i].part.Name, c.rows[i].part.Type.String()}
		by[key] = append(by[key], &c.rows[i])
	}
	columns := map[string]func(*characterRow) any{}
	for _, column := range characterColumns() {
		columns[column.Name] = column.of
	}
	for key, rows := range by {
		median := func(name string) string { return medianOf(rows, columns[name]) }
		lines = append(lines, summaryLine{key[0], key[1], len(rows), median("read_write_ratio"),
			median("bytes_read_per_token"), median("write_once_ratio"), median("censored_share"),
			median("retention_p99_executions")})
	}
	slices.SortFunc(lines, func(a, b summaryLine) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Type, b.Type))
	})
	return lines
}

// medianOf is the median of a column over the rows that have a value, to four digits.
func medianOf(rows []*characterRow, of func(*characterRow) any) string {
	var all []float64
	for _, r := range rows {
		switch v := of(r).(type) {
		case int64:
			all = append(all, float64(v))
		case float64:
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return "–"
	}
	slices.Sort(all)
	n := len(all)
	return fmt.Sprintf("%.4g", (all[(n-1)/2]+all[n/2])/2)
}

// writeCard writes the data card.
func (c *Characterization) writeCard(w io.Writer) error {
	var models, llama, cpus []string
	for i := range c.rows {
		run := c.rows[i].run
		models, llama, cpus = append(models, run.Cell.ModelID), append(llama, run.Llama.Version), append(cpus,
			run.Host.CPU)
	}
	list := func(all []string) string {
		slices.Sort(all)
		return strings.Join(slices.Compact(all), ", ")
	}
	var summary strings.Builder
	for _, l := range c.summary() {
		fmt.Fprintf(&summary, "| %s | %s | %d | %s | %s | %s | %s | %s |\n", l.Phase, l.Type, l.Rows, l.ReadWrite,
			l.ReadPerToken, l.WriteOnce, l.Censored, l.Retention)
	}
	_, err := strings.NewReplacer("{runs}", strconv.Itoa(c.Runs), "{rows}", strconv.Itoa(len(c.rows)),
		"{agreements}", strconv.Itoa(len(c.agreements)), "{models}", list(models), "{llama}", list(llama),
		"{cpus}", list(cpus), "{summary}", summary.String(), "{columns}", columnLines(describe(characterColumns())),
		"{agreement columns}", columnLines(describe(agreementColumns()))).WriteString(w, cardText)
	return err
}

// columnLines are the lines of a table in Markdown.
func columnLines(columns []describedColumn) string {
	var out strings.Builder
	for _, c := range columns {
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", c.Name, c.Type, c.Unit, c.Varies, c.Description)
	}
	return out.String()
}

// figures are dots by model and type of region, of decode in the first cell of each model of the largest experiment.
func (c *Characterization) figures() (metricFigures []metricFigure) {
	sizes, largest := map[string]int{}, ""
	for i := range c.rows {
		name := c.rows[i].run.Experiment.Name
		if sizes[name]++; sizes[name] > sizes[largest] {
			largest = name
		}
	}
	columns := map[string]publishedColumn[characterRow]{}
	for _, column := range characterColumns() {
		columns[column.Name] = column
	}
	for _, name := range []string{"read_write_ratio", "bytes_read_per_token", "reuse_p50_bytes",
		"working_set_execution_mean_bytes", "write_once_ratio"} {
		column := columns[name]
		f := metricFigure{Name: "decode_" + name, Cells: sheet.Cells{Label: strings.ReplaceAll(name, "_", " "),
			IsBytes: column.Unit == table.Bytes, Color: cellColor,
			Note: "computed from graphs; synthetic weights"}}
		cells := map[string]string{} // the key of the cell that is drawn, by model
		for i := range c.rows {
			r := &c.rows[i]
			model := r.run.Cell.ModelID
			if r.part.Name != memory.PartDecode || r.part.Type == memtrace.Other || r.run.Experiment.Name != largest {
				continue
			}
			if cells[model] == "" {
				f.Title = fmt.Sprintf("%s: decode, prompt %s, KV %s, %d requests", largest, r.run.Cell.Prompt,
					r.run.Cell.KVType, r.run.Cell.Concurrency)
				cells[model] = r.run.RunID
				f.Names = append(f.Names, model)
			}
			value, isKnown := column.of(r), cells[model] == r.run.RunID
			if n, isWhole := value.(int64); isWhole {
				value = float64(n)
			}
			if mean, ok := value.(float64); ok && isKnown {
				f.Means = append(f.Means, sheet.CellMean{Cell: slices.Index(f.Names, model), Type: r.part.Type.String(),
					Mean: mean})
			}
		}
		metricFigures = append(metricFigures, f)
	}
	return metricFigures
}
