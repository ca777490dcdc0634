package service

import (
	"context"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

// memory keeps in the catalog what a source's next snapshot in a store need not write again.
type memory struct {
	catalog       *catalog.Catalog
	store, source string
}

// Recall implements snapshot.Memory.
func (m memory) Recall(ctx context.Context) (snapshot.Known, error) {
	k, err := m.catalog.Known(ctx, m.store, m.source)
	return snapshot.Known{Secret: k.Secret, Base: k.Base, Places: k.Places, Keys: convertKeys[snapshot.KnownKey](k.Keys)}, err
}

// Remember implements snapshot.Memory.
func (m memory) Remember(ctx context.Context, c snapshot.KnownChange) error {
	return m.catalog.UpdateKnown(ctx, m.store, m.source, catalog.KnownChange{
		Was: c.Was, Base: c.Base, Places: c.Places, Gone: c.Gone, Keys: convertKeys[catalog.KnownKey](c.Keys), GoneKeys: c.GoneKeys,
	})
}

func convertKeys[To, From catalog.KnownKey | snapshot.KnownKey](from map[string]From) map[string]To {
	to := make(map[string]To, len(from))
	for key, k := range from {
		to[key] = To(k)
	}
	return to
}
