package table

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// Unit is what the numbers of a column count. An [Int64] column in [UnixNS] is a timestamp for readers, one in [NS]
// a duration, so that none of them turns a column with nulls into floats, which cannot hold today's nanoseconds.
type Unit string

// The units. A column without one holds names, numbers of something, or counts.
const (
	UnixNS Unit = "ns since 1970-01-01 00:00 UTC"
	NS     Unit = "ns"
	Bytes  Unit = "bytes"
)

// Keys of a column's metadata, as readers of Arrow's schema see it.
const (
	unitKey        = "unit"
	descriptionKey = "description"
)

// arrowFields are the columns as Arrow has them.
func arrowFields(s Schema, zone string) []arrow.Field {
	fields := make([]arrow.Field, len(s.Columns))
	for i, c := range s.Columns {
		f := arrow.Field{Name: c.Name, Type: arrowTypes[c.Kind], Nullable: c.Null}
		switch {
		case c.Kind == Int64 && c.Unit == UnixNS:
			f.Type = &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: zone}
		case c.Kind == Int64 && c.Unit == NS:
			f.Type = arrow.FixedWidthTypes.Duration_ns
		}
		about := map[string]string{}
		if c.Unit != "" {
			about[unitKey] = string(c.Unit)
		}
		if c.Description != "" {
			about[descriptionKey] = c.Description
		}
		if len(about) > 0 {
			f.Metadata = arrow.MetadataFrom(about)
		}
		fields[i] = f
	}
	return fields
}

// describe adds to the metadata what readers look for about columns beside Parquet's own types. ARROW:schema is the
// schema as Arrow has it, with durations, units, descriptions and all metadata, which pyarrow then takes from
// there; pandas names exact types, without which pandas turns integers with nulls into floats, and times lack their
// zone.
func (p *Parquet) describe() error {
	forPandas, err := describePandas(p.schema)
	if err != nil {
		return err
	}
	p.meta.about = append(p.meta.about, [2]string{"pandas", forPandas})
	var schema bytes.Buffer
	w := ipc.NewWriter(&schema, ipc.WithSchema(arrow.NewSchema(arrowFields(p.schema, ""), arrowMetadata(p.meta.about))))
	if err := w.Close(); err != nil {
		return err
	}
	p.meta.about = append(p.meta.about, [2]string{"ARROW:schema", base64.StdEncoding.EncodeToString(schema.Bytes())})
	return nil
}

// arrowMetadata is metadata as Arrow has it.
func arrowMetadata(about [][2]string) *arrow.Metadata {
	var keys, texts []string
	for _, m := range about {
		keys, texts = append(keys, m[0]), append(texts, m[1])
	}
	m := arrow.NewMetadata(keys, texts)
	return &m
}

// pandasColumn is a column in pandas' metadata, as its developer guide has it (Storing pandas DataFrame objects in
// Apache Parquet format).
type pandasColumn struct {
	Name      string            `json:"name"`
	FieldName string            `json:"field_name"`
	Type      string            `json:"pandas_type"`
	NumPy     string            `json:"numpy_type"`
	Metadata  map[string]string `json:"metadata"`
}

// describePandas lists the columns for which pandas would not choose an exact type by itself: times, and addresses.
// Counts fit into floats.
func describePandas(s Schema) (string, error) {
	columns := []pandasColumn{}
	for _, c := range s.Columns {
		of := pandasColumn{Name: c.Name, FieldName: c.Name}
		switch {
		case c.Kind == Int64 && c.Unit == UnixNS:
			of.Type, of.NumPy, of.Metadata = "datetimetz", "datetime64[ns]", map[string]string{"timezone": "UTC"}
		case c.Kind == Uint64 && c.Null:
			of.Type, of.NumPy = "uint64", "UInt64"
		default:
			continue
		}
		columns = append(columns, of)
	}
	text, err := json.Marshal(map[string]any{
		"index_columns": []string{}, "column_indexes": []string{}, "columns": columns, "pandas_version": "2.2.0",
		"creator": map[string]string{"library": "llamatap", "version": "1"},
	})
	return string(text), err
}
