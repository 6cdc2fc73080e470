package config

import "testing"

// TestOldCodecName: a codec is taken by the name that it had once, and printed by the one that it has.
func TestOldCodecName(t *testing.T) {
	if codec, err := parseCodec("q-huff"); err != nil || codec != "q-fse" {
		t.Errorf("got %q, %v", codec, err)
	}
	if _, err := parseCodec("huff"); err == nil {
		t.Error("a codec that does not exist was taken")
	}
}
