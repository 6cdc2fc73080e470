package runner

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"reflect"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/cli"
)

// Done says what of a prompt file an earlier run has done, which RunPrompts continues. Its results file is kept:
// a result goes when another one comes in its place, and never before. With Config.Parallel above 1, Answers is 0.
type Done struct {
	Answers  int   `json:"answers"`  // results that hold, from the first on: their prompts are not computed again
	Requests int32 `json:"requests"` // prompts among them that were decoded
	// Prompts is the PromptDigest of the tokens of those that were.
	Prompts []byte `json:"prompts,omitempty"`
}

// PromptDigest reports whether prompts are those that were decoded. The zero value is of none.
type PromptDigest struct{ sum hash.Hash }

// Add takes the tokens of the next prompt in.
func (d *PromptDigest) Add(tokens []llama.Token) {
	if d.sum == nil {
		d.sum = sha256.New()
	}
	word := binary.LittleEndian.AppendUint32(nil, uint32(len(tokens)))
	for _, token := range tokens {
		word = binary.LittleEndian.AppendUint32(word, uint32(token))
	}
	d.sum.Write(word)
}

// Sum is the digest of what was added so far; nil of nothing.
func (d *PromptDigest) Sum() []byte {
	if d.sum == nil {
		return nil
	}
	return d.sum.Sum(nil)
}

// ErrDone occurs when a prompt file or its results are not those of the run to resume.
var ErrDone = errors.New("not what was done before")

// AnswerReader reads results that RunPrompts wrote.
type AnswerReader struct {
	in *bufio.Reader
	at int64
}

// NewAnswerReader returns a reader of in.
func NewAnswerReader(in io.Reader) *AnswerReader { return &AnswerReader{in: bufio.NewReader(in)} }

// Next returns the next result; false where there is no whole one. size is how many bytes it and those before it take.
func (r *AnswerReader) Next() (a Answer, size int64, ok bool) {
	line, err := r.in.ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &a) != nil || a.Line == 0 {
		return a, r.at, false
	}
	r.at += int64(len(line))
	return a, r.at, true
}

// earlier are the results of a resumed run, as they stay in their file until others come in their place.
type earlier struct {
	file *os.File
	in   *AnswerReader
	at   int64 // bytes of those that hold
	over bool  // what follows is new
}

func newEarlier(file *os.File) *earlier { return &earlier{file: file, in: NewAnswerReader(file)} }

// next returns the next of them that holds without being computed again.
func (e *earlier) next() (a Answer, err error) {
	a, size, ok := e.in.Next()
	if !ok {
		return a, fmt.Errorf("--results %s: %w: it ends in the middle; nobody else may write it meanwhile",
			e.file.Name(), ErrDone)
	}
	e.at = size
	return a, nil
}

// holds reports whether the next of them is an answer that has been computed again, or one that this run did not come
// to the end of. If not, the file ends before it.
func (e *earlier) holds(a *Answer) (bool, error) {
	if e.over {
		return false, nil
	}
	was, size, ok := e.in.Next()
	if ok && was.Line == a.Line && (a.unfinished() || was.same(a)) {
		e.at = size
		return true, nil
	}
	return false, e.end()
}

// end cuts off what does not hold.
func (e *earlier) end() error {
	if e.over {
		return nil
	}
	e.over = true
	err := e.file.Truncate(e.at)
	if err == nil {
		_, err = e.file.Seek(e.at, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("--results %s: %w", e.file.Name(), cli.Bare(err))
	}
	return nil
}

func (a *Answer) unfinished() bool { return a.Completion != nil && a.Finish == FinishInterrupted }

// same reports whether two answers differ in nothing but their times.
func (a *Answer) same(b *Answer) bool {
	x, errX := a.timeless()
	y, errY := b.timeless()
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// timeless is an answer as reading its line gives it, without times.
func (a *Answer) timeless() (t Answer, err error) {
	line, err := json.Marshal(a)
	if err == nil {
		err = json.Unmarshal(line, &t)
	}
	if t.Completion != nil {
		t.TokenNs, t.PromptNs, t.GenerationNs = nil, 0, 0
	}
	return t, err
}

// passDone passes over the lines whose results hold, and makes sure that they are the lines that these belong to.
func (p *prompts) passDone() error {
	if p.Done == nil {
		return nil
	}
	var digest PromptDigest
	for range p.Done.Answers {
		line, ok, err := p.in.receive(p.ctx, false)
		if err != nil {
			return err
		}
		if !ok || line.err != nil && !errors.Is(line.err, errLongLine) {
			return fmt.Errorf("%w --prompts %s: it has fewer lines than results: %w", ErrPrompt, p.Config.PromptsFile,
				ErrDone)
		}
		if err := p.pass(line, &digest); err != nil {
			return err
		}
	}
	if !bytes.Equal(digest.Sum(), p.Done.Prompts) {
		return fmt.Errorf("%w --prompts %s: its first %d lines are %w: give the file that the run had, or begin anew",
			ErrPrompt, p.Config.PromptsFile, p.Done.Answers, ErrDone)
	}
	if len(p.slots) > 0 {
		p.slots[0].begun = p.Done.Requests
	}
	return nil
}

// pass passes over one line.
func (p *prompts) pass(line promptLine, digest *PromptDigest) error {
	was, err := p.answers.earlier.next()
	if err != nil {
		return err
	}
	if was.Line != line.number {
		return fmt.Errorf("--results %s: line %d is of line %d of the prompts: %w", p.Config.ResultsFile, p.next+1,
			was.Line, ErrDone)
	}
	p.next++
	p.answers.head++
	p.done = line.end
	q, err := p.Config.ParseRequest(line.text)
	if err == nil && q.ID != nil && p.ids[string(q.ID)] == 0 {
		p.ids[string(q.ID)] = line.number
	}
	if was.Completion == nil {
		p.total.Failed++
		p.in.ended = p.in.ended || p.Config.StopOnError
		return nil
	}
	p.total.Before++
	if err != nil || was.Request == nil {
		return err
	}
	tokens, err := p.promptTokens(&q)
	if err == nil {
		digest.Add(tokens)
	}
	return err
}
