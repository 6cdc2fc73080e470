// Package request records the requests of a server: when each came and went, what its prompt found in the cache, when
// its tokens came, and why a part of its prompt was computed again although it had been computed before.
// docs/REQUESTS.md lists each field with its source.
package request
