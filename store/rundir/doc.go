// Package rundir is the directory of one run: its name, its files, its metadata, and the manifest that makes it a result.
package rundir
