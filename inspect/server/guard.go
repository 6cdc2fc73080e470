package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"path"
	"strings"
	"time"
)

// guard lets through what may come in: whoever has the token, or may connect where there is none; bounded bodies,
// and none where none belongs; paths without dots; no requests that a page of another site makes.
func (s guarded) guard(next http.Handler) http.Handler {
	sameSite := http.NewCrossOriginProtection()
	for _, origin := range s.o.Origins {
		_ = sameSite.AddTrustedOrigin(origin) // CheckOrigin has taken it
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		limits := s.o.Limits
		control := http.NewResponseController(w)
		control.SetWriteDeadline(time.Now().Add(limits.WriteTime))
		if r.Body != nil && r.ContentLength != 0 {
			// holds until the body is read, or the next request begins
			control.SetReadDeadline(time.Now().Add(limits.ReadTime))
			r.Body = http.MaxBytesReader(w, r.Body, limits.Body)
		}
		if s.allowOrigin(w, r) {
			return
		}
		err := s.admit(r)
		if err == nil {
			if cross := sameSite.Check(r); cross != nil {
				err = fail(http.StatusForbidden, "%w: a page of another site may not do this", cross)
			}
		}
		if err != nil {
			if status := err.(failure).status; status == http.StatusUnauthorized {
				if wantsPage(r) {
					writePage(w)
					return
				}
				header.Set("WWW-Authenticate", `Bearer realm="llamatap"`)
			}
			if r.ContentLength != 0 {
				header.Set("Connection", "close") // its body is not read
			}
			writeError(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admit says why a request is not let in.
func (s guarded) admit(r *http.Request) error {
	switch {
	case !strings.HasPrefix(r.URL.Path, "/"), strings.ContainsRune(r.URL.Path, 0):
		return fail(http.StatusBadRequest, "%.80q is not a path", r.URL.Path)
	case path.Clean(r.URL.Path) != r.URL.Path:
		return fail(http.StatusNotFound, "%.80q leads nowhere: paths have no dots, and one slash at a time", r.URL.Path)
	case (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.ContentLength != 0:
		return fail(http.StatusBadRequest, "%s takes no body", r.Method)
	case r.ContentLength > s.o.Limits.Body:
		return fail(http.StatusRequestEntityTooLarge, "a body of %d bytes: %d are the most", r.ContentLength,
			s.o.Limits.Body)
	case r.URL.Path == "/healthz":
		return nil
	case s.o.Token != "" && !s.hasToken(r) && !s.links.admit(r):
		return fail(http.StatusUnauthorized,
			"missing or wrong token: send the one that the server printed as Authorization: Bearer TOKEN")
	case s.o.Token == "" && !ownName(r.Host):
		return fail(http.StatusForbidden, "this server is not %.80q: ask for it as localhost", r.Host)
	case !admitted(r):
		return fail(http.StatusServiceUnavailable, "too many connections: close one, or try again later")
	}
	return nil
}

// hasToken compares in a time that does not depend on how much of the token is right.
func (s guarded) hasToken(r *http.Request) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	want, got := sha256.Sum256([]byte(s.o.Token)), sha256.Sum256([]byte(strings.TrimSpace(given)))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// ownName reports whether a Host header names this machine.
func ownName(hostPort string) bool {
	host := hostPort
	if h, _, err := net.SplitHostPort(hostPort); err == nil {
		host = h
	}
	if bare, ok := strings.CutSuffix(host, "]"); ok {
		host = strings.TrimPrefix(bare, "[")
	}
	return loopback(host)
}
