package resources

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/llamatap/llamatap/resource"
)

// KindOf finds the kind of a line without reading all of it where "event" is its first key, as it is in what llamatap writes. ok is
// false where the line is no JSON object or its kind is not known.
func KindOf(line []byte) (kind resource.Kind, ok bool) {
	if rest, found := bytes.CutPrefix(line, []byte(`{"event":"`)); found {
		if end := bytes.IndexByte(rest, '"'); end >= 0 {
			kind, ok = kindOf[string(rest[:end])]
			return kind, ok
		}
	}
	var head struct {
		Event string `json:"event"`
	}
	if json.Unmarshal(line, &head) != nil {
		return 0, false
	}
	kind, ok = kindOf[head.Event]
	return kind, ok
}

var kindOf = func() map[string]resource.Kind {
	m := map[string]resource.Kind{}
	for i, name := range resource.Kinds() {
		m[name] = resource.Kind(i)
	}
	return m
}()

// badLine says what is wrong with a line that is no event: the reason that encoding/json has, or an unknown kind.
func badLine(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return fmt.Errorf("empty")
	}
	if _, err := resource.Decode(line); err != nil {
		return err
	}
	return fmt.Errorf("no event")
}
