package resource

import (
	"fmt"
	"strconv"
)

// CorrID identifies what an interval of host events belongs to, as text that can be sorted, grouped and parsed:
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
