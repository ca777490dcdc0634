package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newStoreStats(p *program) *cobra.Command {
	req := &mgmtv1.GetStatsRequest{}
	cmd := &cobra.Command{
		Use:   "stats [flags]",
		Short: "Show what a store holds, for whom, and how it grows",
		Long: `Show how much a store holds: by source, by kind of key and by day, and how much no snapshot
names. SHARED is what more than one snapshot of a source names. With --snapshots it also shows what
the deletion of each snapshot alone would free, which is less than what the snapshot names: the
rest is shared.

What no snapshot names is content of a snapshot that is being taken, or a prune frees it ("mgmtctl
prune plan"). What was written on a day, and was deleted since, is not counted.

Changes: nothing. It needs no identity. It reads all envelopes and trees, and lists the store once.

Standalone it needs --store.

Exit codes: 0 shown; 1 other error; 2 usage; 3 a snapshot cannot be read, so that what it names may
be counted as named by none; 10 store; 12 a trusted key that is not one.`,
		Example: `  mgmtctl store stats --standalone --store /backup/mgmt
  mgmtctl store stats --snapshots -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.GetDays() < 0 {
				return usageError(cmd, "--days is negative")
			}
			return p.withServer(cmd, []need{needStore}, func(ctx context.Context, c *connection) error {
				return runStoreStats(ctx, p, c, req)
			})
		},
	}
	addLocation(cmd, &req.Location)
	cmd.Flags().BoolVar(&req.Snapshots, "snapshots", false, "show each snapshot, and what its "+
		"deletion alone would free")
	cmd.Flags().Int32Var(&req.Days, "days", 14, "show what was written on the newest `N` days that "+
		"have anything")
	return cmd
}

// storeStats are all pieces of the statistics, collected from their stream.
type storeStats struct {
	store     *mgmtv1.StoreStats
	sources   []*mgmtv1.SourceStats
	snapshots []*mgmtv1.SnapshotStats
	days      []*mgmtv1.DayStats
	findings  []*mgmtv1.Finding
}

func runStoreStats(ctx context.Context, p *program, c *connection,
	req *mgmtv1.GetStatsRequest) error {
	stream, err := c.stores.GetStats(ctx, req)
	if err != nil {
		return err
	}
	pieces, err := receiveAll(stream)
	if err != nil {
		return err
	}
	s := &storeStats{}
	for _, piece := range pieces {
		switch item := piece.GetItem().(type) {
		case *mgmtv1.GetStatsResponse_Store:
			s.store = item.Store
		case *mgmtv1.GetStatsResponse_Source:
			s.sources = append(s.sources, item.Source)
		case *mgmtv1.GetStatsResponse_Snapshot:
			s.snapshots = append(s.snapshots, item.Snapshot)
		case *mgmtv1.GetStatsResponse_Day:
			s.days = append(s.days, item.Day)
		case *mgmtv1.GetStatsResponse_Finding:
			p.completeHint(item.Finding)
			s.findings = append(s.findings, item.Finding)
		}
	}
	document, err := s.document()
	if err != nil {
		return err
	}
	if err := p.print(document, func(w io.Writer) { p.writeStats(w, s) }); err != nil {
		return err
	}
	if len(s.findings) > 0 {
		return exit(service.ExitFindings)
	}
	return nil
}

// document is the statistics as JSON or YAML.
func (s *storeStats) document() (any, error) {
	var d struct {
		Store     json.RawMessage   `json:"store"`
		Sources   []json.RawMessage `json:"sources"`
		Snapshots []json.RawMessage `json:"snapshots"`
		Days      []json.RawMessage `json:"days"`
		Findings  []json.RawMessage `json:"findings"`
	}
	var err error
	if d.Store, err = rawJSON(s.store); err != nil {
		return nil, err
	}
	if d.Sources, err = rawList(s.sources); err != nil {
		return nil, err
	}
	if d.Snapshots, err = rawList(s.snapshots); err != nil {
		return nil, err
	}
	if d.Days, err = rawList(s.days); err != nil {
		return nil, err
	}
	d.Findings, err = rawList(s.findings)
	return d, err
}

func (p *program) writeStats(w io.Writer, s *storeStats) {
	var all mgmtv1.StoreAmount
	for _, k := range s.store.GetStored() {
		all.Keys += k.GetStored().GetKeys()
		all.Bytes += k.GetStored().GetBytes()
	}
	var l pairs
	l.add("id", s.store.GetStoreId())
	l.add("created", p.when(s.store.GetCreateTime()))
	l.add("encrypted", yesNo(s.store.GetEncrypted()))
	l.add("snapshots", number(s.store.GetSnapshots()))
	l.add("stored", storeAmountText(&all))
	l.add("named by no snapshot", storeAmountText(s.store.GetUnnamed()))
	if s.store.GetSeveralSources().GetKeys() > 0 {
		l.add("of several sources", storeAmountText(s.store.GetSeveralSources()))
	}
	l.write(w)
	p.writeSourceStats(w, s)
	p.writeSnapshotStats(w, s.snapshots)
	if len(s.days) > 0 {
		t := newTable("DAY (UTC)", "KEYS", "WRITTEN")
		for _, d := range s.days {
			t.add(d.GetDay(), number(d.GetWritten().GetKeys()), size(d.GetWritten().GetBytes()))
		}
		fmt.Fprintln(w)
		t.write(w)
	}
	if len(s.findings) > 0 {
		fmt.Fprintln(w)
		writeFindings(w, s.findings)
	}
}

// writeSourceStats writes what is stored of each kind: in all, and for each source.
func (p *program) writeSourceStats(w io.Writer, s *storeStats) {
	kinds := newTable("KIND", "KEYS", "STORED")
	for _, k := range s.store.GetStored() {
		kinds.add(word(k.GetKind(), "STORE_KIND_"), number(k.GetStored().GetKeys()),
			size(k.GetStored().GetBytes()))
	}
	fmt.Fprintln(w)
	kinds.write(w)
	if len(s.sources) == 0 {
		return
	}
	t := newTable("SOURCE", "SNAPSHOTS", "NEWEST", "SCOPES", "STORED", "SHARED")
	for _, source := range s.sources {
		var bytes int64
		for _, k := range source.GetStored() {
			bytes += k.GetStored().GetBytes()
		}
		var newest *timestamppb.Timestamp
		var scopes []string
		for _, scope := range source.GetScopes() {
			scopes = append(scopes, fmt.Sprintf("%s (%d)", scopeText(scope), scope.GetSnapshots()))
			if scope.GetNewest().AsTime().After(newest.AsTime()) {
				newest = scope.GetNewest()
			}
		}
		snapshots := number(source.GetSnapshots())
		if n := source.GetUnreadable(); n > 0 {
			snapshots += fmt.Sprintf(" (%d unreadable)", n)
		}
		t.add(cmp.Or(source.GetName(), source.GetUid()), snapshots, p.age(newest),
			strings.Join(scopes, ", "), size(bytes), size(source.GetShared().GetBytes()))
	}
	fmt.Fprintln(w)
	t.write(w)
}

// scopeText names a scope as --scope takes it.
func scopeText(s *mgmtv1.StoreScope) string {
	switch {
	case s.GetSchedule() != "" && s.GetScope() != wholeScope:
		return s.GetSchedule()
	case s.GetScope() == "":
		return "unknown"
	default:
		return s.GetScope()[:min(len(s.GetScope()), 8)]
	}
}

// wholeScope is the scope of snapshots of everything.
const wholeScope = "whole"

func (p *program) writeSnapshotStats(w io.Writer, snapshots []*mgmtv1.SnapshotStats) {
	if len(snapshots) == 0 {
		return
	}
	t := newTable("ID", "SOURCE", "AGE", "NAMES", "ALONE", "NOTES")
	for _, s := range snapshots {
		t.add(s.GetSnapshot().GetId(), sourceText(s.GetSnapshot()), p.age(s.GetSnapshot().GetTime()),
			size(s.GetSnapshot().GetStoredBytes()), size(s.GetAlone().GetBytes()),
			snapshotNotes(s.GetSnapshot()))
	}
	fmt.Fprintln(w)
	t.write(w)
}

func storeAmountText(a *mgmtv1.StoreAmount) string {
	return fmt.Sprintf("%s, %s", count(a.GetKeys(), "key"), size(a.GetBytes()))
}
