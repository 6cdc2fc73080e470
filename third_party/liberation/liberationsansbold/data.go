// Package liberationsansbold holds the font LiberationSans-Bold.
package liberationsansbold

import _ "embed"

// TTF is the font.
//
//go:embed LiberationSans-Bold.ttf
var TTF []byte
