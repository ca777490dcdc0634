package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
)

func TestSecretsNeverPrint(t *testing.T) {
	o := testKeys(t)
	text, err := os.ReadFile(o.IdentityFiles[0])
	if err != nil {
		t.Fatal(err)
	}
	o.Identities = []Secret{text}
	keys := mustLoad(t, o)
	secret := string(text[strings.Index(string(text), "AGE-SECRET"):][:40])
	hexSecret := fmt.Sprintf("%x", secret)
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	jsonLog := slog.New(slog.NewJSONHandler(&out, nil))
	for _, v := range []any{keys, *keys, o, &o, o.Identities[0], &o.Identities[0], Options{Keys: keys},
		&Store{keys: keys}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		log.Info("test", "value", v)
		jsonLog.Info("test", "value", v)
		data, _ := json.Marshal(v)
		out.Write(data)
	}
	for _, leak := range []string{secret, hexSecret, strings.ToUpper(hexSecret), "65 71 69 45 83",
		fmt.Sprintf("%d", text[:10])} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("output holds %s", leak)
		}
	}
	if !strings.Contains(keys.String(), "2 identities") {
		t.Errorf("keys print as %q", keys)
	}
}
