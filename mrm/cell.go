package mrm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"unicode/utf8"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/internal/cli"
)

// Cell is one combination of the matrix.
type Cell struct {
	memory.Cell
	Source *Source
	Input  Input
	load   string // part of the name where the matrix has several numbers of tokens or requests
}

// Name is the cell in one word, for journals and lines on a screen.
func (cell *Cell) Name() string {
	name, repetition := cell.Cell.Name(), fmt.Sprintf("/r%d", cell.Repetition)
	return strings.TrimSuffix(name, repetition) + cell.load + repetition
}

// Input is a prompt as the model gets it: a text, or tokens.
type Input struct {
	Text   string
	Tokens []int64
}

// bytes returns the input as a value of JSON, which is what its sum is of.
func (in *Input) bytes() []byte {
	var v any = in.Text
	if in.Tokens != nil {
		v = in.Tokens
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // of a text, or of numbers
	}
	return text
}

// length is how many tokens the input has; of a text an estimate, by its bytes, and exact is false.
func (in *Input) length() (tokens int64, exact bool) {
	if in.Tokens != nil {
		return int64(len(in.Tokens)), true
	}
	return int64(len(in.Text)/3 + 2), false // no common tokenizer needs more for prose in any alphabet of Europe
}

// Cells are the matrix: repetitions outermost, so that what drifts is spread over all cells and another repetition
// comes behind all others; then models, contexts, cache types, numbers of tokens and of requests, and prompts.
func (c *Config) Cells(sources []*Source) ([]*Cell, error) {
	problems := c.problems()
	inputs := c.inputs(sources, problems)
	if err := problems.error(); err != nil {
		return nil, err
	}
	var cells []*Cell
	for repetition := range int(c.Experiment.Repetitions) {
		for m, source := range sources {
			for _, nCtx := range c.Engine.NCtx {
				for _, kvType := range c.Engine.KVType {
					for _, tokens := range c.Workload.MaxTokens {
						for _, requests := range c.Workload.Concurrency {
							for p := range c.Workload.Prompts {
								cells = append(cells, newCell(c, source, inputs[m][p], memory.Cell{
									Index: len(cells), ModelID: source.ID, Prompt: c.Workload.Prompts[p].ID,
									NCtx: int(nCtx), KVType: kvType, Repetition: repetition,
									MaxTokens: int(tokens), Concurrency: int(requests),
								}))
							}
						}
					}
				}
			}
		}
	}
	return cells, nil
}

// newCell completes a place in the matrix. Its key is of everything that identifies it but the repetition; of a
// program that is not passed a key, the key's value is not part of the cell.
func newCell(c *Config, s *Source, in Input, at memory.Cell) *Cell {
	sum := sha256.Sum256(in.bytes())
	at.PromptSHA256 = hex.EncodeToString(sum[:])
	at.Seed = uint32(c.Experiment.Seed) + uint32(at.Repetition)*uint32(at.Concurrency)
	cell := &Cell{Source: s, Input: in, Cell: at}
	if len(c.Workload.MaxTokens) > 1 {
		cell.load = fmt.Sprintf("/n%d", at.MaxTokens)
	}
	if len(c.Workload.Concurrency) > 1 {
		cell.load += fmt.Sprintf("/x%d", at.Concurrency)
	}
	if c.Engine.isCommand() {
		for key, value := range map[string]*int{
			"engine.n_ctx": &cell.NCtx, "workload.max_tokens": &cell.MaxTokens,
			"workload.concurrency": &cell.Concurrency,
		} {
			if !c.Engine.passes(key) {
				*value = 0
			}
		}
		if !c.Engine.passes("engine.kv_type") {
			cell.KVType = ""
		}
	}
	engine := c.Engine
	engine.NCtx, engine.KVType = nil, nil
	text, err := json.Marshal([]any{
		c.Experiment.Name, c.Experiment.Seed, cell.ModelID, s.Fingerprint, cell.Prompt, cell.PromptSHA256, cell.NCtx,
		cell.KVType, cell.MaxTokens, cell.Concurrency, engine, c.Collector, c.KV, c.Analysis,
	})
	if err != nil {
		panic(err) // of numbers and texts
	}
	sum = sha256.Sum256(text)
	cell.Key = hex.EncodeToString(sum[:8])
	return cell
}

// inputs are the prompts, by model and prompt. A prompt that a model's own context is too short for is a problem.
func (c *Config) inputs(sources []*Source, problems *Problems) [][]Input {
	all := make([][]Input, len(sources))
	for m, s := range sources {
		for i := range c.Workload.Prompts {
			prompt, where := &c.Workload.Prompts[i], fmt.Sprintf("workload.prompts[%d]", i)
			in, err := c.input(prompt, s)
			if err != nil && m == 0 {
				problems.add(err.Error(), "give a file of text in UTF-8, from the folder of this file", where+".file",
					where)
			}
			if why := c.Engine.noWord(&in); why != "" && m == 0 {
				problems.add(fmt.Sprintf("the prompt %s %s", prompt.ID, why), "pass it as a file: {prompt_file}", where)
			}
			all[m] = append(all[m], in)
			tokens, exact := in.length()
			for k, n := range c.Engine.NCtx {
				if need, have := c.Workload.cells(tokens), s.context(n, 1); exact && need > have {
					problems.add(fmt.Sprintf(
						"the context of %d tokens of %s is too short for the prompt %s, which takes %d",
						have, s.ID, prompt.ID, need),
						"give a longer n_ctx, or generate fewer tokens (workload.max_tokens)",
						fmt.Sprintf("engine.n_ctx[%d]", k), "engine.n_ctx", "workload.prompts")
				}
			}
		}
	}
	return all
}

// cells is how many cells of a context the largest combination of requests takes, with a prompt of so many tokens.
func (w *Workload) cells(prompt int64) int64 {
	return (prompt + largest(w.MaxTokens)) * largest(w.Concurrency)
}

// largest is the largest of some numbers; 0 of none, which a file with an empty list has.
func largest(all []int64) (most int64) {
	for _, n := range all {
		most = max(most, n)
	}
	return most
}

// largestPrompt bounds the file of a prompt.
const largestPrompt = 16 << 20

func (c *Config) input(p *Prompt, s *Source) (Input, error) {
	switch {
	case p.Length > 0:
		return Input{Tokens: randomTokens(p.Length, s.Identity.Vocab)}, nil
	case p.File == "":
		return Input{Text: p.Text}, nil
	}
	path := c.resolvePath(p.File)
	text, err := cli.ReadFile(path, largestPrompt)
	var bare *fs.PathError
	switch {
	case errors.As(err, &bare):
		return Input{}, fmt.Errorf("the prompt %s: %w", path, bare.Err)
	case err != nil:
		return Input{}, err
	case len(text) > largestPrompt:
		return Input{}, fmt.Errorf("the prompt %s has %d bytes, more than %d", path, len(text), largestPrompt)
	case len(text) == 0 || !utf8.Valid(text):
		return Input{}, fmt.Errorf("the prompt %s is empty, or no UTF-8", path)
	}
	return Input{Text: string(text)}, nil
}

// randomTokens are the same for the same number and vocabulary, whatever the experiment's seed: a prompt does not
// change with it.
func randomTokens(n, vocab int64) []int64 {
	random := rand.New(rand.NewPCG(uint64(n), uint64(vocab)))
	tokens := make([]int64, n)
	for i := range tokens {
		tokens[i] = random.Int64N(max(vocab, 1))
	}
	return tokens
}
