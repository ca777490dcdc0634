package capi

import "testing"

func TestHelmStorageBelongsToTheWorkloadClusterOfItsReleaseName(t *testing.T) {
	for _, tt := range []struct{ name, owner, release, want string }{
		{"sh.helm.release.v1.web.v3", "helm", "web", "web"},
		{"sh.helm.release.v1.web-db.v1", "helm", "web", ""},
		{"sh.helm.release.v1.web.v3", "somebody", "web", ""},
		{"sh.helm.release.v1.web.v3", "helm", "", ""},
		{"web", "helm", "web", ""},
	} {
		if got := ClusterOfHelmStorage(tt.name, tt.owner, tt.release); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

func TestHelmStorageStandsForSecretsAndIsNone(t *testing.T) {
	for _, all := range HelmStorage("web", "team-a") {
		secret := all
		secret.Name += ".v3"
		if storage, ok := HelmStorageOf(secret); !ok || storage != all || IsHelmStorage(secret) ||
			!IsHelmStorage(all) {
			t.Errorf("%s is in the storage %s: %t", secret, storage, ok)
		}
	}
}
