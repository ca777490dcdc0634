package kube

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidwall/gjson"
)

// TestNamespacesAreListedWhereAllOfThemAreNot: a LIST of all namespaces may fail where those of
// some do not, and be no whole answer.
func TestNamespacesAreListedWhereAllOfThemAreNot(t *testing.T) {
	secret := func(namespace string) string {
		return fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"s"}}`, namespace)
	}
	answer := func(w http.ResponseWriter, token string, items ...string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"7","continue":%q},"items":[%s]}`, token,
			strings.Join(items, ","))
	}
	refuse := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { http.Error(w, "conversion webhook failed", code) }
	}
	for name, all := range map[string]func(http.ResponseWriter){
		"forbidden": refuse(http.StatusForbidden), "not served": refuse(http.StatusNotFound),
		"not allowed": refuse(http.StatusMethodNotAllowed),
		"a webhook":   refuse(http.StatusInternalServerError),
		"more":        func(w http.ResponseWriter) { answer(w, "more", secret("one")) },
		"no namespace": func(w http.ResponseWriter) {
			answer(w, "", secret("one"), `{"metadata":{"name":"s"}}`)
		},
		"whole": func(w http.ResponseWriter) {
			answer(w, "", secret("one"), secret("other"), secret("three"))
		},
	} {
		asked := 0
		r := hostile(t, maxSilence, func(w http.ResponseWriter, q *http.Request) {
			_, namespace, some := strings.Cut(q.URL.Path, "/namespaces/")
			namespace, _, _ = strings.Cut(namespace, "/")
			switch asked++; {
			case !some:
				all(w)
			case namespace == "two":
				refuse(http.StatusNotFound)(w)
			default:
				answer(w, "", secret(namespace))
			}
		})
		var got []string
		_, err := r.List(t.Context(), SecretKind, ListOptions{Metadata: true,
			Namespaces: []string{"one", "two", "three"}}, func(raw []byte) error {
			got = append(got, gjson.GetBytes(raw, "metadata.namespace").String())
			return nil
		})
		wantAsked := 4
		if name == "whole" {
			wantAsked = 1
		} else if !apierrors.IsNotFound(err) {
			t.Errorf("%s: namespace two is not found, and it says %v", name, err)
		}
		if asked != wantAsked || !slices.Equal(got, []string{"one", "three"}) {
			t.Errorf("%s: %d requests, objects in %q", name, asked, got)
		}
	}
}
