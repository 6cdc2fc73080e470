package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/cli"
)

// promptCache is a file with the state of a context behind a prompt, in llama.cpp's session format. Its state lacks
// the last of its tokens, which is decoded again to have its logits. Without a path it does nothing.
type promptCache struct {
	path   string
	tokens []llama.Token // whose state the memory holds, or the file held
	used   int           // of tokens, found in the prompt
	before bool          // save before the prompt's last token is decoded
	after  bool          // save at the end
}

// checkCache refuses a prompt cache that is there and no file.
func checkCache(path string) error {
	info, err := os.Stat(path)
	switch {
	case path == "" || errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--prompt-cache %s: %w: check the path", path, cli.Bare(err))
	case !info.Mode().IsRegular():
		return fmt.Errorf("--prompt-cache %s is not a regular file: give the name of a file", path)
	}
	return nil
}

// open loads the cache of a run, if there is one, and keeps of it what the prompt begins with. It returns the prompt's
// tokens: those of the cache where the prompt is empty.
func (c *promptCache) open(r *run, prompt string, tokens []llama.Token) ([]llama.Token, error) {
	c.path = r.Config.PromptCache
	if c.path == "" {
		return tokens, nil
	}
	if info, err := os.Stat(c.path); err == nil && info.Size() > 0 {
		if c.tokens, err = r.llama.LoadState(c.path); err != nil {
			return nil, fmt.Errorf("--prompt-cache %s: %w: it was written with another model or other settings, or "+
				"is damaged; delete it or give another name", c.path, err)
		}
	}
	if prompt == "" && len(c.tokens) > 0 {
		tokens = append([]llama.Token(nil), c.tokens...)
		if err := checkLength(tokens, r.llama.Size()); err != nil {
			return nil, err
		}
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%w is empty, and so is --prompt-cache %s: give some text", ErrPrompt, c.path)
	}
	match := c.match(r.llama, tokens)
	writes := !r.Config.PromptCacheRO
	c.before, c.after = writes && match < len(tokens), writes && r.Config.PromptCacheAll
	if match == 0 {
		return tokens, nil
	}
	c.before = false // as llama-completion: a prompt that continues where the cache ends is not saved
	// The last token that remains is decoded once more. A recording takes a token behind logits for a generated one.
	again := sequence{llama: r.llama, batch: r.batch, pos: llama.Pos(match - 1)}
	if err := again.decode(c.tokens[match-1:], match == len(tokens)); err != nil {
		return nil, fmt.Errorf("--prompt-cache %s: %w: delete it or give another name", c.path, err)
	}
	return tokens, nil
}

// match forgets what of the cache the prompt does not begin with, and returns how many tokens remain.
func (c *promptCache) match(x *llama.Context, tokens []llama.Token) int {
	match := 0
	for match < min(len(c.tokens), len(tokens)) && c.tokens[match] == tokens[match] {
		match++
	}
	if len(c.tokens) > match {
		if x.Memory().Remove(llama.AllSequences, llama.Pos(max(match-1, 0)), llama.AllPositions) {
			c.tokens = c.tokens[:match]
		} else { // a recurrent state cannot forget a part
			x.Memory().Clear(true)
			c.tokens, match = nil, 0
		}
	}
	return match
}

// cachedTokens returns how many tokens of a part of the prompt are in the cache.
func (c *promptCache) cachedTokens(part []llama.Token) int {
	n := min(len(c.tokens)-c.used, len(part))
	if c.path == "" || n <= 0 {
		return 0
	}
	c.used += n
	return n
}

// add notes tokens that are decoded, or about to be.
func (c *promptCache) add(tokens ...llama.Token) {
	if c.path != "" {
		c.tokens = append(c.tokens, tokens...)
		c.used = len(c.tokens)
	}
}

// disable ends the cache: nothing is saved any more.
func (c *promptCache) disable() { *c = promptCache{} }

// wanted reports whether the cache is to be saved before the prompt's last token.
func (c *promptCache) wanted() bool { return c.path != "" && c.before }

// saveAll saves the state at the end of a run, where that was asked for. last was chosen and not decoded.
func (c *promptCache) saveAll(x *llama.Context, last llama.Token) error {
	if c.path == "" || !c.after || last == llama.NoToken {
		return nil
	}
	c.add(last)
	return c.save(x)
}

// save writes the file under a temporary name first, so that a reader finds a whole one. It holds the prompt: its
// user alone may read it.
func (c *promptCache) save(x *llama.Context) error {
	temporary, err := os.CreateTemp(filepath.Dir(c.path), filepath.Base(c.path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("--prompt-cache %s: %w: give a name in a folder that can be written to", c.path,
			cli.Bare(err))
	}
	defer os.Remove(temporary.Name()) // where it was not renamed
	defer temporary.Close()
	if err := x.SaveState(temporary.Name(), c.tokens); err != nil {
		return fmt.Errorf("--prompt-cache %s: %w: is the disk full?", c.path, err)
	}
	if err := errors.Join(temporary.Sync(), os.Rename(temporary.Name(), c.path)); err != nil {
		return fmt.Errorf("--prompt-cache %s: %w: check the disk", c.path, cli.Bare(err))
	}
	return nil
}
