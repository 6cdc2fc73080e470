package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/store/rundir"
)

// State says where Run keeps what it can be resumed from, and where it begins. It is for one prompt, without a
// prompt cache, and for samplers that draw as many random numbers as they are applied to tokens: of the others
// nothing that is kept says where they are.
type State struct {
	Folder string `json:"folder"`         // an existing one, which may be moved while the run is live
	Every  int    `json:"every"`          // tokens from one to the next; 0: none is kept
	Step   int64  `json:"step,omitempty"` // states are kept at multiples of it; 0: at any token
	From   int64  `json:"from,omitempty"` // Tokens of the Moment to begin at; 0: the beginning
	// Prompt is the PromptDigest of the tokens that the prompt had, where From is not 0.
	Prompt []byte `json:"prompt,omitempty"`
}

// Moment is where a run is, between choosing a token and decoding it, beside llama.cpp's memory.
type Moment struct {
	Version int             `json:"version"`
	Tokens  int64           `json:"tokens"` // decoded, the prompt's included
	Prompt  int             `json:"prompt"` // of these
	Chosen  []llama.Token   `json:"chosen"` // all that were; the last one is not decoded
	Choices []llama.Choices `json:"choices"`
	Size    int64           `json:"memory_bytes"`  // of the file of llama.cpp's memory
	CRC     uint32          `json:"memory_crc32c"` // the same
}

const momentVersion = 1

const partSuffix = ".part" // of a file that is not in its place yet

// ErrState occurs when a state is damaged, or cannot be kept.
var ErrState = errors.New("state")

// ReadMoment reads one and compares its memory with its checksum.
func ReadMoment(folder string, tokens int64) (*Moment, error) {
	state, memory := rundir.StatePaths(folder, tokens)
	text, err := rundir.ReadFile(state, rundir.MaxDocument)
	if err != nil {
		return nil, fmt.Errorf("read %w: %w", ErrState, err)
	}
	var m Moment
	if err := json.Unmarshal(text, &m); err != nil || m.Version != momentVersion || m.Tokens != tokens ||
		len(m.Chosen) == 0 {
		return nil, fmt.Errorf("read %w: %s was not written by this version of llamatap", ErrState, state)
	}
	size, crc, err := sumMemory(memory)
	if err == nil && (size != m.Size || crc != m.CRC) {
		err = fmt.Errorf("%s is damaged", memory)
	}
	if err != nil {
		return nil, fmt.Errorf("read %w: %w", ErrState, err)
	}
	return &m, nil
}

func sumMemory(path string) (size int64, crc uint32, err error) {
	file, err := rundir.OpenFile(path)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	size, err = io.Copy(sum, file)
	return size, sum.Sum32(), err
}

// maxStates is how many there may be. Each waits there until what was recorded up to it is on the disk and a later
// one is.
const maxStates = 4

// states keeps moments of a run. Without a State it does nothing.
type states struct {
	folder *os.File // its path may change
	every  int64
	step   int64
	prompt int
	chosen []llama.Token
	saved  int64
}

// openStates opens the folder, and refuses what cannot be kept.
func openStates(e *engine) (states, error) {
	s := e.State
	if s == nil {
		return states{}, nil
	}
	if err := keepable(e); err != nil {
		return states{}, err
	}
	folder, err := os.Open(s.Folder)
	if err != nil {
		return states{}, fmt.Errorf("--tap-checkpoint-state: %w", err)
	}
	names, _ := folder.Readdirnames(-1)
	for _, name := range names {
		if strings.HasSuffix(name, partSuffix) { // of a run that was killed
			os.Remove(filepath.Join(s.Folder, name))
		}
	}
	return states{folder: folder, every: int64(s.Every), step: max(s.Step, 1)}, nil
}

// keepable returns why the state of a run cannot be kept.
func keepable(e *engine) error {
	why := ""
	switch {
	case e.sampling.Mirostat != 0:
		why = "mirostat goes by what it has seen, which is not kept"
	case slices.Contains(e.sampling.Samplers, "adaptive_p"):
		why = "adaptive_p goes by what it has seen, which is not kept"
	case e.sampling.OnBackend:
		why = "--backend-sampling draws on the device"
	case e.Config.PromptCache != "":
		why = "a prompt cache begins in the middle"
	case e.model.SlidingWindow() > 0:
		why = "the model's memory has a sliding window, and llama.cpp puts its cells elsewhere when it is loaded: " +
			"the last bits would differ"
	default:
		return nil
	}
	return fmt.Errorf("--tap-checkpoint-state: no %w can be kept: %s; run without --tap-checkpoint-state, and the "+
		"run is resumed by computing it again", ErrState, why)
}

