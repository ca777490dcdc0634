package fleet

import (
	"bytes"
	"embed"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

//go:embed recorded
var recorded embed.FS

// prototype is one recorded object.
type prototype struct {
	kind, name, uid string
	text            string // JSON
}

// recording is the prototypes of one workload cluster, in groups that are made
// together: the workload cluster itself, a pool, and the four objects of a Machine.
type recording struct {
	name string
	// shared belongs to the namespace.
	shared []prototype
	base   []prototype
	pool   []prototype
	// The first control plane initialized the workload cluster, the others joined.
	initMachine, joinMachine, worker []prototype
}

// loadPrototypes reads an embedded file of prototypes.
func loadPrototypes(name string) ([]prototype, error) {
	data, err := recorded.ReadFile("recorded/" + name + ".jsonl")
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	var all []prototype
	for line := range bytes.Lines(data) {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(line); err != nil {
			return nil, fmt.Errorf("read recording %s: %w", name, err)
		}
		all = append(all, prototype{kind: o.GetKind(), name: o.GetName(), uid: string(o.GetUID()),
			text: string(line)})
	}
	return all, nil
}

// loadRecording reads an embedded recording.
func loadRecording(name string) (*recording, error) {
	all, err := loadPrototypes(name)
	if err != nil {
		return nil, err
	}
	r := &recording{name: name}
	var controlPlanes []string
	worker := ""
	for _, p := range all {
		switch {
		case p.kind != "Machine":
		case strings.Contains(p.name, recordedPool):
			worker = p.name
		default:
			controlPlanes = append(controlPlanes, p.name)
		}
	}
	if len(controlPlanes) != recordedControlPlanes || worker == "" {
		return nil, fmt.Errorf("read recording %s: it has %d control planes and worker %q", name,
			len(controlPlanes), worker)
	}
	for _, p := range all {
		switch {
		case p.name == controlPlanes[0]:
			r.initMachine = append(r.initMachine, p)
		case p.name == controlPlanes[1]:
			r.joinMachine = append(r.joinMachine, p)
		case slices.Contains(controlPlanes, p.name):
			// One that joined is enough.
		case p.name == worker:
			r.worker = append(r.worker, p)
		case strings.Contains(p.name, recordedPool):
			r.pool = append(r.pool, p)
		case strings.Contains(p.name, recordedWorkload):
			r.base = append(r.base, p)
		default:
			r.shared = append(r.shared, p)
		}
	}
	return r, nil
}

// endpoint replaces the address of the recorded workload API server.
func (r *recording) endpoint(host string) []string {
	for _, p := range r.base {
		if match := recordedPort.FindStringSubmatch(p.text); p.kind == "DevCluster" && match != nil {
			return []string{
				recordedHost + ":" + match[1], host + ":6443",
				endpointMark, host + ":6443",
				`"host":"` + recordedHost + `"`, `"host":"` + host + `"`,
				`"port":` + match[1], `"port":6443`,
			}
		}
	}
	return nil
}

// suffixes are the random parts of the names of a group.
func suffixes(group []prototype) []string {
	var found []string
	for _, p := range group {
		for part := range strings.SplitSeq(p.name, "-") {
			if randomName.MatchString(part) {
				found = append(found, part)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// alphabet is what Kubernetes makes random names of.
const alphabet = "bcdfghjklmnpqrstvwxz2456789"

var (
	randomName   = regexp.MustCompile("^[" + alphabet + "]{5}$")
	timestamp    = regexp.MustCompile(`"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"`)
	recordedPort = regexp.MustCompile(`"port":(\d+)`)
	markedPEM    = regexp.MustCompile(`(?m)^([ \t]*)@pem (\S+) (\S+)@`)
)

// scope is what to replace in the text of prototypes: names, suffixes, and the
// UIDs of what was created in it. It has what its parents have.
type scope struct {
	parent *scope
	pairs  []string // old, new, old, new, ...
	rng    *rand.Rand
	shift  time.Duration // of all times
	certs  *certificates
}

// child is a scope for one more group, with new suffixes in place of the group's.
func (s *scope) child(group []prototype, pairs ...string) *scope {
	c := &scope{parent: s, pairs: pairs, rng: s.rng, shift: s.shift, certs: s.certs}
	known := s.all()
	for _, suffix := range suffixes(group) {
		if !slices.Contains(known, suffix) {
			c.pairs = append(c.pairs, suffix, c.suffix())
		}
	}
	return c
}

func (s *scope) all() []string {
	if s == nil {
		return nil
	}
	return slices.Concat(s.pairs, s.parent.all())
}

func (s *scope) suffix() string {
	name := make([]byte, 5)
	for i := range name {
		name[i] = alphabet[s.rng.IntN(len(alphabet))]
	}
	return string(name)
}

// rename returns what becomes of a recorded name.
func (s *scope) rename(text string) string { return strings.NewReplacer(s.all()...).Replace(text) }

// instantiate makes an object of a prototype.
func (s *scope) instantiate(p prototype) (*unstructured.Unstructured, error) {
	text := timestamp.ReplaceAllStringFunc(s.rename(p.text), func(recorded string) string {
		t, err := time.Parse(`"`+time.RFC3339+`"`, recorded)
		if err != nil {
			return recorded
		}
		return t.Add(s.shift).Format(`"` + time.RFC3339 + `"`)
	})
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(text)); err != nil {
		return nil, fmt.Errorf("make %s of %s: %w", p.kind, p.name, err)
	}
	if p.kind == "Secret" {
		s.fillSecret(o, p)
	}
	return o, nil
}

// fillSecret puts keys and certificates where the recording has marks.
func (s *scope) fillSecret(o *unstructured.Unstructured, p prototype) {
	role, _ := strings.CutPrefix(p.name, recordedWorkload+"-")
	data := fields{}
	if s.certs != nil {
		for key, text := range s.certs.data[role] {
			data[key] = base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
	texts, _, _ := unstructured.NestedStringMap(o.Object, "stringData")
	for key, text := range texts {
		text = markedPEM.ReplaceAllStringFunc(text, func(mark string) string {
			match := markedPEM.FindStringSubmatch(mark)
			block := strings.TrimSpace(s.certs.data[match[2]][match[3]])
			return match[1] + strings.ReplaceAll(block, "\n", "\n"+match[1])
		})
		data[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	o.Object["data"] = data
	if !strings.Contains(p.text, `"f:stringData"`) {
		delete(o.Object, "stringData")
	}
}
