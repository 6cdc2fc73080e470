// Package sheet draws charts as all of llamatap's pictures are drawn: panels with axes, in colours that those who
// see no red or green can tell apart, as PNG and SVG. What is drawn is the affair of the packages that use it.
package sheet
