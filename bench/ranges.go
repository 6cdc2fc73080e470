package bench

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// rangePattern is one part of a list of numbers as llama-bench writes it: first, first-last, first-last+step or
// first-last*factor.
var rangePattern = regexp.MustCompile(`^(-?[0-9]+)(?:-([0-9]+)(?:([+*])([0-9]+))?)?$`)

// mostValues bounds the values of one list; more are a typing error.
const mostValues = 10_000

// ParseInts reads a list of numbers as llama-bench does: 1,2,8 or the ranges 1-4, 128-512+128 and 1-8*2.
func ParseInts(text string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		match := rangePattern.FindStringSubmatch(strings.TrimSpace(part))
		if match == nil {
			return nil, fmt.Errorf("%q is neither a number nor a range: write 512, 1-4, 128-512+128 or 1-8*2", part)
		}
		first, err := strconv.Atoi(match[1])
		if err != nil {
			return nil, err
		}
		last, step := first, 1
		if match[2] != "" {
			if last, err = strconv.Atoi(match[2]); err != nil {
				return nil, err
			}
		}
		if match[4] != "" {
			if step, err = strconv.Atoi(match[4]); err != nil {
				return nil, err
			}
		}
		if last < first {
			return nil, fmt.Errorf("range %q ends before it begins", part)
		}
		for n := first; n <= last; {
			if all = append(all, n); len(all) > mostValues {
				return nil, fmt.Errorf("range %q has more than %d values", part, mostValues)
			}
			next := n + step
			if match[3] == "*" {
				next = n * step
			}
			if next <= n {
				return nil, fmt.Errorf("range %q does not grow", part)
			}
			n = next
		}
	}
	return all, nil
}
