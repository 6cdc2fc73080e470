// Package resources says what a run holds (Run), and reads its resource events: line by line, from one file or
// several, finished or still growing; it computes from them where time and bytes went (Report), and which experts of a
// mixture were chosen (Experts).
package resources
