package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"time"

	"golang.org/x/term"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
)

// ErrPrompts: some lines of a prompt file have no completion; the results say why.
var ErrPrompts = errors.New("prompts failed")

// maxAhead is how many prompts may be begun or done behind one that is not done yet, so that results in order stay
// bounded.
const maxAhead = 4096

// RunPrompts loads a model and completes every prompt of Config.PromptsFile, Config.Parallel of them at a time: one
// that is done makes room for the next. Results are Answers as JSON lines, in the order of the prompts, in
// Config.ResultsFile or on Options.Stdout.
//
// A line that fails is reported on Options.Stderr, gets an Answer with an error, and lets RunPrompts return ErrPrompts
// at the end. When ctx ends it stops within one token: prompts that were begun get an Answer with
// FinishInterrupted, and the error wraps ErrInterrupted and the cause of ctx.
//
// With one sequence, each prompt is decoded in the batches in which Run decodes it alone. With several, they share
// batches, and a backend may round differently in batches of another size.
func RunPrompts(ctx context.Context, o Options) (result PromptsResult, err error) {
	runtime.LockOSThread() // one thread, so that OpenMP keeps one team
	defer runtime.UnlockOSThread()
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	if o.Stdout == nil {
		o.Stdout = io.Discard
	}
	if err := CheckModel(o.Config.Model); err != nil {
		return result, err
	}
	p := &prompts{run: run{Options: o, ctx: ctx}, ids: make(map[string]int)}
	in, err := p.open()
	if err != nil {
		return result, err
	}
	defer p.in.Close()
	out, err := p.create()
	if err != nil {
		return result, err
	}
	defer p.close()
	err = p.complete(in)
	if out != nil {
		if closeErr := out.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("--results %s: %w", o.Config.ResultsFile, cause(closeErr))
		}
	}
	return p.total, err
}

// open opens the prompt file. What it returns is read by sendLines alone.
func (p *prompts) open() (io.Reader, error) {
	path := p.Config.PromptsFile
	if path == "-" {
		if p.Stdin == nil {
			return nil, fmt.Errorf("%w --prompts -: there is no stdin", ErrPrompt)
		}
		if file, ok := p.Stdin.(*os.File); ok && isDevice(file) {
			return nil, fmt.Errorf("%w --prompts -: stdin is a device, which may have no end: give a file, a pipe or a terminal", ErrPrompt)
		}
		p.stream = true
		return p.Stdin, nil
	}
	file, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w --prompts %s: no such file: check the path", ErrPrompt, path)
	case err != nil:
		return nil, fmt.Errorf("%w --prompts %s: %w", ErrPrompt, path, cause(err))
	}
	p.in = file
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w --prompts %s: %w", ErrPrompt, path, cause(err))
	case info.IsDir():
		file.Close()
		return nil, fmt.Errorf("%w --prompts %s is a folder: give a file in it", ErrPrompt, path)
	case isDevice(file):
		file.Close()
		return nil, fmt.Errorf("%w --prompts %s is a device, which may have no end: give a file or a pipe", ErrPrompt, path)
	}
	p.stream = !info.Mode().IsRegular()
	p.size = info.Size()
	return file, nil
}

// isDevice reports whether a file is a device other than a terminal.
func isDevice(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&fs.ModeDevice != 0 && !term.IsTerminal(int(file.Fd()))
}

// create makes the file for results, or leaves them to stdout.
func (p *prompts) create() (*os.File, error) {
	p.answers = answers{out: p.Stdout, ready: make(map[int]Answer)}
	path := p.Config.ResultsFile
	if path == "" {
		return nil, nil
	}
	if a, err := os.Stat(path); err == nil && p.in != nil {
		if b, err := p.in.Stat(); err == nil && os.SameFile(a, b) {
			return nil, fmt.Errorf("--results %s is the file of the prompts: give another one", path)
		}
	}
	mode := os.O_WRONLY | os.O_TRUNC
	if p.Done != nil {
		mode = os.O_RDWR
	}
	file, err := os.OpenFile(path, os.O_CREATE|mode, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--results %s: %w: check the path", path, cause(err))
	}
	p.answers.out = file
	if p.Done != nil {
		p.answers.earlier = newEarlier(file)
	}
	return file, nil
}

// prompts is the state of one RunPrompts.
type prompts struct {
	run
	in      *os.File // nil: stdin
	size    int64    // bytes of it
	stream  bool     // lines may be long in coming: work goes on meanwhile
	lines   <-chan promptLine
	ended   bool // no line is to come
	ids     map[string]int
	slots   []*slot
	next    int // order of the next line
	done    int64
	answers answers
	// The tokens to look at for reverse prompts and stops, and of which ones.
	pauses   []bool
	pauseFor string
	total    PromptsResult
}

