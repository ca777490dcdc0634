package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// extractFlags say where objects go.
type extractFlags struct {
	dir       string
	overwrite bool
	as        format
}

func newSnapshotExtract(p *program) *cobra.Command {
	req := &mgmtv1.ExtractObjectsRequest{Filter: &mgmtv1.ObjectFilter{}}
	to := extractFlags{as: formatYAML}
	cmd := &cobra.Command{
		Use:   "extract ID|latest [KIND[.GROUP] [NAMESPACE/NAME...]] [flags]",
		Short: "Write objects of a snapshot to files",
		Long: `Write the objects of a snapshot, or some of them, as the source served them: to files below the
folder of --out, or to stdout, one document after the other. A file is named
NAMESPACE/KIND.GROUP/NAME.yaml; cluster-scoped objects are in the folder _cluster. Characters that
mean something to a shell or a file system are written as %XX, and long names are cut.

Objects are named by a kind, by a kind and names, or by lines of "mgmtctl snapshot ls -o name". Each
flag that is given narrows them down further, as in "mgmtctl snapshot ls".

Of Secrets it writes the names and the sizes of the values, and of the annotations likewise, which
no API server accepts. --with-secrets writes the values. Other kinds are written whole: a
KubeadmConfig or a ConfigMap may hold a password.

--for-kubectl leaves out what another API server refuses or acts upon: UIDs, owner references,
managedFields and the status. A Cluster is paused in it. kubectl can create such objects, but knows
nothing of their order, nor of who owns a workload cluster: "mgmtctl restore" does.

Changes: files below the folder of --out, which only their owner may read. It has to be empty or
missing, unless --overwrite is given.

Standalone it needs --store and --identity (not for a plain store).

Exit codes: 0 written, also when no object fits; 1 other error, such as no such snapshot or object;
2 usage, such as a folder that is not empty; 3 written, except for objects that the snapshot left
out; 10 store; 12 identity or signature.`,
		Example: `  mgmtctl snapshot extract latest --namespace team-a --out team-a --identity identity.txt
  mgmtctl snapshot extract 1a2b ClusterResourceSet team-a/cni --for-kubectl \
      --identity identity.txt | kubectl create -f -`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usageError(cmd, "argument missing: %s", snapshotArg)
			case to.overwrite && to.dir == "":
				return usageError(cmd, "--overwrite needs --out")
			}
			return nameObjects(cmd, req.Filter, args[1:])
		},
		ValidArgsFunction: p.completeSnapshot,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Id = args[0]
			return p.withServer(cmd, []need{needStore, needIdentity}, func(ctx context.Context,
				c *connection) error {
				return runSnapshotExtract(ctx, p, c, req, to)
			})
		},
	}
	addSource(cmd, &req.Source)
	addScope(cmd, &req.Scope)
	addLocation(cmd, &req.Location)
	addObjectFilter(cmd, req.Filter)
	addExtractFlags(cmd, req, &to)
	return cmd
}

func addExtractFlags(cmd *cobra.Command, req *mgmtv1.ExtractObjectsRequest, to *extractFlags) {
	set := cmd.Flags()
	set.StringVar(&to.dir, "out", "", "write files below this folder (`DIR`), not to stdout")
	set.BoolVar(&to.overwrite, "overwrite", false, "write into a folder that is not empty, over "+
		"files of the same name; others stay")
	set.BoolVar(&req.WithSecrets, "with-secrets", false, "write the values of Secrets, too")
	set.BoolVar(&req.ForKubectl, "for-kubectl", false, "leave out what belongs to the source, so "+
		"that kubectl can create the objects")
	set.VarP(newEnum(&to.as, formatYAML, formatJSON), "output", "o", "how to write the objects")
	_ = cmd.MarkFlagDirname("out")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"yaml", "json"},
		cobra.ShellCompDirectiveNoFileComp))
}

// nameObjects reads arguments that name objects: a kind, a kind and names, or lines of snapshot ls
// -o name.
func nameObjects(cmd *cobra.Command, f *mgmtv1.ObjectFilter, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if len(args) == 1 && !strings.Contains(args[0], "/") {
		if err := checkName(args[0]); err != nil {
			return usageError(cmd, "%v", err)
		}
		f.Kinds = append(f.Kinds, args[0])
		return nil
	}
	names := args[1:]
	if strings.Contains(args[0], "/") {
		names = args
	}
	for _, name := range names {
		of, words := &mgmtv1.GetObjectRequest{}, []string{args[0], name}
		if len(names) == len(args) {
			words = words[1:]
		}
		if err := nameObject(cmd, of, words); err != nil {
			return err
		}
		f.Objects = append(f.Objects, &mgmtv1.ObjectName{Kind: of.GetKind(),
			Namespace: of.GetNamespace(), Name: of.GetName()})
	}
	return nil
}

