package server

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // of the page
	"encoding/base64"
	"net/http"
	"strings"
)

// page takes the token out of a link's fragment and asks with it. It holds nothing of runs.
//
//go:embed page.html
var page []byte

// pagePolicy lets the page run its own script and ask this server, and nothing else.
var pagePolicy = func() string {
	_, script, _ := bytes.Cut(page, []byte("<script>"))
	script, _, _ = bytes.Cut(script, []byte("</script>"))
	sum := sha256.Sum256(script)
	return "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; script-src 'sha256-" +
		base64.StdEncoding.EncodeToString(sum[:]) + "'"
}()

// wantsPage reports whether a browser opens the server's first page, which it does without a token.
func wantsPage(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// writePage answers a browser with the page that takes the token out of its link.
func writePage(w http.ResponseWriter, status int) {
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", pagePolicy)
	header.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	w.Write(page)
}
