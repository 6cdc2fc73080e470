package tap_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var includes = regexp.MustCompile(`(?m)^#include "(tap_\w+\.h)"`)

// TestDirection: the headers of the tap have an order, which tap.h lists, and each includes only those before it.
// No file includes tap.h itself, so that each names the modules that it uses.
func TestDirection(t *testing.T) {
	order := includes.FindAllStringSubmatch(text(t, "tap.h"), -1)
	place := map[string]int{}
	for i, match := range order {
		place[match[1]] = i + 1
	}
	// tap_records.h is a part of tap_shm.h.
	parts := []string{"tap.h", "tap_records.h"}
	files, err := filepath.Glob("tap*.[ch]")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, ".h") && place[file] == 0 && !slices.Contains(parts, file) {
			t.Errorf("%s is not in tap.h, which lists the headers in their order", file)
		}
		for _, match := range includes.FindAllStringSubmatch(text(t, file), -1) {
			header := match[1]
			below := slices.Contains(parts, file) || slices.Contains(parts, header) || place[header] < place[file]
			if strings.HasSuffix(file, ".h") && !below {
				t.Errorf("%s includes %s, which comes after it in tap.h", file, header)
			}
		}
		if strings.HasSuffix(file, ".c") && strings.Contains(text(t, file), `#include "tap.h"`) {
			t.Errorf("%s includes tap.h: include the headers of the modules that it uses", file)
		}
	}
}

func text(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