// complete loads the model and works until there is nothing left to do.
func (p *prompts) complete(in io.Reader) error {
	if err := p.load(); err != nil {
		return err
	}
	if p.Config.Warmup && !p.KeepCold {
		if err := p.warmUp(); err != nil {
			return p.interrupted(err)
		}
	}
	p.total.Model, p.total.Load, p.total.WarmUp, p.total.ContextSize = p.result.Model, p.result.Load, p.result.WarmUp, p.llama.SequenceSize()
	for i := range p.Config.Parallel {
		p.slots = append(p.slots, &slot{seq: llama.Seq(i)})
	}
	defer p.closeSlots()
	lines, stop := make(chan promptLine, 1), make(chan struct{})
	defer close(stop)
	p.lines = lines
	go sendLines(in, lines, stop) // a read that waits for input is left to the end of the process
	if err := p.passDone(); err != nil {
		return p.interrupted(err)
	}
	begin := time.Now()
	err := p.work()
	p.total.Elapsed = time.Since(begin)
	if err != nil {
		return p.interrupted(err)
	}
	if err := p.answers.end(); err != nil {
		return err
	}
	switch {
	case p.next == 0:
		return fmt.Errorf(`%w --prompts %s holds no prompts: write one JSON object per line, such as {"id":1,"prompt":"Hello"}`, ErrPrompt, p.Config.PromptsFile)
	case p.total.Failed > 0:
		return fmt.Errorf("%d of %d %w", p.total.Failed, p.next, ErrPrompts)
	}
	return nil
}

// work admits prompts and decodes batches of all that are under way.
func (p *prompts) work() error {
	bar := p.progress("prompts")
	defer bar.Done()
	for {
		if err := p.admit(); err != nil {
			return err
		}
		if !p.busy() {
			return nil
		}
		next := p.step
		if s := p.alone(); s != nil {
			next = func() error { return p.burst(s) }
		}
		if err := next(); err != nil {
			return err
		}
		if p.size > 0 {
			bar.Set(float64(p.done) / float64(p.size))
		}
	}
}

// interrupted ends what is under way, where err is the end of ctx; every prompt that was begun has an answer then.
func (p *prompts) interrupted(err error) error {
	if !errors.Is(err, llama.ErrInterrupted) && !errors.Is(err, ErrInterrupted) {
		return err
	}
	p.total.Interrupted = true
	for _, s := range p.slots {
		if s.busy {
			if err := p.finish(s, FinishInterrupted); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%w: %w", ErrInterrupted, context.Cause(p.ctx))
}

// admit gives free slots the next lines. Of a file it waits for them; of a stream only while nothing is under way.
func (p *prompts) admit() error {
	for _, s := range p.slots {
		for !s.busy && !p.ended && p.next < p.answers.head+maxAhead {
			line, ok, err := p.receive()
			if err != nil || !ok {
				return err
			}
			if line.err != nil && !errors.Is(line.err, errLongLine) {
				return fmt.Errorf("%w --prompts %s, line %d: read: %w", ErrPrompt, p.Config.PromptsFile, line.number, cause(line.err))
			}
			if err := p.begin(s, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// receive returns the next line. false: there is none, or none yet.
func (p *prompts) receive() (line promptLine, ok bool, err error) {
	if p.stream && p.busy() {
		select {
		case line, ok = <-p.lines:
		default:
			return line, false, nil
		}
	} else {
		select {
		case line, ok = <-p.lines:
		case <-p.ctx.Done():
			return line, false, ErrInterrupted
		}
	}
	p.ended = p.ended || !ok
	return line, ok, nil
}

// begin starts the prompt of a line in a slot, or answers with what is wrong with it.
func (p *prompts) begin(s *slot, line promptLine) error {
	order := p.next
	p.next++
	var q config.Request
	err := line.err
	if err == nil {
		q, err = p.Config.ParseRequest(line.text)
	}
	if err == nil && q.ID != nil {
		if first, taken := p.ids[string(q.ID)]; taken {
			err = fmt.Errorf("id %s is that of line %d: give each line its own, or none", q.ID, first)
		} else {
			p.ids[string(q.ID)] = line.number
		}
	}
	*s = slot{seq: s.seq, begun: s.begun, order: order, line: line, request: q, output: -1}
	if err == nil {
		err = p.prepare(s)
	}
	if err != nil {
		return p.fail(s, err)
	}
	s.busy, s.begin = true, time.Now()
	if last := s.prompt[len(s.prompt)-1]; p.model.Vocab().EndsGeneration(last) {
		return p.finish(s, FinishStop) // so does Run, and decodes nothing
	}
	return nil
}

func (p *prompts) busy() bool {
	for _, s := range p.slots {
		if s.busy {
			return true
		}
	}
	return false
}

func (p *prompts) closeSlots() {
	for _, s := range p.slots {
		s.close()
	}
}
