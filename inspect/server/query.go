package server

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/resource"
)

// checkQuery refuses parameters that a route does not have: a misspelt one would be passed over in silence.
func checkQuery(r *http.Request, known ...string) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fail(http.StatusBadRequest, "query %.80q: %w", r.URL.RawQuery, err)
	}
	for key, of := range values {
		switch {
		case len(known) == 0:
			return fail(http.StatusBadRequest, "unknown parameter %.40q: %s has none", key, r.URL.Path)
		case !slices.Contains(known, key):
			return fail(http.StatusBadRequest, "unknown parameter %.40q: %s has %s", key, r.URL.Path,
				strings.Join(known, ", "))
		case len(of) > 1 && key != "event":
			return fail(http.StatusBadRequest, "parameter %s is given %d times: give it once", key, len(of))
		}
	}
	return nil
}

// fromLine reads the parameter: how many lines of the log are left out.
func fromLine(r *http.Request) (int64, error) {
	text := r.URL.Query().Get("from_line")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fail(http.StatusBadRequest, "from_line %.40q: give the number of lines that you have, from 0", text)
	}
	return n, nil
}

// flagOf reads a parameter that is on or off.
func flagOf(r *http.Request, key string) (bool, error) {
	query := r.URL.Query()
	if !query.Has(key) {
		return false, nil
	}
	switch query.Get(key) {
	case "", "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	}
	return false, fail(http.StatusBadRequest, "%s %.40q: use true or false", key, query.Get(key))
}

// filter keeps lines by their event and layer.
type filter struct {
	kinds []string
	layer *int
}

func newFilter(r *http.Request) (f filter, err error) {
	query := r.URL.Query()
	for _, list := range query["event"] {
		for name := range strings.SplitSeq(list, ",") {
			if _, err := resource.ParseKind(name); err != nil {
				return f, fail(http.StatusBadRequest, "event: %.120s", err)
			}
			f.kinds = append(f.kinds, name)
		}
	}
	if text := query.Get("layer"); text != "" {
		layer, err := strconv.Atoi(text)
		if text == "none" {
			layer, err = -1, nil
		}
		if err != nil || layer < -1 {
			return f, fail(http.StatusBadRequest, "layer %.40q: give a layer number from 0, or none", text)
		}
		f.layer = &layer
	}
	return f, nil
}

// takes reports whether a line is wanted; valid is false for a line that is not a JSON object.
func (f *filter) takes(line []byte) (wanted, valid bool) {
	if f.kinds == nil && f.layer == nil {
		valid = len(line) > 0 && line[0] == '{' && json.Valid(line)
		return valid, valid
	}
	var head struct {
		Event   string `json:"event"`
		LayerID *int   `json:"layer_id"`
	}
	if json.Unmarshal(line, &head) != nil {
		return false, false
	}
	return (f.kinds == nil || slices.Contains(f.kinds, head.Event)) &&
		(f.layer == nil || head.LayerID != nil && *head.LayerID == *f.layer), true
}
