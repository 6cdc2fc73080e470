package server

import (
	"crypto/sha256"
	_ "embed" // of the page
	"encoding/base64"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/llamatap/llamatap/resource"
)

// The parts of the page. Its script takes the token out of a link's fragment and asks with it: the page itself holds
// nothing of runs.
//
//go:embed page.html
var pageHTML string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// thePage is the page and its policy, which lets it ask this server, too.
var thePage = sync.OnceValues(func() (page, allowed string) {
	var kinds strings.Builder
	for _, kind := range resource.Kinds() {
		kinds.WriteString("<option>" + kind + "</option>")
	}
	page = strings.NewReplacer("STYLE", pageStyle, "SCRIPT", pageScript, "KINDS", kinds.String()).Replace(pageHTML)
	return page, policy(page) + "; connect-src 'self'"
})

// policy is a content security policy that lets a page run its own scripts, with its own style, and nothing else.
func policy(page string) string {
	return "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; script-src " +
		hashes(page, "script") + "; style-src " + hashes(page, "style")
}

// hashes are those of the contents of a page's elements of a name, as a content security policy lists them.
func hashes(page, element string) string {
	all := []string{"'none'"}
	for _, found := range regexp.MustCompile(`(?s)<`+element+`(?: [^>]*)?>(.*?)</`+element+`>`).
		FindAllStringSubmatch(page, -1) {
		sum := sha256.Sum256([]byte(found[1]))
		all = append(all, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	return strings.Join(all[min(1, len(all)-1):], " ")
}

// wantsPage reports whether a browser opens the server's first page, which it does without a token.
func wantsPage(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// writePage answers with the page.
func writePage(w http.ResponseWriter) error {
	page, allowed := thePage()
	return writeHTML(w, page, allowed)
}

func writeHTML(w http.ResponseWriter, page, policy string) error {
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", policy)
	header.Set("Referrer-Policy", "no-referrer")
	_, err := w.Write([]byte(page))
	return err
}
