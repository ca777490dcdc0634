package catalog

import (
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzDecode: every decoded record is valid, and is the same after it is encoded and decoded again;
// nothing panics.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"storeID":"s","source":"u","id":"12ab","key":"k","time":"2026-03-01T12:00:00Z","sequence":1,"objects":2,"units":1,"bytes":3,"tree":"t"}`,
		`{"id":"12ab00000000","kind":"restore","state":"running","created":"2026-03-01T12:00:00Z","updated":"2026-03-01T12:00:01Z","progress":[{"what":"x","done":1}]}`,
		`{"step":"ns/name/create/03","state":"done","attempts":1,"begun":"2026-03-01T12:00:00Z","ended":"2026-03-01T12:00:01Z","result":{"a":1}}`,
		`{"seq":1,"time":"2026-03-01T12:00:00Z","type":"finding","finding":{"severity":"error","code":"owner-missing","ref":{"kind":"Secret","name":"a"}}}`,
		`{"size":7,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","chunks":1}`,
		`{"size":10,"written":"2026-03-01T12:00:00Z"}`,
		`{"name":"nightly","paused":true,"lastRun":"2026-03-01T12:00:00Z"}`,
		"ns/name/create/03", "-/pause", "0000000000000001/12ab/store/uid", "12ab00000000", "step\x00key",
		"\x00\x00\x00\x00\x00\x00\x00\x07", "", "{}", "[]", "null",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		again(t, data, decodeSnapshot)
		again(t, data, decodeOperation)
		again(t, data, decodeStep)
		again(t, data, decodeEvent)
		again(t, data, decodePlanInfo)
		again(t, data, func(b []byte) (storedKey, error) { return decode[storedKey]("stored key", b) })
		again(t, data, func(b []byte) (ScheduleState, error) {
			return decode[ScheduleState]("schedules", b)
		})
		again(t, data, func(b []byte) (VerifyState, error) { return decode[VerifyState]("verifies", b) })
		if step, err := ParseStep(string(data)); err == nil && step.String() != string(data) {
			t.Errorf("step %q became %q", data, step)
		}
		if id, err := ParseOperationID(string(data)); err == nil && id.String() != string(data) {
			t.Errorf("operation id %q became %q", data, id)
		}
		if step, key, err := parseValueKey(data); err == nil &&
			string(valueKey(step, key)) != string(data) {
			t.Errorf("value key %q became %q", data, valueKey(step, key))
		}
		if seq, err := parseSequenceKey(data); err == nil && string(sequenceKey(seq)) != string(data) {
			t.Errorf("sequence key %q became %q", data, sequenceKey(seq))
		}
		_ = checkSnapshotKey(data)
		_, _ = decompressPlan(data, PlanInfo{})
	})
}

func again[T any](t *testing.T, data []byte, decode func([]byte) (T, error)) {
	t.Helper()
	first, err := decode(data)
	if err != nil {
		return
	}
	stored, err := json.Marshal(first)
	if err != nil {
		t.Errorf("%T: decoded, but cannot be stored: %v", first, err)
		return
	}
	second, err := decode(stored)
	if err != nil {
		t.Errorf("%T: stored %s cannot be read: %v", first, stored, err)
		return
	}
	restored, err := json.Marshal(second)
	if err != nil || !reflect.DeepEqual(stored, restored) {
		t.Errorf("%T: %s became %s, %v", first, stored, restored, err)
	}
}
