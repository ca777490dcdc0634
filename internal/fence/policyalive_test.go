package fence

import (
	"context"
	"errors"
	"maps"
	"testing"
)

// TestAHostThatWakesUpLeavesTheListAlone: another host has taken its operation over, before it
// asked, or between its question and its write.
func TestAHostThatWakesUpLeavesTheListAlone(t *testing.T) {
	errLost := errors.New("another host has taken over")
	for name, write := range map[string]func(p *Policy, c Cluster) error{
		"arm":   func(p *Policy, c Cluster) error { return p.Arm(t.Context(), []Cluster{c}) },
		"allow": func(p *Policy, c Cluster) error { return p.Allow(t.Context(), c.Ref) },
	} {
		for _, meanwhile := range []bool{false, true} {
			m := newMemory()
			c, other := m.addCluster("c", true, nil), m.addCluster("other", true, nil)
			there := m.fence().Policy // of the other host
			arm := func(c Cluster) {
				if err := there.Arm(t.Context(), []Cluster{c}); err != nil {
					t.Fatal(err)
				}
			}
			if name == "allow" {
				arm(c)
			}
			p, asked := m.fence().Policy, 0
			before := m.listed()
			p.Alive = func(context.Context) error {
				if asked++; !meanwhile || asked > 1 {
					return errLost
				}
				arm(other)
				before = m.listed()
				return nil
			}
			if err := write(p, c); !errors.Is(err, errLost) || !maps.Equal(m.listed(), before) {
				t.Errorf("%s, %v: listed %v, before %v, %v", name, meanwhile, m.listed(), before, err)
			}
		}
	}
}

// TestAHostThatWakesUpTakesItsOwnPauseBack: nobody else would take the Cluster off the list.
func TestAHostThatWakesUpTakesItsOwnPauseBack(t *testing.T) {
	m := newMemory()
	c := m.addCluster("c", true, nil)
	p := m.fence().Policy
	if err := p.Arm(t.Context(), []Cluster{c}); err != nil {
		t.Fatal(err)
	}
	p.Alive = func(context.Context) error { return errors.New("another host has taken over") }
	if err := p.TakeBack(t.Context(), c.Ref); err != nil || m.listed() != nil {
		t.Errorf("listed %v, %v", m.listed(), err)
	}
}
