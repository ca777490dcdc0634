//go:build api

package move_test

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// followAll carries out seven operations, from whose steps the matrix is made.
func followAll(t *testing.T, fx *fixture) traces {
	t.Helper()
	return traces{
		there:        fx.follow(t, fx.order(doMove), nil, catalog.Succeeded),
		backAgain:    fx.follow(t, fx.order(doMove), nil, catalog.Succeeded),
		undone:       fx.follow(t, fx.order(doMove), &notHandedOver, catalog.RolledBack),
		returned:     fx.followReturned(t),
		narrow:       fx.follow(t, fx.narrow(), nil, catalog.Succeeded),
		undoneNarrow: fx.follow(t, fx.narrow(), &notHandedOver, catalog.RolledBack),
		forward:      fx.followForward(t),
	}
}

// narrow is an order to move each unit in a batch of its own, the touched one first.
func (fx *fixture) narrow() order {
	o := fx.order(doMove)
	o.Canary, o.Concurrency = fx.namespace+"/"+touched, 1
	return o
}
