package access

import (
	"context"
	"log/slog"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/service"
)

// AuditMessage is the message of each line of the audit log. docs/config.md has its attributes.
const AuditMessage = "audit"

// audited reports whether a request gets a line: one that was refused, and one that changes, reads
// or decrypts more than anybody with a role may see.
func (c *call) audited() bool { return c.denied || c.need.role > View }

// audit writes the line of a request that has ended with err.
func (c *call) audit(err error) {
	if !c.audited() {
		return
	}
	decision := "allowed"
	if c.denied {
		decision = "denied"
		if !c.guard.denials.Allow() {
			c.guard.suppressed.Add(1)
			return
		}
	}
	attrs := []slog.Attr{slog.String("method", path.Base(c.method)), slog.String("decision", decision)}
	if c.denied {
		if n := c.guard.suppressed.Swap(0); n > 0 {
			attrs = append(attrs, slog.Int64("suppressed", n))
		}
	}
	attrs = append(attrs, c.who()...)
	if c.request != nil {
		longest := maxList
		if c.denied {
			longest = maxDeniedList // a caller without a role cannot fill the disk
		}
		attrs = append(attrs, slog.Attr{Key: "request",
			Value: slog.GroupValue(requestAttrs(c.request.ProtoReflect(), longest)...)})
	}
	attrs = append(attrs, c.result...)
	if err == nil {
		attrs = append(attrs, slog.String("outcome", "OK"))
	} else {
		e := service.FromStatus(err)
		attrs = append(attrs, slog.String("outcome", string(e.Reason)), slog.String("error", e.Message))
	}
	c.guard.audit.LogAttrs(context.WithoutCancel(c.ctx), slog.LevelInfo, AuditMessage, attrs...)
}

// who are the attributes of the caller.
func (c *call) who() []slog.Attr {
	attrs := []slog.Attr{slog.String("caller", "unknown")}
	if c.known {
		attrs[0] = slog.String("caller", c.caller.String())
	}
	if u := c.caller.User; u != nil {
		attrs = append(attrs, slog.Uint64("uid", uint64(u.UID)), slog.Int("pid", int(u.PID)))
	} else if c.known {
		attrs = append(attrs, slog.String("serial", c.caller.Serial))
		if p, ok := peer.FromContext(c.ctx); ok && p.Addr != nil {
			attrs = append(attrs, slog.String("address", p.Addr.String()))
		}
	}
	return append(attrs, slog.String("role", c.role.String()), slog.String("by", clean(c.by)))
}

// The longest list of a request in the audit log. A list that is cut off ends with how much is
// missing.
const (
	maxList       = 1000
	maxDeniedList = 10
)

// requestAttrs are the fields of a request that are set, by their names in JSON. They are names,
// codes and switches. Of what may be secret, which is bytes and what the API marks as such, they
// say only that it was given.
func requestAttrs(m protoreflect.Message, longest int) []slog.Attr {
	var attrs []slog.Attr
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		attrs = append(attrs, slog.Attr{Key: f.JSONName(), Value: fieldValue(f, m.Get(f), longest)})
	}
	return attrs
}

// given stands for the value of a field that may be secret.
const given = "given"

func fieldValue(f protoreflect.FieldDescriptor, v protoreflect.Value, longest int) slog.Value {
	o, _ := f.Options().(*descriptorpb.FieldOptions)
	switch {
	case o.GetDebugRedact() || f.Kind() == protoreflect.BytesKind || f.IsMap():
		return slog.StringValue(given)
	case !f.IsList():
		return scalarValue(f, v, longest)
	}
	list := v.List()
	n := min(list.Len(), longest)
	values := make([]any, 0, n+1)
	for i := range n {
		value := scalarValue(f, list.Get(i), longest)
		if value.Kind() == slog.KindGroup {
			values = append(values, groupMap(value.Group()))
			continue
		}
		values = append(values, value.Any())
	}
	if more := list.Len() - n; more > 0 {
		values = append(values, map[string]int{"more": more})
	}
	return slog.AnyValue(values)
}

// groupMap makes a group that handlers print inside of a list.
func groupMap(attrs []slog.Attr) map[string]any {
	m := map[string]any{}
	for _, a := range attrs {
		if a.Value.Kind() == slog.KindGroup {
			m[a.Key] = groupMap(a.Value.Group())
			continue
		}
		m[a.Key] = a.Value.Any()
	}
	return m
}

func scalarValue(f protoreflect.FieldDescriptor, v protoreflect.Value, longest int) slog.Value {
	switch f.Kind() { //nolint:exhaustive // numbers and switches are what they are
	case protoreflect.StringKind:
		return slog.StringValue(clean(v.String()))
	case protoreflect.EnumKind:
		if value := f.Enum().Values().ByNumber(v.Enum()); value != nil {
			return slog.StringValue(string(value.Name()))
		}
		return slog.Int64Value(int64(v.Enum()))
	case protoreflect.MessageKind:
		switch m := v.Message().Interface().(type) {
		case *timestamppb.Timestamp:
			return slog.StringValue(m.AsTime().Format(time.RFC3339Nano))
		case *durationpb.Duration:
			return slog.StringValue(m.AsDuration().String())
		}
		return slog.GroupValue(requestAttrs(v.Message(), longest)...)
	}
	return slog.AnyValue(v.Interface())
}

// resultAttrs are what an answer says of the work that it began, and of the snapshot that it is
// about: a request may name the latest one.
func resultAttrs(answer any) []slog.Attr {
	message, ok := answer.(proto.Message)
	if !ok {
		return nil
	}
	var attrs []slog.Attr
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	for _, at := range []struct{ key, path string }{{"operation", "operation.id"},
		{"snapshot", "operation.snapshot_id"}, {"snapshot", "snapshot.id"},
		{"snapshot", "header.snapshot.id"}} {
		add(at.key, textAt(message.ProtoReflect(), at.path))
	}
	return attrs
}

// textAt returns the text of a field by its path; empty where a message has no such field.
func textAt(m protoreflect.Message, path string) string {
	name, rest, deeper := strings.Cut(path, ".")
	f := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	switch {
	case f == nil || f.IsList() || f.IsMap() || !m.Has(f):
		return ""
	case deeper && f.Message() != nil:
		return textAt(m.Get(f).Message(), rest)
	case !deeper && f.Kind() == protoreflect.StringKind:
		return m.Get(f).String()
	}
	return ""
}
