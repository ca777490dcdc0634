package service

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/object"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// extract puts the pieces of a stream together: objects in the order in which they came.
func (l *looker) extract(req *mgmtv1.ExtractObjectsRequest) ([]*mgmtv1.ExtractedObject, error) {
	l.t.Helper()
	stream := &sink[mgmtv1.ExtractObjectsResponse]{ctx: l.t.Context()}
	if req.Identity == nil {
		req.Identity = l.identity
	}
	req.Id = latest
	err := l.service.ExtractObjects(req, stream)
	var all []*mgmtv1.ExtractedObject
	continued := false
	for _, piece := range stream.sent {
		if size := proto.Size(piece); size > pieceBytes+4096 {
			l.t.Errorf("a message of %d bytes", size)
		}
		o := piece.GetObject()
		if o == nil {
			continue
		}
		if continued {
			last := all[len(all)-1]
			last.Json = append(bytes.Clone(last.Json), o.GetJson()...)
		} else {
			all = append(all, o)
		}
		continued = o.GetContinued()
	}
	if continued {
		l.t.Error("the stream ends in the middle of an object")
	}
	return all, err
}

// TestExtractObjectsReturnsWhatTheSourceServed: in the order of refs, large ones in pieces, Secrets
// without values unless they are asked for, and what the snapshot left out by name.
func TestExtractObjectsReturnsWhatTheSourceServed(t *testing.T) {
	l := newLooker(t)
	l.source.PutMachine("team-0", "many", "w-0", capture.MaxReferences+1)
	l.source.PutConfigMap("team-0", "large", "w-0", 2*pieceBytes+4096)
	e := l.take(nil)
	objects, _ := l.source.At("3")
	for _, withSecrets := range []bool{false, true} {
		all, err := l.extract(&mgmtv1.ExtractObjectsRequest{WithSecrets: withSecrets})
		if err != nil || len(all) != int(e.Counts.Objects)+1 {
			t.Fatalf("%d objects, %v", len(all), err)
		}
		secrets := 0
		for i, o := range all[:len(all)-1] {
			ref := refOf(o.GetRef())
			if i > 0 && object.CompareRefs(refOf(all[i-1].GetRef()), ref) >= 0 {
				t.Errorf("%s is not in order", ref)
			}
			hidden := ref.Kind == "Secret" && !withSecrets
			if hidden {
				secrets++
				wantNoValues(t, ref.String(), string(o.GetJson()))
			}
			if same := bytes.Equal(o.GetJson(), objects[ref]); same == hidden ||
				o.GetValuesLeftOut() != hidden {
				t.Errorf("%s: as served %v, values left out %v", ref, same, o.GetValuesLeftOut())
			}
		}
		if last := all[len(all)-1]; !last.GetOmitted() || last.GetUnit() != "team-0/w-0" ||
			last.GetRef().GetName() != "many" || withSecrets == (secrets == 12) {
			t.Errorf("last: %v, %d Secrets without values", last, secrets)
		}
	}
}

// TestExtractObjectsNarrowsDown: by names, which the snapshot must hold, and for kubectl.
func TestExtractObjectsNarrowsDown(t *testing.T) {
	l := newLooker(t)
	l.source.PutMachine("team-0", "many", "w-0", capture.MaxReferences+1)
	l.take(nil)
	name := func(kind, namespace, name string) *mgmtv1.ObjectName {
		return &mgmtv1.ObjectName{Kind: kind, Namespace: namespace, Name: name}
	}
	for _, tt := range []struct {
		filter *mgmtv1.ObjectFilter
		want   string
	}{
		{&mgmtv1.ObjectFilter{Objects: []*mgmtv1.ObjectName{name("namespace", "", "team-1"),
			name("cluster", "team-0", "w-1")}},
			"Namespace/team-1 Cluster.cluster.x-k8s.io/team-0/w-1"},
		{&mgmtv1.ObjectFilter{Objects: []*mgmtv1.ObjectName{name("DevMachine", "team-0", "many")}},
			"DevMachine.infrastructure.cluster.x-k8s.io/team-0/many"},
		{&mgmtv1.ObjectFilter{Kinds: []string{"Cluster"}, Namespaces: []string{"team-1"},
			Objects: []*mgmtv1.ObjectName{name("cluster", "team-0", "w-1")}}, ""},
	} {
		all, err := l.extract(&mgmtv1.ExtractObjectsRequest{Filter: tt.filter, ForKubectl: true})
		var refs []string
		for _, o := range all {
			refs = append(refs, refOf(o.GetRef()).String())
			if text := string(o.GetJson()); strings.Contains(text, `"uid"`) ||
				o.GetRef().GetKind() == "Cluster" && !strings.Contains(text, `"paused":true`) {
				t.Errorf("for kubectl: %s", text)
			}
		}
		if got := strings.Join(refs, " "); got != tt.want || err != nil {
			t.Errorf("%v: %s, %v", tt.filter, got, err)
		}
	}
	for _, tt := range []struct {
		object *mgmtv1.ObjectName
		reason Reason
	}{{name("cluster", "team-0", "w-9"), ReasonNotFound}, {name("cluster", "", "w-1"), ReasonNotFound},
		{name("", "team-0", "w-1"), ReasonUsage}, {name("cluster", "team-0", ""), ReasonUsage},
		{name("a/b", "team-0", "w-1"), ReasonUsage}} {
		all, err := l.extract(&mgmtv1.ExtractObjectsRequest{
			Filter: &mgmtv1.ObjectFilter{Objects: []*mgmtv1.ObjectName{tt.object}}})
		if e := FromStatus(err); e == nil || e.Reason != tt.reason || len(all) > 0 {
			t.Errorf("%v: %v, %v", tt.object, all, err)
		}
	}
	all, err := l.extract(&mgmtv1.ExtractObjectsRequest{Identity: []byte{}})
	if e := FromStatus(err); e == nil || e.Reason != ReasonIdentity || len(all) > 0 {
		t.Errorf("without an identity: %v, %v", all, err)
	}
}

// TestExtractEndsWithItsClient: a client that is gone ends the reading of the store.
func TestExtractEndsWithItsClient(t *testing.T) {
	l := newLooker(t)
	for i := range progressObjects {
		l.source.PutConfigMap("team-0", fmt.Sprint("values-", i), "w-0", 2)
	}
	l.take(nil)
	gone := errors.New("gone")
	stream := &goneSink{sink[mgmtv1.ExtractObjectsResponse]{ctx: t.Context()}, gone}
	err := l.service.ExtractObjects(&mgmtv1.ExtractObjectsRequest{Id: latest, Identity: l.identity},
		stream)
	if !errors.Is(err, gone) || len(stream.sent) != 1 || stream.sent[0].GetProgress() == nil {
		t.Errorf("%v after %d messages", err, len(stream.sent))
	}
}

// goneSink is the stream of a client that is gone after the first message.
type goneSink struct {
	sink[mgmtv1.ExtractObjectsResponse]
	err error
}

func (s *goneSink) Send(m *mgmtv1.ExtractObjectsResponse) error {
	_ = s.sink.Send(m)
	return s.err
}
