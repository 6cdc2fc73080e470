package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A SampleRule says of which requests tensors and tokens stay. One of its conditions is set.
type SampleRule struct {
	Text   string        // as it was given
	OneIn  int64         // those whose number is a multiple of this; 0: not by number
	Slower time.Duration // those that took at least this long, from arrival to end; 0: not by time
	Errors bool          // those that ended with an error
}

// sampleSegment is how long a segment of a run becomes of which a sample is kept, where nothing else says so.
const sampleSegment = 5 * time.Second

// KeepsSample reports whether the tensors and tokens of some requests are given back at their end.
func (t *Tap) KeepsSample() bool { return len(t.RequestSample) > 0 && t.Records(Requests) }

// SampleText writes rules as a user would.
func SampleText(rules []SampleRule) string {
	var texts []string
	for _, r := range rules {
		texts = append(texts, r.Text)
	}
	return strings.Join(texts, ",")
}

func parseRequestSample(s string) (rules []SampleRule, err error) {
	for text := range strings.SplitSeq(s, ",") {
		rule := SampleRule{Text: text}
		kind, value, _ := strings.Cut(text, ":")
		number, one := strings.CutPrefix(text, "1/")
		switch {
		case one:
			rule.OneIn, err = strconv.ParseInt(number, 10, 64)
		case kind == "slower":
			rule.Slower, err = time.ParseDuration(value)
		case text == "errors":
			rule.Errors = true
		}
		if err != nil || rule.OneIn <= 0 && rule.Slower <= 0 && !rule.Errors {
			return nil, fmt.Errorf("sample of requests %q: write 1/N such as 1/100, slower:TIME such as slower:2s, "+
				"errors, or several of them with commas", text)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// sample refuses to give back segments that are copied elsewhere meanwhile, or where none are recorded.
func (c checker) sample() error {
	switch where := c.tap.origins["request-sample"].where; {
	case !c.tap.KeepsSample():
	case c.tap.Store != "":
		return fmt.Errorf("%s gives back segments, and --tap-out %s copies each of them: record into a folder, or "+
			"drop it",
			where, c.tap.Store)
	case !c.tap.Records(Activations):
		return fmt.Errorf("%s keeps the tensors and tokens of a sample, and none are recorded: add --tap-tensor, or "+
			"drop it",
			where)
	}
	return nil
}
