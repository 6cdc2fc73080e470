package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// field is what an option sets in a Tap. get is for Echo: a nil result says nothing, an empty text means the default.
type field struct {
	set func(*Tap, string) error
	get func(*Tap) any
}

// parsed is a field that parse reads.
func parsed[V any](at func(*Tap) *V, parse func(string) (V, error)) field {
	return field{
		set: func(t *Tap, s string) (err error) { *at(t), err = parse(s); return err },
		get: func(t *Tap) any { return *at(t) },
	}
}

// written is a field that Echo writes as a user would.
func written[V any](at func(*Tap) *V, parse func(string) (V, error), write func(V) string) field {
	f := parsed(at, parse)
	f.get = func(t *Tap) any { return write(*at(t)) }
	return f
}

// plain is any text.
func plain(at func(*Tap) *string) field {
	return parsed(at, func(s string) (string, error) { return s, nil })
}

// choice is one of some words; what names them in an error.
func choice[S ~string](at func(*Tap) *S, what string, words ...string) field {
	return parsed(at, func(s string) (S, error) {
		word, err := oneOf(what, s, words)
		return S(word), err
	})
}

// either is a field that the second of two words makes true.
func either(at func(*Tap) *bool, what, no, yes string) field {
	return field{
		set: func(t *Tap, s string) error {
			word, err := oneOf(what, s, []string{no, yes})
			*at(t) = word == yes
			return err
		},
		get: func(t *Tap) any { return map[bool]string{false: no, true: yes}[*at(t)] },
	}
}

func joined(words []string) string { return strings.Join(words, ",") }

func listed[V fmt.Stringer](all []V) string {
	words := make([]string, len(all))
	for i, v := range all {
		words[i] = v.String()
	}
	return joined(words)
}

func oneOf(what, s string, words []string) (string, error) {
	if slices.Contains(words, s) {
		return s, nil
	}
	return "", fmt.Errorf("unknown %s %q: use %s", what, s, strings.Join(words, ", "))
}

// whole is a whole number from least to most. The error has %q where it quotes what was given.
func whole[N int | int64 | uint64](at func(*Tap) *N, least, most N, wrong string) field {
	return parsed(at, func(s string) (N, error) {
		n, err := strconv.ParseUint(strings.TrimPrefix(s, "+"), 10, 64)
		if err != nil || n < uint64(least) || n > uint64(most) {
			return 0, fmt.Errorf(wrong, s)
		}
		return N(n), nil
	})
}

// number is a number from least to most, with an error as that of whole.
func number(at func(*Tap) *float64, least, most float64, wrong string) field {
	return parsed(at, func(s string) (float64, error) {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || !(n >= least && n <= most) { // NaN is neither
			return 0, fmt.Errorf(wrong, s)
		}
		return n, nil
	})
}

// span is a time from least to most, with an error as that of whole.
func span(at func(*Tap) *time.Duration, least, most time.Duration, wrong string) field {
	return written(at, func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d < least || d > most {
			return 0, fmt.Errorf(wrong, s)
		}
		return d, nil
	}, time.Duration.String)
}
