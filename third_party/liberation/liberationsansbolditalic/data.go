// Package liberationsansbolditalic has the font of liberationsansbold, as the charts need no other.
package liberationsansbolditalic

import "codeberg.org/go-fonts/liberation/liberationsansbold"

// TTF is the font.
var TTF = liberationsansbold.TTF
