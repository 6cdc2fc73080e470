package rundir

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// TokenRecord is one token of activations_tokens.json. The first three keys are STRAP-LLM's.
type TokenRecord struct {
	Index int64   `json:"token_index"` // from 0, prompt included
	ID    int32   `json:"token_id"`
	Text  string  `json:"token_text"` // as far as the token's bytes are UTF-8 by themselves
	Phase Phase   `json:"phase"`
	Seq   *int32  `json:"seq_id,omitempty"`  // its sequence; absent when the program's batch could not be seen
	Seqs  []int32 `json:"seq_ids,omitempty"` // all its sequences, where there are several
	Pos   int32   `json:"pos"`
	Ctx   uint32  `json:"ctx,omitempty"`
	// Request counts the requests of its sequence in its context, from 0; absent where Seq is.
	Request *int32 `json:"request,omitempty"`
	// Bytes are the token's bytes, base64, where Text cannot show them.
	Bytes string `json:"token_bytes,omitempty"`
}

// UnmarshalJSON reads a token, also one that llamatap 1.0 wrote, with seq and seqs.
func (t *TokenRecord) UnmarshalJSON(text []byte) error {
	type plain TokenRecord
	read := struct {
		*plain
		Seq  *int32  `json:"seq"`
		Seqs []int32 `json:"seqs"`
	}{plain: (*plain)(t)}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	if read.Seq != nil {
		t.Seq, t.Seqs = read.Seq, read.Seqs
	}
	return nil
}

// Phase is the name of a phase, as label.Phase spells it.
type Phase string

// String returns the name.
func (p Phase) String() string { return string(p) }

// SetPiece fills Text, and Bytes where the piece is not UTF-8 by itself.
func (t *TokenRecord) SetPiece(piece []byte) {
	t.Text, t.Bytes = string(piece), ""
	if !utf8.Valid(piece) {
		t.Text = strings.ToValidUTF8(t.Text, "\uFFFD")
		t.Bytes = base64.StdEncoding.EncodeToString(piece)
	}
}

// SetSeqs fills Seq and Seqs.
func (t *TokenRecord) SetSeqs(seqs []int32) {
	t.Seq, t.Seqs = nil, nil
	if len(seqs) > 0 {
		t.Seq = &seqs[0]
	}
	if len(seqs) > 1 {
		t.Seqs = seqs
	}
}

// TokensWriter writes activations_tokens.json in STRAP-LLM's layout, however many tokens a run has:
// records go to a nameless file as they come, and the finished file is put together by Close. It is for one
// goroutine.
type TokensWriter struct {
	dir   *Dir
	spool *os.File
	out   *bufio.Writer
	line  bytes.Buffer
	total int64
	size  int64 // of the records
	err   error
}

// NewTokensWriter makes a writer into d.
func NewTokensWriter(d *Dir) (*TokensWriter, error) {
	spool, err := Scratch(d.Path())
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", TokensName, err)
	}
	return &TokensWriter{dir: d, spool: spool, out: bufio.NewWriterSize(diskFile{spool}, 64<<10)}, nil
}

// Append adds a token.
func (w *TokensWriter) Append(t TokenRecord) error {
	if w.err != nil {
		return w.err
	}
	w.line.Reset()
	if w.total > 0 {
		w.line.WriteByte(',')
	}
	w.line.WriteString("\n    ")
	w.line.Write(t.append(w.line.AvailableBuffer()))
	w.total++
	w.size += int64(w.line.Len())
	_, w.err = w.out.Write(w.line.Bytes())
	return w.err
}

// append appends a token as encoding/json writes it, indented. A server's tokens are most of what is written of it, and
// encoding/json takes ten times as long.
func (t *TokenRecord) append(to []byte) []byte {
	to = strconv.AppendInt(append(to, "{\n      \"token_index\": "...), t.Index, 10)
	to = strconv.AppendInt(append(to, ",\n      \"token_id\": "...), int64(t.ID), 10)
	to = AppendString(append(to, ",\n      \"token_text\": "...), t.Text)
	to = append(append(append(to, ",\n      \"phase\": \""...), t.Phase...), '"')
	if t.Seq != nil {
		to = strconv.AppendInt(append(to, ",\n      \"seq_id\": "...), int64(*t.Seq), 10)
	}
	for i, seq := range t.Seqs {
		before := ",\n        "
		if i == 0 {
			before = ",\n      \"seq_ids\": [\n        "
		}
		to = strconv.AppendInt(append(to, before...), int64(seq), 10)
	}
	if len(t.Seqs) > 0 {
		to = append(to, "\n      ]"...)
	}
	to = strconv.AppendInt(append(to, ",\n      \"pos\": "...), int64(t.Pos), 10)
	if t.Ctx != 0 {
		to = strconv.AppendUint(append(to, ",\n      \"ctx\": "...), uint64(t.Ctx), 10)
	}
	if t.Request != nil {
		to = strconv.AppendInt(append(to, ",\n      \"request\": "...), int64(*t.Request), 10)
	}
	if t.Bytes != "" {
		to = append(append(append(to, ",\n      \"token_bytes\": \""...), t.Bytes...), '"')
	}
	return append(to, "\n    }"...)
}

// Size is the size of what was appended. As much again is needed while Close puts the file together.
func (w *TokensWriter) Size() int64 { return w.size }

// Discard ends the writer without a file. Close does nothing then.
func (w *TokensWriter) Discard() {
	if w.spool != nil {
		w.spool.Close()
		w.spool = nil
	}
}

// Close puts the file together. duration is that of the capture.
func (w *TokensWriter) Close(duration time.Duration) error {
	if w.spool == nil {
		return w.err
	}
	defer func() { w.spool.Close(); w.spool = nil }()
	if w.err == nil {
		w.err = w.out.Flush()
	}
	if w.err == nil {
		w.err = w.assemble(duration)
	}
	if w.err != nil {
		w.err = fmt.Errorf("write %s: %w", TokensName, w.err)
	}
	return w.err
}

func (w *TokensWriter) assemble(duration time.Duration) error {
	if _, err := w.spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	file, err := w.dir.Create(TokensName)
	if err != nil {
		return err
	}
	end := "\n  ]"
	if w.total == 0 {
		end = "]"
	}
	fmt.Fprintf(file, "{\n  \"total_tokens\": %d,\n  \"tokens\": [", w.total)
	_, err = io.Copy(file, w.spool)
	if err == nil {
		_, err = fmt.Fprintf(file, "%s,\n  \"capture_duration_seconds\": %.6f\n}\n", end, duration.Seconds())
	}
	if err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
