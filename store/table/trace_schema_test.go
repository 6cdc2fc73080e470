package table_test

import "github.com/llamatap/llamatap/store/table"

// The columns, in order.
const (
	colTime = iota
	colPhase
	colOp
	colAddr
	colSize
	colRegion
	colRegionType
	colLayer
	colToken
	colSeq
	colBlock
	colTID
	colDevice
	colCollector
	colGraph
	colOpSeq
	colTimeSource
	colCtx
	colLevel
	colLatency
	colSymbol
	colWeight
	colBuffer
	colOffset
	colGGMLOp
	colOperand
	colPieces
	colStride
	colFlags
	colCount
	colWindow
)

// Analysis are the columns that metrics are computed from.
var Analysis = []string{"ts_ns", "op", "addr", "size", "region_id", "region_type", "layer", "token_index", "kv_block",
	"weight"}

// Schema is that of trace.parquet, with encodings for rows of a ledger or of samples.
func Schema(samples bool) table.Schema {
	const dict, delta = table.Dictionary, table.Delta
	moving := dict // what is another in each sample, and the same in each execution of a graph
	if samples {
		moving = delta
	}
	return table.Schema{
		Columns: []table.Column{
			{Name: "ts_ns", Kind: table.Int64, Encoding: moving}, {Name: "phase", Kind: table.Text},
			{Name: "op", Kind: table.Text, Null: true},
			{Name: "addr", Kind: table.Uint64, Null: true, Encoding: moving}, {Name: "size", Kind: table.Uint64},
			{Name: "region_id", Kind: table.Int64, Null: true},
			{Name: "region_type", Kind: table.Text}, {Name: "layer", Kind: table.Int32, Null: true},
			{Name: "token_index", Kind: table.Int32, Null: true},
			{Name: "seq_id", Kind: table.Int32, Null: true}, {Name: "kv_block", Kind: table.Int32, Null: true},
			{Name: "tid", Kind: table.Int32, Null: true},
			{Name: "device", Kind: table.Text}, {Name: "collector", Kind: table.Text},
			{Name: "graph_seq", Kind: table.Int64, Null: true},
			{Name: "op_seq", Kind: table.Int32, Null: true}, {Name: "time_source", Kind: table.Text, Null: true},
			{Name: "ctx", Kind: table.Int32, Null: true},
			{Name: "cache_level", Kind: table.Text, Null: true},
			{Name: "latency_cycles", Kind: table.Int64, Null: true}, {Name: "symbol", Kind: table.Text, Null: true},
			{Name: "weight", Kind: table.Uint64, Null: true}, {Name: "buffer_id", Kind: table.Uint64, Null: true},
			{Name: "offset", Kind: table.Uint64, Null: true, Encoding: moving},
			{Name: "ggml_op", Kind: table.Text, Null: true},
			{Name: "operand", Kind: table.Int32, Null: true}, {Name: "pieces", Kind: table.Int64},
			{Name: "stride", Kind: table.Int64, Null: true},
			{Name: "flags", Kind: table.Int32}, {Name: "count", Kind: table.Int64},
			{Name: "window_ns", Kind: table.Int64, Null: true},
			{Name: "pid", Kind: table.Int32, Null: true}, {Name: "data_symbol", Kind: table.Text, Null: true},
		},
		Metadata: [][2]string{{table.VersionKey, table.Version}},
	}
}
