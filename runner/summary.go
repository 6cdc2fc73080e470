package runner

import (
	"fmt"
	"io"
	"time"

	"github.com/llamatap/llamatap/internal/present"
)

// WriteSummary writes what a run measured, in three lines.
func (r *Result) WriteSummary(out io.Writer) error {
	seed := ""
	if r.SamplesChance {
		seed = fmt.Sprintf(", seed %d", r.Seed)
	}
	cached := ""
	if r.CachedTokens > 0 {
		cached = fmt.Sprintf("%s cached, ", present.Plural(r.CachedTokens, "token"))
	}
	_, err := fmt.Fprintf(out, `llamatap: %s, context %d%s, loaded in %s, warmed up in %s
llamatap: prompt %s%s, generation %s
llamatap: %s
`, r.Model, r.ContextSize, seed, present.Duration(r.Load), present.Duration(r.WarmUp),
		cached, perSecond(r.PromptTokens, r.Prompt, r.PromptRate()), perSecond(r.Tokens, r.Generation,
			r.GenerationRate()), r.ending())
	return err
}

func (r *Result) ending() string {
	switch r.Finish {
	case FinishStop:
		if r.Tokens == 0 {
			return "the prompt is empty or ends with a token that ends a text, so there was nothing to do: give " +
				"more text"
		}
		return "the model ended the text"
	case FinishReverse:
		if r.Tokens == 0 {
			return "the prompt ends with a reverse prompt, so there was nothing to do"
		}
		return "ended by a reverse prompt"
	case FinishLength:
		return fmt.Sprintf("ended after %s, as asked for", present.Plural(r.Tokens, "token"))
	case FinishContext:
		return fmt.Sprintf("ended because the context of %d tokens is full: -c makes it longer, --context-shift "+
			"goes on", r.ContextSize)
	}
	return fmt.Sprintf("interrupted after %s", present.Plural(r.Tokens, "token"))
}

func perSecond(tokens int, d time.Duration, rate float64) string {
	if rate == 0 {
		return fmt.Sprintf("%s in %s", present.Plural(tokens, "token"), present.Duration(d))
	}
	return fmt.Sprintf("%s in %s (%.1f tokens/s)", present.Plural(tokens, "token"), present.Duration(d), rate)
}
