package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/store"
)

func TestVerifyOptionsOfALocation(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		keys, verify string
		want         schedule.VerifyOptions
		problem      string
	}{
		{"encrypted", "", schedule.VerifyOptions{Every: day, Level: store.LevelStructure}, ""},
		{"encrypted", "{every: 0s}", schedule.VerifyOptions{Every: day, Level: store.LevelStructure}, ""},
		{"encrypted", "{every: 1m}", schedule.VerifyOptions{Every: time.Minute,
			Level: store.LevelStructure}, ""},
		{"encrypted", "{level: none}", schedule.VerifyOptions{}, ""},
		{"plain", "", schedule.VerifyOptions{Every: day, Level: store.LevelStructure, FullEvery: 7 * day},
			""},
		{"plain", "{level: sample, fullEvery: 720h}", schedule.VerifyOptions{Every: day,
			Level: store.LevelSample, FullEvery: 30 * day}, ""},
		{"plain", "{level: full, every: 12h}", schedule.VerifyOptions{Every: day / 2,
			Level: store.LevelFull}, ""},
		{"encrypted", "{level: full}", schedule.VerifyOptions{}, "spec.verify.level: full reads what " +
			"is encrypted, and there is no spec.identityFile; give spec.identityFile"},
		{"encrypted", "{level: sample}", schedule.VerifyOptions{}, "spec.verify.level: sample reads " +
			"what is encrypted"},
		{"encrypted", "{fullEvery: 168h}", schedule.VerifyOptions{},
			"spec.verify.fullEvery: it reads what is encrypted"},
		{"plain", "{level: full, fullEvery: 1h}", schedule.VerifyOptions{},
			"spec.verify.fullEvery: set besides level full"},
		{"plain", "{level: none, every: 1h}", schedule.VerifyOptions{},
			"spec.verify.level: none verifies nothing"},
		{"plain", "{every: 59s}", schedule.VerifyOptions{},
			`spec.verify.every: "59s" is not a duration of a minute or more`},
		{"plain", "{every: 7d}", schedule.VerifyOptions{}, `spec.verify.every: "7d" is not a duration`},
		{"plain", "{every: -1h}", schedule.VerifyOptions{}, `spec.verify.every: "-1h" is not a duration`},
	} {
		keys := "recipients: [RECIPIENT], signingKeyFile: signing.key"
		if tt.keys == "plain" {
			keys = "plain: true"
		}
		verify := ""
		if tt.verify != "" {
			verify = ", verify: " + tt.verify
		}
		c, err := load(t, folder(t), fmt.Sprintf(`{apiVersion: mgmtd.dev/v1alpha1, kind: Config, spec: {managementClusters: [{name: prod, kubeconfigFile: prod.kubeconfig}], %s%s}}
---
{apiVersion: velero.io/v1, kind: BackupStorageLocation, metadata: {name: disk}, spec: {provider: mgmtd.dev/directory, config: {path: /snapshots}}}
`, keys, verify))
		if tt.problem != "" {
			if err == nil || !strings.Contains(err.Error(), tt.problem) ||
				strings.Count(err.Error(), "\n") > 2 {
				t.Errorf("%s %s: %v", tt.keys, tt.verify, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %s: %v", tt.keys, tt.verify, err)
			continue
		}
		c.Service.Verify.Identity = nil // functions do not compare
		if diff := cmp.Diff(tt.want, c.Service.Verify); diff != "" {
			t.Errorf("%s %s: %s", tt.keys, tt.verify, diff)
		}
	}
}
