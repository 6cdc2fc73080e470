// Package liberationserifbold has the font of liberationsansbold, as the charts need no other.
package liberationserifbold

import "codeberg.org/go-fonts/liberation/liberationsansbold"

// TTF is the font.
var TTF = liberationsansbold.TTF
