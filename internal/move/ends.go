package move

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/preflight"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// Writer changes objects of a management cluster.
type Writer interface {
	restore.Writer
	restore.Remover
}

// Prober asks a side what it would do, and changes nothing.
type Prober interface {
	restore.Prober
	DryRunPatchMetadata(ctx context.Context, k kube.Kind, namespace, name string,
		metadata map[string]any) (*unstructured.Unstructured, error)
	DryRunDelete(ctx context.Context, k kube.Kind, namespace, name string, uid types.UID) error
}

// Mgmt is one side of a move.
type Mgmt struct {
	object.Side
	Reader    *kube.Reader
	Writer    Writer
	Prober    Prober
	Kinds     []kube.Kind
	Providers []kube.Provider

	options snapshot.Options // how this side is captured
	schemas *kube.StatusSchemas
}

// Ends are both sides of a move, and the store between them. NewEnds makes them.
type Ends struct {
	// Source and Target; one that does not answer (WithoutTarget, WithoutSource) is only named, and
	// never asked.
	Source, Target Mgmt
	// Store gets the snapshots of the source, and holds the ownership records that decide between
	// both sides. It is nil for a rollback without the target when it does not answer, either.
	Store *store.Store
	// Location is the name of the location of Store, by which a resume finds it; it may be empty.
	Location string
	Rows     *capi.Table // what is known of kinds; nil is the built-in table
	// Modifiers change objects for the target; nil changes none. The source is read without them.
	Modifiers *modify.Document
	// Overridden asks the management clusters that own workload clusters by these records, which the
	// operator overrides, and returns what shows whether they are gone, by UID; nil asks none.
	Overridden func(ctx context.Context, records ...ownership.Record) (
		map[string]preflight.Overridden, error)
}

// NewEnds reads the kinds and the providers of both sides. It changes nothing.
func NewEnds(ctx context.Context, source, target *kube.Mgmt, st *store.Store, location string,
	rows *capi.Table) (Ends, error) {
	e := Ends{Store: st, Location: location, Rows: rows}
	var err error
	if e.Source, err = newMgmt(ctx, source, rows); err != nil {
		return Ends{}, err
	}
	e.Target, err = newMgmt(ctx, target, rows)
	return e, err
}

// WithoutTarget returns the ends of a rollback while the target does not answer. st is nil when the
// store does not answer, either.
func WithoutTarget(ctx context.Context, source *kube.Mgmt, target object.Side, st *store.Store,
	location string, rows *capi.Table) (Ends, error) {
	e := Ends{Store: st, Location: location, Rows: rows, Target: Mgmt{Side: target}}
	var err error
	e.Source, err = newMgmt(ctx, source, rows)
	return e, err
}

// WithoutSource returns the ends of a resume while the source does not answer. The store needs an
// identity, since the contents of copies are read from it.
func WithoutSource(ctx context.Context, source object.Side, target *kube.Mgmt, st *store.Store,
	location string, rows *capi.Table) (Ends, error) {
	e := Ends{Store: st, Location: location, Rows: rows, Source: Mgmt{Side: source}}
	var err error
	e.Target, err = newMgmt(ctx, target, rows)
	return e, err
}

// hasSource reports whether the source may be asked.
func (e Ends) hasSource() bool { return e.Source.Reader != nil }

// hasTarget reports whether the target may be asked.
func (e Ends) hasTarget() bool { return e.Target.Reader != nil }

func newMgmt(ctx context.Context, m *kube.Mgmt, rows *capi.Table) (Mgmt, error) {
	kinds, err := m.Reader().Kinds(ctx)
	if err != nil {
		return Mgmt{}, err
	}
	providers, err := m.Providers(ctx, kinds)
	options := snapshot.OptionsFor(m, rows)
	// They take a client of their own, with the discovery of that, which is long in a pause.
	options.Providers = func(context.Context, []kube.Kind) ([]kube.Provider, error) {
		return providers, nil
	}
	return Mgmt{
		Side: object.Side{Name: m.Name(), UID: m.UID()}, Reader: m.Reader(), Writer: m.Writer(),
		Prober: m.Prober(), Kinds: kinds, Providers: providers,
		options: options, schemas: &kube.StatusSchemas{},
	}, err
}

// capture captures a side into memory, without the objects that are captured and not restored: some
// namespaces, with what they name in others, or all when none is named. It leaves out what narrow
// says of these namespaces.
func (m Mgmt) capture(ctx context.Context, namespaces []string, narrow capture.Narrow) (
	*snapshot.Snapshot, *snapshot.Contents, error) {
	o := m.options
	o.WithoutRelated = true
	o.Scope.Namespaces, o.ListScope, o.Narrow = namespaces, len(namespaces) > 0, narrow
	return snapshot.CaptureInMemory(ctx, o)
}
