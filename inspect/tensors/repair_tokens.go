package tensors

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// tokens writes the tokens file again from the index where it is not there, was changed, or lists other tokens than
// the index. Texts are the index's. Where that has none, of a run of an earlier version, a token gets the one that
// its id has in the old file.
func (r *repairer) tokens(s *stream.Reader, repaired bool) error {
	path := filepath.Join(r.path, rundir.TokensName)
	_, err := os.Stat(path)
	there := err == nil
	if there && !repaired && tokensMatchIndex(r.path) {
		return nil
	}
	texts := indexTexts(s)
	var old map[int32]rundir.TokenRecord
	var seconds float64
	if there {
		old, seconds = textsOf(path)
		aside, err := rundir.LinkBackup(r.path, rundir.TokensName)
		if err != nil {
			return err
		}
		r.note("%s is %s now", rundir.TokensName, aside)
	}
	w, err := rundir.NewTokensWriter(r.dir)
	if err != nil {
		return err
	}
	defer w.Discard()
	total, mute := 0, 0
	for e := range s.Executions() {
		for i := range e.Rows {
			row := &e.Rows[i]
			if row.Phase == label.PhaseSetup || row.Index < 0 {
				continue
			}
			text, known := texts[textKey{e.Ctx, row.Token}]
			if !known {
				text, known = old[row.Token]
			}
			if total++; !known {
				mute++
			}
			if err := w.Append(tokenRecord(e.Ctx, row, text)); err != nil {
				return err
			}
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	r.note("%s is made from the index: %d tokens, of which %d have no text", rundir.TokensName, total, mute)
	return w.Close(time.Duration(seconds * float64(time.Second)))
}

func tokenRecord(ctx uint32, row *label.Row, text rundir.TokenRecord) rundir.TokenRecord {
	t := rundir.TokenRecord{
		Index: row.Index, ID: row.Token, Text: text.Text, Bytes: text.Bytes, Phase: rundir.Phase(row.Phase.String()),
		Pos: row.Pos, Ctx: ctx,
	}
	t.SetSeqs(row.Seqs)
	if row.Request != label.RequestUnknown {
		t.Request = &row.Request
	}
	return t
}

// tokensMatchIndex reports whether a run's tokens file lists the tokens of its index.
func tokensMatchIndex(dir string) bool {
	r, err := Open(dir)
	if err != nil {
		return false
	}
	defer r.Close()
	var v Verification
	v.checkTokens(r)
	return len(v.Findings) == 0
}

// textKey names a token of a context's vocabulary.
type textKey struct {
	ctx   uint32
	token int32
}

// indexTexts reads the texts that an index holds.
func indexTexts(s *stream.Reader) map[textKey]rundir.TokenRecord {
	texts := map[textKey]rundir.TokenRecord{}
	for t := range s.Texts() {
		var record rundir.TokenRecord
		record.SetPiece(t.Piece)
		texts[textKey{t.Ctx, t.Token}] = record
	}
	return texts
}

// maxTokens bounds the tokens file that texts are taken from.
const maxTokens = 128 << 20

// textsOf reads the texts of a tokens file by token id, as far as it can be read.
func textsOf(path string) (texts map[int32]rundir.TokenRecord, seconds float64) {
	texts = map[int32]rundir.TokenRecord{}
	data, err := rundir.ReadFile(path, maxTokens)
	if err != nil {
		return texts, 0
	}
	var file struct {
		Tokens  []rundir.TokenRecord `json:"tokens"`
		Seconds float64              `json:"capture_duration_seconds"`
	}
	if json.Unmarshal(data, &file) != nil {
		return texts, 0
	}
	for _, t := range file.Tokens {
		texts[t.ID] = t
	}
	return texts, file.Seconds
}
