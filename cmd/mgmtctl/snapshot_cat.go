package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/mgmtd/mgmtd/internal/object"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// coreGroup is how people name the group of Secrets and Namespaces, whose name is empty.
const coreGroup = "core"

// objectArg is the argument that names an object.
const objectArg = "NAMESPACE/NAME of the object, or the NAME of a cluster-scoped one"

func newSnapshotCat(p *program) *cobra.Command {
	req := &mgmtv1.GetObjectRequest{}
	as := formatYAML
	cmd := &cobra.Command{
		Use:   "cat ID|latest KIND[.GROUP] NAMESPACE/NAME [flags]",
		Short: "Print one object of a snapshot",
		Long: `Print one object of a snapshot as the source served it, with its status. The kind is in upper
or lower case, and needs its group only where several kinds have that name. A line of "mgmtctl
snapshot ls -o name" names an object in one word.

Of a Secret it prints the names and the sizes of the values, as kubectl describe does, and of the
annotations likewise. --with-secrets prints the values. Other kinds are printed whole: a
KubeadmConfig or a ConfigMap may hold a password.

A restore is what brings objects back in order. What is printed here still has the UIDs and owner
references of the source.

Changes: nothing.

Standalone it needs --store and --identity (not for a plain store).

Exit codes: 0 printed; 1 other error, such as no such snapshot or object; 2 usage, such as a kind
that several groups have; 10 store; 12 identity or signature.`,
		Example: `  mgmtctl snapshot cat latest cluster team-a/web --identity identity.txt
  mgmtctl snapshot cat 1a2b Secret team-a/web-kubeconfig --with-secrets -o json \
      --identity identity.txt`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usageError(cmd, "argument missing: %s", snapshotArg)
			case len(args) > 3:
				return usageError(cmd, "takes a snapshot, a kind and a name, got also %q", args[3])
			}
			return nameObject(cmd, req, args[1:])
		},
		ValidArgsFunction: p.completeSnapshot,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Id = args[0]
			return p.withServer(cmd, []need{needStore, needIdentity}, func(ctx context.Context,
				c *connection) error {
				return runSnapshotCat(ctx, p, c, req, as)
			})
		},
	}
	addSource(cmd, &req.Source)
	addScope(cmd, &req.Scope)
	addLocation(cmd, &req.Location)
	cmd.Flags().BoolVar(&req.WithSecrets, "with-secrets", false, "print the values of a Secret, too")
	cmd.Flags().VarP(newEnum(&as, formatYAML, formatJSON), "output", "o", "how to print the object")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"yaml", "json"},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// nameObject reads the arguments that name an object: a ref, or a kind and a name.
func nameObject(cmd *cobra.Command, req *mgmtv1.GetObjectRequest, args []string) error {
	switch len(args) {
	case 0:
		return usageError(cmd, "arguments missing: KIND[.GROUP] and %s", objectArg)
	case 1:
		r, err := object.ParseRef(args[0])
		if err != nil {
			return usageError(cmd, "argument missing: %s", objectArg)
		}
		req.Kind = r.Kind + "." + cmp.Or(r.Group, coreGroup)
		req.Namespace, req.Name = r.Namespace, r.Name
		return nil
	}
	var err error
	req.Kind = args[0]
	req.Namespace, req.Name, err = splitName(cmd, args[1])
	return err
}

// splitName reads "namespace/name", or the name of a cluster-scoped object.
func splitName(cmd *cobra.Command, text string) (namespace, name string, err error) {
	if !strings.Contains(text, "/") && text != "" {
		return "", text, nil
	}
	key, err := object.ParseKey(text)
	if err != nil {
		return "", "", usageError(cmd, "%q is not the %s", text, objectArg)
	}
	return key.Namespace, key.Name, nil
}

func runSnapshotCat(ctx context.Context, p *program, c *connection, req *mgmtv1.GetObjectRequest,
	as format) error {
	var err error
	if req.Identity, err = p.readIdentity(ctx); err != nil {
		return err
	}
	resp, err := c.snapshots.GetObject(ctx, req)
	if err != nil {
		return err
	}
	text, err := objectText(resp.GetJson(), as)
	if err != nil {
		return fmt.Errorf("print %s: %w", refText(resp.GetRef()), err)
	}
	if resp.GetValuesLeftOut() {
		p.say("the values of %s are left out; --with-secrets prints them", refText(resp.GetRef()))
	}
	if _, err := p.stdout.Write(text); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// objectText returns the JSON of an object for people. No error quotes the object.
func objectText(raw []byte, as format) ([]byte, error) {
	if as == formatYAML {
		text, err := yaml.JSONToYAML(raw)
		if err != nil {
			return nil, fmt.Errorf("it is not valid JSON")
		}
		return text, nil
	}
	var out bytes.Buffer
	if json.Indent(&out, raw, "", "  ") != nil {
		return nil, fmt.Errorf("it is not valid JSON")
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
