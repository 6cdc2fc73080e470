package runner

import (
	"bytes"

	"github.com/llamatap/llamatap/cgo/llama"
)

// reverseTokens is how many last tokens a reverse prompt is looked for in; llama-completion's number.
const reverseTokens = 32

// reverseSlack is how many bytes behind a reverse prompt the last token may bring along; llama-completion's number.
const reverseSlack = 2

// reverse finds reverse prompts at the end of the text, prompt included. Without any it does nothing.
type reverse struct {
	vocab  *llama.Vocab
	texts  [][]byte
	single []llama.Token // reverse prompts that are one token
	tail   []byte        // text of the last tokens, control tokens shown
	sizes  [reverseTokens]int
	n      int // sizes in use
}

// newReverse prepares the reverse prompts, with escapes processed or not.
func newReverse(vocab *llama.Vocab, prompts []string, escape bool) (r reverse, err error) {
	r.vocab = vocab
	for _, text := range prompts {
		if escape {
			text = unescape(text)
		}
		tokens, err := vocab.Tokenize(text, false, true)
		if err != nil {
			return r, err
		}
		if len(tokens) == 1 {
			r.single = append(r.single, tokens[0])
		}
		r.texts = append(r.texts, []byte(text))
	}
	return r, nil
}

// add takes a token that became part of the text.
func (r *reverse) add(token llama.Token) {
	if len(r.texts) == 0 {
		return
	}
	if r.n == len(r.sizes) {
		r.tail = append(r.tail[:0], r.tail[r.sizes[0]:]...)
		copy(r.sizes[:], r.sizes[1:])
		r.n--
	}
	before := len(r.tail)
	r.tail = r.vocab.AppendPiece(r.tail, token, true)
	r.sizes[r.n] = len(r.tail) - before
	r.n++
}

// ends are the tokens, by number, with which a reverse prompt may end: those with its last byte in them. nil: there
// is not a reverse prompt.
func (r *reverse) ends() []bool {
	if len(r.texts) == 0 {
		return nil
	}
	return r.endsWith(nil)
}

// endsWith is ends for other texts besides.
func (r *reverse) endsWith(texts []string) []bool {
	last := "" // bytes
	for _, text := range r.texts {
		last += string(text[max(0, len(text)-1):])
	}
	for _, text := range texts {
		last += text[max(0, len(text)-1):]
	}
	all := len(last) < len(r.texts)+len(texts) // an empty one ends with every token
	ends := make([]bool, r.vocab.Tokens())
	var piece []byte
	for token := range ends {
		piece = r.vocab.AppendPiece(piece[:0], llama.Token(token), true)
		for i := range len(last) {
			ends[token] = ends[token] || bytes.IndexByte(piece, last[i]) >= 0
		}
		ends[token] = ends[token] || all
	}
	for _, token := range r.single {
		ends[token] = true
	}
	return ends
}

// found reports whether the text ends with a reverse prompt. last is the token that was added last.
func (r *reverse) found(last llama.Token) bool {
	for _, text := range r.texts {
		if bytes.Contains(r.tail[max(0, len(r.tail)-len(text)-reverseSlack):], text) {
			return true
		}
	}
	for _, token := range r.single {
		if token == last && len(r.tail) > 0 {
			return true
		}
	}
	return false
}