func (s *states) close() {
	if s.folder != nil {
		s.folder.Close()
	}
}

// path is that of the folder, wherever it is now.
func (s *states) path() string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(s.folder.Fd())))
}

// left is how many tokens are to be decoded before a state is to be kept; below 0: none is.
func (s *states) left(r *run) int {
	if s.folder == nil || s.every == 0 || r.result.Shifts > 0 {
		return -1
	}
	at := max(s.saved+s.every, int64(r.memory.pos))
	at += (s.step - at%s.step) % s.step
	return int(at - int64(r.memory.pos))
}

// update takes the tokens chosen since the last turn and keeps the state when it is time for one: all but the last of
// them are decoded, and that one is about to be. A run whose state cannot be written continues without; so does one
// whose context was shifted, for llama.cpp puts the cells of such a memory elsewhere when it is loaded.
func (s *states) update(r *run, tokens []llama.Token) {
	if s.folder == nil || s.every == 0 {
		return
	}
	s.chosen = append(s.chosen, tokens...)
	if s.left(r) != 0 || len(rundir.States(s.path())) >= maxStates {
		return
	}
	if err := s.save(r); err != nil {
		fmt.Fprintf(r.Stderr, "llamatap: --tap-checkpoint-state: %v; the run continues without it\n", err)
		s.every = 0
	}
	s.saved = int64(r.memory.pos)
}

// save writes the memory and then the moment, each under another name first.
func (s *states) save(r *run) error {
	m := Moment{Version: momentVersion, Tokens: int64(r.memory.pos), Prompt: s.prompt, Chosen: s.chosen,
		Choices: r.sampler.Choices()}
	state, memory := rundir.StatePaths(s.path(), m.Tokens)
	err := s.publish(memory, func(path string) (err error) {
		if err = r.llama.SaveState(path, nil); err == nil {
			m.Size, m.CRC, err = sumMemory(path)
		}
		if err == nil && freeBytes(path) < m.Size {
			err = fmt.Errorf("%w: less room would be left than the %d bytes that it takes, and the recording needs "+
				"some", syscall.ENOSPC, m.Size)
		}
		return err
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(&m)
	if err != nil {
		return err
	}
	return s.publish(state, func(path string) error { return os.WriteFile(path, text, 0o600) })
}

// publish renames a file to its final path once it is synced.
func (s *states) publish(path string, write func(path string) error) error {
	part := path + partSuffix
	err := write(part)
	if err == nil {
		err = syncFile(part)
	}
	if err == nil {
		err = os.Rename(part, path)
	}
	if err == nil {
		err = s.folder.Sync()
	}
	if err != nil {
		os.Remove(part)
		return fmt.Errorf("write %s: %w", filepath.Base(path), cli.Bare(err))
	}
	return nil
}

func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Chmod(0o600), file.Sync(), file.Close())
}

// restore brings the run to where a kept state is, and decodes the token that was chosen there.
func (r *run) restore(prompt []llama.Token) error {
	m, err := ReadMoment(r.State.Folder, r.State.From)
	if err != nil {
		return err
	}
	var digest PromptDigest
	digest.Add(prompt)
	if string(digest.Sum()) != string(r.State.Prompt) || m.Prompt != len(prompt) {
		return fmt.Errorf("%w is %w: give the text that the run had, or begin anew", ErrPrompt, ErrDone)
	}
	_, memory := rundir.StatePaths(r.State.Folder, m.Tokens)
	if _, err := r.llama.LoadState(memory); err != nil {
		return fmt.Errorf("%w; remove the folder %s, and the run is resumed by computing it again", err, r.State.Folder)
	}
	for _, token := range prompt {
		if err := r.sampler.AcceptPrompt(token); err != nil {
			return err
		}
		r.reverse.add(token)
	}
	for _, token := range m.Chosen {
		if err := r.sampler.Accept(token); err != nil {
			return err
		}
		r.reverse.add(token)
		r.text.pending = r.model.Vocab().AppendPiece(r.text.pending, token, r.Config.Special)
		if err := r.text.write(); err != nil {
			return err
		}
	}
	if err := r.sampler.ReplayChoices(m.Choices); err != nil {
		return err
	}
	r.memory.pos, r.result.Tokens = llama.Pos(m.Tokens), len(m.Chosen)
	r.states.chosen, r.states.saved = m.Chosen, m.Tokens
	r.result.DecodeSteps++
	return r.memory.decode(m.Chosen[len(m.Chosen)-1:], true)
}
