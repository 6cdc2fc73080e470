// Package liberationserifitalic has the font of liberationsansregular, as the charts need no other.
package liberationserifitalic

import "codeberg.org/go-fonts/liberation/liberationsansregular"

// TTF is the font.
var TTF = liberationsansregular.TTF
