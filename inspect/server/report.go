package server

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// links admit browsers to a report for some time: a link that is clicked cannot carry the token. They end with the
// server.
type links struct{ secret [32]byte }

// linkTime is how long a link admits.
const linkTime = 10 * time.Minute

func newLinks() (l links) {
	rand.Read(l.secret[:]) // never fails
	return l
}

// key admits to a path until a time in Unix seconds.
func (l *links) key(path string, until int64) string {
	sum := hmac.New(sha256.New, l.secret[:])
	fmt.Fprintf(sum, "%s\n%d", path, until)
	return fmt.Sprintf("%d.%s", until, hex.EncodeToString(sum.Sum(nil)))
}

// admit reports whether a request has the key of its path.
func (l *links) admit(r *http.Request) bool {
	given := r.URL.Query().Get("key")
	text, _, _ := strings.Cut(given, ".")
	until, err := strconv.ParseInt(text, 10, 64)
	return err == nil && r.Method == http.MethodGet && time.Now().Unix() <= until &&
		hmac.Equal([]byte(given), []byte(l.key(r.URL.Path, until)))
}

// to is the answer that has a link to the report of a run.
func (l *links) to(run string) map[string]string {
	path := "/runs/" + run + "/report"
	return map[string]string{"path": path + "?key=" + l.key(path, time.Now().Add(linkTime).Unix())}
}

// link answers POST /runs/{id}/report: a path that a browser can open without the token.
func (s reports) link(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r); err != nil {
		return err
	}
	run, err := s.runs.find(r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.links.to(run.ID))
}

// html answers GET /runs/{id}/report: the run's report as a page.
func (s reports) html(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "key"); err != nil {
		return err
	}
	run, err := s.runs.find(r.PathValue("id"))
	switch {
	case err != nil:
		return err
	case s.o.Report == nil:
		return fail(http.StatusNotImplemented, "this server makes no reports: 'llamatap report %s' does", run.ID)
	}
	done, err := s.acquire(r)
	if err != nil {
		return err
	}
	defer done()
	var text bytes.Buffer
	if err := s.o.Report(r.Context(), run.dir, &text); err != nil {
		return err
	}
	return writeHTML(s.stream(w), text.String(), policy(text.String()))
}
