package ggmlhooks

import (
	"fmt"
	"strconv"
	"strings"
)

// TokenRule selects token rows. Indices are those of activations_tokens.json: every token of the run in order, prompt
// included, from 0. The zero value selects every token.
type TokenRule struct {
	Kind  TokenKind
	First int64 // TokenRange: first index
	End   int64 // TokenRange: one past the last index; -1 = no end
	Step  int64 // TokenEvery: every Step-th index, starting at 0
}

// TokenKind is the form of a TokenRule. The numbers are shared with cgo/tap.
type TokenKind uint8

// The forms of a TokenRule.
const (
	TokenAll   TokenKind = iota // every token
	TokenLast                   // whose logits the program asked for: the last of a prompt, each generated one
	TokenRange                  // indices First ≤ i < End
	TokenEvery                  // indices divisible by Step
)

// ParseTokenRule reads all, last, A:B (half open, either side may be empty) or every:N.
func ParseTokenRule(s string) (TokenRule, error) {
	switch {
	case s == "" || s == "all":
		return TokenRule{}, nil
	case s == "last":
		return TokenRule{Kind: TokenLast}, nil
	case strings.HasPrefix(s, "every:"):
		step, err := strconv.ParseInt(s[len("every:"):], 10, 64)
		if err != nil || step < 1 {
			return TokenRule{}, fmt.Errorf("token rule %q: N in every:N must be a whole number from 1", s)
		}
		return TokenRule{Kind: TokenEvery, Step: step}, nil
	}
	return parseTokenRange(s)
}

func parseTokenRange(s string) (TokenRule, error) {
	from, to, found := strings.Cut(s, ":")
	if !found {
		return TokenRule{}, fmt.Errorf("token rule %q: use all, last, A:B or every:N", s)
	}
	rule := TokenRule{Kind: TokenRange, End: -1}
	var err error
	if from != "" {
		if rule.First, err = strconv.ParseInt(from, 10, 64); err != nil || rule.First < 0 {
			return TokenRule{}, fmt.Errorf("token rule %q: A in A:B must be a whole number from 0", s)
		}
	}
	if to != "" {
		if rule.End, err = strconv.ParseInt(to, 10, 64); err != nil || rule.End <= rule.First {
			return TokenRule{}, fmt.Errorf("token rule %q: B in A:B must be a whole number above A "+
				"(B itself is left out)", s)
		}
	}
	return rule, nil
}

// String writes the rule as ParseTokenRule reads it.
func (r TokenRule) String() string {
	switch r.Kind {
	case TokenLast:
		return "last"
	case TokenEvery:
		return fmt.Sprintf("every:%d", r.Step)
	case TokenRange:
		if r.End < 0 {
			return fmt.Sprintf("%d:", r.First)
		}
		return fmt.Sprintf("%d:%d", r.First, r.End)
	}
	return "all"
}

// MarshalText writes the rule as String does.
func (r TokenRule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the rule as ParseTokenRule does.
func (r *TokenRule) UnmarshalText(text []byte) error {
	parsed, err := ParseTokenRule(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}
