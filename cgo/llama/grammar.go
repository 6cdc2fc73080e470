package llama

import "fmt"

// Most of a grammar that llama.cpp is given: its reader calls itself for each group in a group and for each rule
// that a rule begins with, and the process ends where its stack does. Measured with llama-completion (llama.cpp
// 0.7.0, amd64) and the usual stack of 8 MiB: 64,000 groups inside of each other are read and 80,000 end the
// process, 64,000 rules in a row are read and 100,000 end it. With 400 KiB, 600 and 1,000 groups; with 512 KiB,
// 4,000 and 5,000 rules. A thread has 2 MiB where the stack is unlimited.
const (
	maxGroups    = 256   // inside of each other
	maxOperators = 10000 // groups, rules and repetitions together: each becomes a rule
)

// checkGrammar reports a grammar in GBNF that is nested deeper, or has more rules, than llama.cpp's reader survives.
func checkGrammar(gbnf string) error {
	depth, operators := 0, 0
	closing := byte(0) // of a literal or a class of characters; '\n' of a comment
	for i := 0; i < len(gbnf); i++ {
		c := gbnf[i]
		switch {
		case closing != 0:
			if c == '\\' && closing != '\n' {
				i++
			} else if c == closing {
				closing = 0
			}
			continue
		case c == '"':
			closing = '"'
		case c == '[':
			closing = ']'
		case c == '#':
			closing = '\n'
		case c == '(':
			depth++
			operators++
		case c == ')':
			depth = max(depth-1, 0)
		case c == '*', c == '+', c == '?', c == '{', c == '=':
			operators++
		}
		if depth > maxGroups {
			return fmt.Errorf("%w: groups are nested more than %d deep: name some of them as rules",
				ErrGrammar, maxGroups)
		}
		if operators > maxOperators {
			return fmt.Errorf("%w: more than %d rules, groups and repetitions: give a smaller one", ErrGrammar,
				maxOperators)
		}
	}
	return nil
}
