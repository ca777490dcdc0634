package snapshot

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWithoutValuesShowsNamesAndSizes: what a Secret is, and the names and the sizes of its values.
func TestWithoutValuesShowsNamesAndSizes(t *testing.T) {
	const secret = `{"apiVersion":"v1","kind":"Secret","type":"Opaque","later":"aGlkZGVu",` +
		`"metadata":{"name":"s","namespace":"ns","labels":{"a":"b"},"annotations":{` +
		`"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"key\":\"aGlkZGVu\"}}"},` +
		`"managedFields":[{"manager":"aGlkZGVu"}]},` +
		`"data":{"key":"aGlkZGVu","empty":"","odd":"hidden!","number":5},"stringData":{"text":"hidden"}}`
	got, err := WithoutValues([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"v1","data":{"empty":"0 bytes","key":"6 bytes","number":"0 bytes",` +
		`"odd":"7 bytes"},"kind":"Secret","metadata":{"annotations":{` +
		`"kubectl.kubernetes.io/last-applied-configuration":"27 bytes"},"labels":{"a":"b"},` +
		`"name":"s","namespace":"ns"},"stringData":{"text":"6 bytes"},"type":"Opaque"}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{`hidden`, `{"data":"hidden"}`, `{"metadata":"hidden"}`,
		`{"metadata":{"annotations":"hidden"}}`, `["hidden"]`, `{"data":{"key":"hidden"`} {
		got, err := WithoutValues([]byte(text))
		if err == nil || strings.Contains(err.Error(), "hidden") || got != nil {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}