func runSnapshotExtract(ctx context.Context, p *program, c *connection,
	req *mgmtv1.ExtractObjectsRequest, to extractFlags) (err error) {
	var out objectSink = &documents{w: p.stdout, as: to.as}
	if to.dir != "" {
		if out, err = newFolder(to); err != nil {
			return err
		}
	}
	if req.Identity, err = p.readIdentity(ctx); err != nil {
		return err
	}
	stream, err := c.snapshots.ExtractObjects(ctx, req)
	if err != nil {
		return err
	}
	done, err := p.receiveObjects(stream, out)
	if closed := out.close(); err == nil {
		err = closed
	}
	if err != nil {
		return err // as the stream returned it: its status says how to exit
	}
	if done.written+done.omitted == 0 {
		p.say("no objects")
	} else if to.dir != "" {
		p.say("%s written to %s", count(done.written, "object"), to.dir)
	}
	if done.leftOut > 0 {
		p.say("the values of %s are left out; --with-secrets writes them", count(done.leftOut, "Secret"))
	}
	if done.omitted > 0 {
		return exit(service.ExitFindings)
	}
	return nil
}

// objectSink takes extracted objects.
type objectSink interface {
	// put takes an object that is complete. No error quotes it.
	put(*mgmtv1.ExtractedObject) error
	close() error
}

// extracted counts objects.
type extracted struct{ written, leftOut, omitted int }

// receiveObjects reads the stream to its end.
func (p *program) receiveObjects(stream grpc.ServerStreamingClient[mgmtv1.ExtractObjectsResponse],
	out objectSink) (done extracted, err error) {
	progress := p.newProgress()
	defer progress.end()
	var open *mgmtv1.ExtractedObject
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if open != nil {
				return done, fmt.Errorf("read %s: the answer ends in the middle of it",
					refText(open.GetRef()))
			}
			return done, nil
		}
		if err != nil {
			return done, err
		}
		if read := resp.GetProgress(); read != nil {
			progress.show(&mgmtv1.Event{Type: mgmtv1.EventType_EVENT_TYPE_PROGRESS,
				Progress: "objects read", Done: read.GetDone(), Total: read.GetTotal()})
		}
		o := resp.GetObject()
		if o == nil {
			continue
		}
		if open != nil {
			open.Json = append(open.Json, o.GetJson()...)
			open.Continued = o.GetContinued()
			o = open
		}
		if open = o; o.GetContinued() {
			continue
		}
		open = nil
		if err := p.putObject(o, out, &done); err != nil {
			return done, err
		}
	}
}

// putObject passes on an object that is complete.
func (p *program) putObject(o *mgmtv1.ExtractedObject, out objectSink, done *extracted) error {
	if o.GetOmitted() {
		done.omitted++
		p.say("%s is not written: the snapshot left it out, because it had too many owners or "+
			"references", refText(o.GetRef()))
		return nil
	}
	done.written++
	if o.GetValuesLeftOut() {
		done.leftOut++
	}
	return out.put(o)
}

// extractedText returns an object as it is written.
func extractedText(o *mgmtv1.ExtractedObject, as format) ([]byte, error) {
	text, err := objectText(o.GetJson(), as)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", refText(o.GetRef()), err)
	}
	if o.GetValuesLeftOut() && as == formatYAML {
		text = append([]byte("# The values are left out: their sizes are in their places.\n"), text...)
	}
	return text, nil
}

// documents writes objects to stdout, as kubectl reads them: YAML documents, or one JSON text after
// the other.
type documents struct {
	w  io.Writer
	as format
}

func (d *documents) put(o *mgmtv1.ExtractedObject) error {
	text, err := extractedText(o, d.as)
	if err != nil {
		return err
	}
	if d.as == formatYAML {
		text = append([]byte("---\n"), text...)
	}
	if _, err := d.w.Write(text); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

func (d *documents) close() error { return nil }
