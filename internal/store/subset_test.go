package store

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// TestSubsetsTogetherContainEachKeyOnce: so that as many verifies have read everything.
func TestSubsetsTogetherContainEachKeyOnce(t *testing.T) {
	for _, of := range []int{1, 2, 7, 168} {
		sizes := make([]int, of)
		for i := range 2000 {
			hash := sha256.Sum256([]byte{byte(i), byte(i >> 8)})
			text := hex.EncodeToString(hash[:])
			key, err := ParseKey("packs/" + text[:2] + "/" + text + ".tar.zst.age")
			if err != nil {
				t.Fatal(err)
			}
			in := 0
			for part := 1; part <= of; part++ {
				if (Subset{Part: part, Of: of}).Contains(key) {
					sizes[part-1]++
					in++
				}
			}
			if in != 1 || !(Subset{}).Contains(key) {
				t.Fatalf("%s is in %d of %d parts", key, in, of)
			}
		}
		for part, size := range sizes {
			if of <= 7 && (size < 1600/of || size > 2400/of) {
				t.Errorf("part %d of %d has %d of 2000 keys", part+1, of, size)
			}
		}
	}
}

func TestParseSubsetRefusesPartsThatDoNotExist(t *testing.T) {
	if s, err := ParseSubset("3/7"); err != nil || s.String() != "3/7" {
		t.Error(s, err)
	}
	for _, text := range []string{"", "3", "0/7", "8/7", "0/0", "-1/7", "1/100001", "1/7/2", "a/7",
		"1/99999999999999999999"} {
		if s, err := ParseSubset(text); err == nil {
			t.Errorf("%q is read as %v", text, s)
		}
	}
}
