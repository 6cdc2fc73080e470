package llama

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckGrammar(t *testing.T) {
	for text, good := range map[string]bool{
		`root ::= "a" | ("b" [(((] # ((((` + "\n" + `)*`:          true,
		`root ::= "` + strings.Repeat("(", 1000) + `"`:            true,
		"root ::= " + strings.Repeat("()", 1000):                  true,
		"root ::= " + strings.Repeat("(", 200000):                 false,
		`root ::= "\"" ` + strings.Repeat("(", 300):               false,
		`root ::= [\]] ` + strings.Repeat("(", 300):               false,
		strings.Repeat("a ::= b\n", 20000):                        false,
		"root ::= " + strings.Repeat(`"a"? `, 20000):              false,
		"root ::= # \"\n" + strings.Repeat("(", maxGroups+1):      false,
		"root ::= " + strings.Repeat("(", maxGroups) + `"a" ))))`: true,
	} {
		if err := checkGrammar(text); (err == nil) != good || err != nil && !errors.Is(err, ErrGrammar) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}
