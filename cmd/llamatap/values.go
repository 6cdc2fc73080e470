package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The functions of this file return what a flag does with its value.

// parsed stores what a value is parsed as.
func parsed[T any](to *T, parse func(string) (T, error)) func(string) error {
	return func(text string) (err error) {
		*to, err = parse(text)
		return err
	}
}

// setEach calls a function for each part of a list with commas.
func setEach(set func(string) error) func(string) error {
	return func(list string) error {
		for text := range strings.SplitSeq(list, ",") {
			if err := set(strings.TrimSpace(text)); err != nil {
				return err
			}
		}
		return nil
	}
}

// listOf appends what each part of a list is parsed as.
func listOf[T any](to *[]T, parse func(string) (T, error)) func(string) error {
	return setEach(func(text string) error {
		value, err := parse(text)
		*to = append(*to, value)
		return err
	})
}

// wordList appends the words of a list. allowed are the valid words; empty: any.
func wordList[L ~[]string](to *L, allowed ...string) func(string) error {
	return setEach(func(word string) error {
		*to = append(*to, word)
		return checkWord(word, allowed)
	})
}

// choice stores one of some words.
func choice(to *string, allowed ...string) func(string) error {
	return func(word string) error {
		*to = word
		return checkWord(word, allowed)
	}
}

// checkWord refuses a word that is not among the allowed ones; if there are none, any word is.
func checkWord(word string, allowed []string) error {
	if len(allowed) > 0 && !slices.Contains(allowed, word) {
		return fmt.Errorf("use %s", strings.Join(allowed, ", "))
	}
	return nil
}

// notEmpty stores a text that has characters.
func notEmpty(to *string) func(string) error {
	return func(s string) error {
		if *to = s; s == "" {
			return errors.New("give a text that is not empty, or leave the flag out")
		}
		return nil
	}
}

// parseContext reads the number of a context.
func parseContext(text string) (*uint32, error) {
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, errors.New("give the number of a context, from 0")
	}
	return new(uint32(number)), nil
}

// parseFraction reads a number from 0 to 1.
func parseFraction(text string) (float64, error) {
	fraction, err := strconv.ParseFloat(text, 64)
	if err != nil || !(fraction >= 0 && fraction <= 1) {
		return 0, errors.New("give a number from 0 to 1")
	}
	return fraction, nil
}

// parsePID reads the id of a process.
func parsePID(text string) (int, error) {
	pid, err := strconv.Atoi(text)
	if err != nil || pid < 1 {
		return 0, fmt.Errorf("%.20q is not a process id", text)
	}
	return pid, nil
}
