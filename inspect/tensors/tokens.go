package tensors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sort"

	"github.com/llamatap/llamatap/store/rundir"
)

// Token is one entry of a tokens file (STRAP-LLM's keys, and ours).
type Token struct {
	Index int64  `json:"token_index"`
	ID    int32  `json:"token_id"`
	Text  string `json:"token_text"`
	Phase string `json:"phase"` // absent in STRAP-LLM's files
	Seq   *int32 `json:"seq_id"`
	Pos   *int32 `json:"pos"`
	Ctx   uint32 `json:"ctx"`
	// Request is absent where the sequence is not known, and in files of before it was recorded.
	Request *int32 `json:"request"`
	// Bytes are those of the token where they are not UTF-8 by themselves, as of a part of a character.
	Bytes []byte `json:"token_bytes"`
}

// Piece is the bytes that the token adds to the text.
func (t *Token) Piece() string {
	if len(t.Bytes) > 0 {
		return string(t.Bytes)
	}
	return t.Text
}

// ReadTokens reads a tokens file, one token at a time, and returns its total_tokens. fn may be nil.
func ReadTokens(r io.Reader, fn func(*Token) error) (total int64, err error) {
	total, _, err = readTokens(r, fn)
	return total, err
}

// readTokens also returns capture_duration_seconds, 0 where it is missing.
func readTokens(r io.Reader, fn func(*Token) error) (total int64, seconds float64, err error) {
	total = -1
	d := json.NewDecoder(&entryReader{in: r})
	if err := expect(d, json.Delim('{')); err != nil {
		return 0, 0, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return 0, 0, err
		}
		switch key {
		case "total_tokens":
			err = d.Decode(&total)
		case "tokens":
			err = readTokenList(d, fn)
		case "capture_duration_seconds":
			err = d.Decode(&seconds)
		default:
			err = skipValue(d)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("%v: %w", key, err)
		}
	}
	if total < 0 {
		return 0, 0, errors.New("total_tokens is missing")
	}
	return total, seconds, expect(d, json.Delim('}'))
}

// skipValue passes over a value, however large it is.
func skipValue(d *json.Decoder) error {
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// maxToken bounds a token's entry in bytes.
const maxToken = 16 << 20

// entryReader fails where entries of a tokens file, each of which ends with a brace, are longer than maxToken: the
// decoder holds one of them.
type entryReader struct {
	in    io.Reader
	since int // bytes since the last brace
}

func (r *entryReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	if last := bytes.LastIndexByte(p[:n], '}'); last >= 0 {
		r.since = n - last - 1
	} else {
		r.since += n
	}
	if r.since > maxToken {
		return n, fmt.Errorf("an entry of more than %d bytes", maxToken)
	}
	return n, err
}

func readTokenList(d *json.Decoder, fn func(*Token) error) error {
	if err := expect(d, json.Delim('[')); err != nil {
		return err
	}
	for d.More() {
		var t Token
		read := struct {
			*Token
			Seq *int32 `json:"seq"` // as llamatap 1.0 called it
		}{Token: &t}
		if err := d.Decode(&read); err != nil {
			return err
		}
		if read.Seq != nil {
			t.Seq = read.Seq
		}
		if fn != nil {
			if err := fn(&t); err != nil {
				return err
			}
		}
	}
	return expect(d, json.Delim(']'))
}

func expect(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	if err == nil && got != want {
		return fmt.Errorf("%v stands where %v belongs", got, want)
	}
	return err
}

// EachToken reads the run's tokens files. Without one it returns fs.ErrNotExist, wrapped.
func (r *Run) EachToken(fn func(*Token) error) (total int64, err error) {
	total, _, err = r.readTokens(fn)
	return total, err
}

// CaptureSeconds is what the run's tokens files say of the capture's duration. Without one it returns
// fs.ErrNotExist, wrapped.
func (r *Run) CaptureSeconds() (float64, error) {
	_, seconds, err := r.readTokens(nil)
	return seconds, err
}

func (r *Run) readTokens(fn func(*Token) error) (total int64, seconds float64, err error) {
	for _, path := range r.tokensPaths {
		f, err := rundir.OpenFile(path)
		if err != nil {
			return 0, 0, err
		}
		n, s, err := readTokens(f, fn)
		if err = errors.Join(err, f.Close()); err != nil {
			return 0, 0, fmt.Errorf("%s is not a tokens file, or damaged: %w", path, err)
		}
		total, seconds = total+n, seconds+s
	}
	return total, seconds, nil
}

// tokenTexts holds the texts of a run's tokens by index: four bytes for each, and every different text once.
type tokenTexts struct {
	texts     []string
	numbers   map[string]int32 // of the texts
	order     []int32          // the same of the tokens, as they appear in the file
	stretches []stretch        // by their first index
}

// stretch is where tokens lie whose indexes follow each other.
type stretch struct {
	first int64
	at    int
	n     int
}

func (t *tokenTexts) add(index int64, text string) {
	number, known := t.numbers[text]
	if !known {
		number = int32(len(t.texts))
		t.texts, t.numbers[text] = append(t.texts, text), number
	}
	if last := len(t.stretches) - 1; last >= 0 && t.stretches[last].first+int64(t.stretches[last].n) == index {
		t.stretches[last].n++
	} else {
		t.stretches = append(t.stretches, stretch{index, len(t.order), 1})
	}
	t.order = append(t.order, number)
}

// textOf returns the text of a token, nil where there is none.
func (t *tokenTexts) textOf(index int64) *string {
	i := sort.Search(len(t.stretches), func(i int) bool { return t.stretches[i].first > index }) - 1
	for ; i >= 0; i-- { // more than one where tokens stand twice
		if s := &t.stretches[i]; index < s.first+int64(s.n) {
			return &t.texts[t.order[s.at+int(index-s.first)]]
		}
	}
	return nil
}

// tokenTexts loads the texts; none when there is no tokens file.
func (r *Run) tokenTexts() (*tokenTexts, error) {
	t := &tokenTexts{numbers: map[string]int32{}}
	_, err := r.EachToken(func(token *Token) error {
		t.add(token.Index, token.Text)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	slices.SortStableFunc(t.stretches, func(a, b stretch) int { return cmp.Compare(a.first, b.first) })
	return t, err
}
