package service

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/mgmtd/mgmtd/internal/catalog"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const (
	// maxOperations is the largest page, and the size of one that a client leaves to the server.
	maxOperations = 1000
	// maxPageBytes ends a page early: an operation may have thousands of units, and clients accept
	// 64 MiB.
	maxPageBytes = 8 << 20
	// listBatch is how many operations are read before their size is known.
	listBatch = 100
)

// operationList is a request for a page of operations.
type operationList struct {
	filter catalog.OperationFilter
	size   int
}

// operationListFromProto reads a request. Errors are usage errors.
func operationListFromProto(req *mgmtv1.ListOperationsRequest) (operationList, error) {
	l := operationList{size: int(req.GetPageSize())}
	if l.size <= 0 || l.size > maxOperations {
		l.size = maxOperations
	}
	if token := req.GetPageToken(); token != "" {
		before, err := catalog.ParseOperationID(token)
		if err != nil {
			return l, &Error{Reason: ReasonUsage, Message: fmt.Sprintf("page token %q is of no page",
				token)}
		}
		l.filter.Before = before
	}
	for _, kind := range req.GetKinds() {
		l.filter.Kinds = append(l.filter.Kinds, catalog.Kind(kind))
		if err := catalog.CheckKind(kind); err != nil {
			return l, &Error{Reason: ReasonUsage, Message: err.Error()}
		}
	}
	for _, state := range req.GetStates() {
		known := false
		for ours, theirs := range operationStates {
			if theirs == state {
				l.filter.States, known = append(l.filter.States, ours), true
			}
		}
		if !known {
			return l, &Error{Reason: ReasonUsage, Message: fmt.Sprintf("no operation is in state %s", state)}
		}
	}
	return l, nil
}

// operationPage is one page of a list.
type operationPage struct {
	list operationList
	resp *mgmtv1.ListOperationsResponse
	// oldest is the last operation of the page; empty when it is the last page.
	oldest catalog.OperationID
}

// page reads a page of the catalog.
func (l operationList) page(ctx context.Context, c *catalog.Catalog) (*operationPage, error) {
	p := &operationPage{list: l, resp: &mgmtv1.ListOperationsResponse{}}
	filter, size := l.filter, 0
	for {
		filter.Limit = min(listBatch, l.size-len(p.resp.Operations))
		ops, err := c.Operations(ctx, filter)
		if err != nil {
			return nil, err
		}
		for _, op := range ops {
			converted := operationToProto(op)
			p.resp.Operations = append(p.resp.Operations, converted)
			filter.Before = op.ID
			if size += proto.Size(converted); size > maxPageBytes {
				break
			}
		}
		if len(ops) < filter.Limit && size <= maxPageBytes {
			return p, nil
		}
		if len(p.resp.Operations) < l.size && size <= maxPageBytes {
			continue
		}
		filter.Limit = 1
		if more, err := c.Operations(ctx, filter); err != nil || len(more) == 0 {
			return p, err
		}
		p.oldest = filter.Before
		p.resp.NextPageToken = string(p.oldest)
		return p, nil
	}
}

// covers reports whether an operation of this id is in the time of the page.
func (p *operationPage) covers(id catalog.OperationID) bool {
	return (p.list.filter.Before == "" || id < p.list.filter.Before) && id > p.oldest
}

// picks reports whether the filter of the list picks an operation of a mirror.
func (l operationList) picks(op *mgmtv1.Operation) bool {
	if len(l.filter.Kinds) > 0 && !slices.Contains(l.filter.Kinds, catalog.Kind(op.GetKind())) {
		return false
	}
	return len(l.filter.States) == 0 || slices.ContainsFunc(l.filter.States,
		func(s catalog.State) bool { return operationStates[s] == op.GetState() })
}
