package analyze

import (
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/store/table"
)

// What makes a column differ between two recordings of the same experiment on the same program and machine. Columns
// with neither are equal, byte for byte.
const (
	variesWithTime   = "time"   // it is a time, or depends on one
	variesWithSample = "sample" // it depends on what a collector happened to see
)

// publishedColumn is a column of a published table.
type publishedColumn[R any] struct {
	table.Column
	Varies string
	of     func(r *R) any // string, int64, float64, or a pointer; nil: no value
}

// textColumn, intColumn and floatColumn make columns.
func textColumn[R any](name, description string, of func(r *R) any) publishedColumn[R] {
	return publishedColumn[R]{Column: table.Column{Name: name, Kind: table.Text, Description: description}, of: of}
}

func intColumn[R any](name string, unit table.Unit, description string, of func(r *R) any) publishedColumn[R] {
	return publishedColumn[R]{Column: table.Column{Name: name, Kind: table.Int64, Unit: unit, Null: true,
		Description: description}, of: of}
}

func floatColumn[R any](name string, unit table.Unit, description string, of func(r *R) any) publishedColumn[R] {
	return publishedColumn[R]{Column: table.Column{Name: name, Kind: table.Float64, Unit: unit, Null: true,
		Description: description}, of: of}
}

// varying returns the column with the name of the one that it varies with.
func (c publishedColumn[R]) varying(with string) publishedColumn[R] {
	c.Varies = with
	return c
}

// cellColumns say which run of which cell a row is of.
func cellColumns[R any](of func(r *R) *SealedRun) []publishedColumn[R] {
	return []publishedColumn[R]{
		textColumn("experiment", "name of the experiment", func(r *R) any { return of(r).Experiment.Name }),
		textColumn("model_id", "model: of synthetic ones the architecture, and the seed of its weights unless 1",
			func(r *R) any { return of(r).Cell.ModelID }),
		textColumn("gguf_arch", "general.architecture of its file", func(r *R) any { return of(r).Model.Arch }),
		textColumn("weights_type", "type of most of its weights", func(r *R) any { return of(r).Model.FileType }),
		textColumn("prompt", "id of the prompt", func(r *R) any { return of(r).Cell.Prompt }),
		intColumn("prompt_tokens", "tokens", "tokens of all prompts of the run together",
			func(r *R) any { return of(r).Observer.Tapped.PromptTokens }),
		intColumn("max_tokens", "tokens", "tokens generated per request",
			func(r *R) any { return int64(of(r).Cell.MaxTokens) }),
		intColumn("n_ctx", "tokens", "cells of the context, of all requests together; 0: the model's",
			func(r *R) any { return int64(of(r).Cell.NCtx) }),
		textColumn("kv_type", "types of keys and values in the cache", func(r *R) any { return of(r).Cell.KVType }),
		intColumn("batch", "", "requests that are computed at a time",
			func(r *R) any { return int64(of(r).Cell.Concurrency) }),
		intColumn("repetition", "", "number of the repetition, from 0",
			func(r *R) any { return int64(of(r).Cell.Repetition) }),
		intColumn("seed", "", "of sampling", func(r *R) any { return int64(of(r).Cell.Seed) }),
		textColumn("run_id", "run that the row is of", func(r *R) any { return of(r).RunID }).varying(variesWithTime),
		textColumn("validity", "how far its times can be trusted: clean, marginal or contaminated",
			func(r *R) any { return string(of(r).Validity.Class) }).varying(variesWithTime),
	}
}

// steps, timed and bytes are units.
const (
	unitSteps   table.Unit = "executions"
	unitSeconds table.Unit = "s"
	perToken    table.Unit = "bytes per token"
)

