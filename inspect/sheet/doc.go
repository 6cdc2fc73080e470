// Package sheet draws charts as all of llamatap's pictures are drawn: panels with axes, in colours that those who
// see no red or green can distinguish, as PNG and SVG. The packages that use it decide what is drawn.
package sheet
