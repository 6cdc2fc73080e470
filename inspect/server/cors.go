package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
)

// CheckOrigin reports whether a text is the origin of a web page: scheme, host and port alone.
func CheckOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		u.Scheme+"://"+u.Host != origin {
		return fmt.Errorf("unsupported origin %.80q: give one as a browser writes it, such as http://localhost:3000",
			origin)
	}
	return nil
}

// allowOrigin lets pages of the configured origins read answers. It reports whether the request is a preflight,
// which it has answered: a browser asks by it, without the token, whether it may send a request.
func (s guarded) allowOrigin(w http.ResponseWriter, r *http.Request) (answered bool) {
	if len(s.o.Origins) == 0 {
		return false
	}
	header, origin := w.Header(), r.Header.Get("Origin")
	header.Add("Vary", "Origin")
	if !slices.Contains(s.o.Origins, origin) {
		return false
	}
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Expose-Headers", runHeader)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	header.Set("Access-Control-Allow-Methods", "GET, POST, PUT")
	header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
	header.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