// characterColumns are those of characterization.parquet.
func characterColumns() []publishedColumn[characterRow] {
	type row = characterRow
	publishedColumns := append(cellColumns(func(r *row) *SealedRun { return r.run }),
		textColumn("phase", "prefill, decode, or all: both, and executions that mix them",
			func(r *row) any { return r.part.Name }),
		textColumn("region_type", "type of region", func(r *row) any { return r.part.Type.String() }),
		intColumn("regions", "", "regions of the type that were accessed",
			func(r *row) any { return int64(r.part.Steps.Regions) }),
		intColumn("region_bytes", table.Bytes, "size of all regions of the type; of activations that of compute "+
			"buffers",
			func(r *row) any { return int64(r.part.Bytes) }),
		intColumn("executions", unitSteps, "executions of graphs in the phase",
			func(r *row) any { return r.part.Executions }),
		intColumn("tokens", "tokens", "tokens that the phase computed", func(r *row) any { return r.part.Tokens }),
		intColumn("reads", "accesses", "accesses that read", func(r *row) any { return r.part.Steps.Reads }),
		intColumn("writes", "accesses", "accesses that wrote", func(r *row) any { return r.part.Steps.Writes }),
		intColumn("bytes_read", table.Bytes, "bytes read", func(r *row) any { return int64(r.part.Steps.BytesRead) }),
		intColumn("bytes_written", table.Bytes, "bytes written",
			func(r *row) any { return int64(r.part.Steps.BytesWritten) }),
		intColumn("bytes_padded", table.Bytes, "bytes of masked cells that ops were given; in no other column",
			func(r *row) any { return int64(r.part.Padded) }),
		floatColumn("read_write_ratio", "", "bytes_read / bytes_written; null: nothing was written",
			func(r *row) any { return perUnit(r.part.Steps.BytesRead, int64(r.part.Steps.BytesWritten)) }),
		floatColumn("bytes_read_per_token", perToken, "bytes_read / tokens",
			func(r *row) any { return perUnit(r.part.Steps.BytesRead, r.part.Tokens) }),
		floatColumn("bytes_written_per_token", perToken, "bytes_written / tokens",
			func(r *row) any { return perUnit(r.part.Steps.BytesWritten, r.part.Tokens) }),
		floatColumn("write_once_ratio", "", "share of written bytes whose memory was written exactly once",
			func(r *row) any { return orNil(r.part.Steps.WriteOnce()) }),
		intColumn("retention_bytes", table.Bytes, "bytes written, as often as they were: what retention is counted in",
			func(r *row) any { return r.part.Steps.Retention.Count }),
		floatColumn("censored_share", "", "share of retention_bytes whose need did not end in the phase",
			func(r *row) any { return orNil(r.part.Steps.Retention.CensoredShare()) }))
	publishedColumns = append(publishedColumns, retentionColumns()...)
	return append(publishedColumns,
		intColumn("reuse_p50_bytes", table.Bytes, "median reuse distance: different other bytes touched between two "+
			"accesses",
			func(r *row) any { return orNil(r.part.Steps.Reuses.Quantile(0.5)) }),
		intColumn("reuse_p99_bytes", table.Bytes, "99th percentile of the reuse distance",
			func(r *row) any { return orNil(r.part.Steps.Reuses.Quantile(0.99)) }),
		floatColumn("working_set_execution_mean_bytes", table.Bytes, "different bytes touched in an execution, mean",
			func(r *row) any { mean, _ := r.part.Steps.WorkingSet(0); return mean }),
		intColumn("working_set_execution_max_bytes", table.Bytes, "different bytes touched in an execution, most",
			func(r *row) any { _, most := r.part.Steps.WorkingSet(0); return most }),
		intColumn("working_set_100ms_max_bytes", table.Bytes, "different bytes touched in 100 ms, most",
			func(r *row) any { _, most := r.part.Time.WorkingSet(0); return most }).varying(variesWithTime),
		floatColumn("locality_score", "", "share of 64-byte lines that directly follow the previous one of the region",
			func(r *row) any { return orNil(r.part.Steps.Locality()) }),
		intColumn("accesses_without_ranges", "accesses", "accesses of which the bytes count, but not where they are",
			func(r *row) any { return r.part.Steps.Coarse + r.part.Steps.Hulls }),
	)
}

// retentionColumns are percentiles of the retention, by both clocks.
func retentionColumns() (publishedColumns []publishedColumn[characterRow]) {
	type row = characterRow
	for _, p := range []struct {
		name, words string
		share       float64
	}{{"p50", "median", 0.5}, {"p99", "99th percentile", 0.99}} {
		kept := func(m *memtrace.TypeMetrics) any { return orNil(m.Retention.Quantile(p.share)) }
		estimated := func(m *memtrace.TypeMetrics) any { return orNil(m.Retention.KaplanMeier(p.share)) }
		const kaplan = " by Kaplan and Meier; null: too much is censored"
		publishedColumns = append(publishedColumns,
			intColumn("retention_"+p.name+"_executions", unitSteps,
				p.words+" of the retention, censored ones as long as seen",
				func(r *row) any { return kept(r.part.Steps) }),
			intColumn("km_"+p.name+"_executions", unitSteps, p.words+" of the retention"+kaplan,
				func(r *row) any { return estimated(r.part.Steps) }),
			floatColumn("retention_"+p.name+"_s", unitSeconds,
				p.words+" of the retention, censored ones as long as seen",
				func(r *row) any { return inSeconds(kept(r.part.Time)) }).varying(variesWithTime),
			floatColumn("km_"+p.name+"_s", unitSeconds, p.words+" of the retention"+kaplan,
				func(r *row) any { return inSeconds(estimated(r.part.Time)) }).varying(variesWithTime))
	}
	return publishedColumns
}

// agreementColumns are those of agreement.parquet.
func agreementColumns() []publishedColumn[agreementRow] {
	type row = agreementRow
	sampled := func(name, description string, of func(r *row) any) publishedColumn[row] {
		return intColumn(name, "", description, of).varying(variesWithSample)
	}
	return append(cellColumns(func(r *row) *SealedRun { return r.run }),
		textColumn("collector", "fault: page faults; page: pages found written; perf: sampled loads and stores",
			func(r *row) any { return r.collector }),
		textColumn("region_type", "type of region; run: all of them",
			func(r *row) any { return r.kind }).varying(variesWithSample),
		sampled("compared", "samples that were compared with the ledger", func(r *row) any { return r.compared }),
		sampled("explained", "of these, those whose bytes the ledger says were so accessed in the same execution",
			func(r *row) any { return r.explained }),
		sampled("pages_found", "pages that were found written", func(r *row) any { return r.found }),
		sampled("pages_found_in_ledger", "of these, those that the ledger says were written",
			func(r *row) any { return r.inLedger }),
		sampled("pages_in_ledger", "pages that the ledger says were written",
			func(r *row) any { return r.ledger }),
		sampled("pages_in_ledger_found", "of these, those that were found written",
			func(r *row) any { return r.foundAgain }),
		floatColumn("first_touch_tau", "", "Kendall's tau-b of the orders in which ledger and samples first touched "+
			"regions",
			func(r *row) any { return r.tau }).varying(variesWithSample),
	)
}
