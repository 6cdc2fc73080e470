// Package resources reads the resource events of a run: line by line, from one file or several, finished or still
// growing; and computes from them where time and bytes went.
package resources
