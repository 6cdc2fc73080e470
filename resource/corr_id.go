package resource

import (
	"fmt"
	"strconv"
	"strings"
)

// CorrID says what an interval of host events belongs to, in one word that can be sorted, grouped and parsed:
//
//	{run}-{interval}                          no model was computing, or none is known
//	{run}-{interval}-{phase}                  a phase without tokens: load, setup, maintenance, between
//	{run}-{interval}-{phase}-{first}-{last}   tokens of the run that were computed in the interval, both ends included
type CorrID struct {
	Run      string // run id; has no minus
	Interval uint64 // number of the interval, from 1 on
	Phase    string // "" is none
	Tokens   bool   // First and Last are set
	// First and Last are token indices, as in activations_tokens.json.
	First, Last int64
}

// String writes the id.
func (c CorrID) String() string {
	s := c.Run + "-" + strconv.FormatUint(c.Interval, 10)
	if c.Phase != "" {
		s += "-" + c.Phase
		if c.Tokens {
			s += fmt.Sprintf("-%d-%d", c.First, c.Last)
		}
	}
	return s
}

// ParseCorrID is the inverse of String.
func ParseCorrID(text string) (CorrID, error) {
	parts := strings.Split(text, "-")
	n := len(parts)
	if n != 2 && n != 3 && n != 5 || parts[0] == "" || n > 2 && parts[2] == "" {
		return CorrID{}, badCorrID(text)
	}
	c := CorrID{Run: parts[0]}
	var err error
	if c.Interval, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return CorrID{}, badCorrID(text)
	}
	if n > 2 {
		c.Phase = parts[2]
	}
	if n == 5 {
		var errLast error
		c.First, err = strconv.ParseInt(parts[3], 10, 64)
		c.Last, errLast = strconv.ParseInt(parts[4], 10, 64)
		if c.Tokens = true; err != nil || errLast != nil || c.First > c.Last {
			return CorrID{}, badCorrID(text)
		}
	}
	return c, nil
}

func badCorrID(text string) error {
	return fmt.Errorf("correlation id %.80q: want RUN-INTERVAL[-PHASE[-FIRST-LAST]], as llamatap host prof writes it", text)
}
