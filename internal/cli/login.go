package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) login() *cobra.Command {
	var endpoints []string
	var trust, name string
	c := &cobra.Command{
		Use:   "login --endpoint URL --trust PIN",
		Short: "Save a cluster and a token in the config file",
		Long: "Save a cluster and a token in the config file. The token is read from TRIVET_TOKEN or standard\n" +
			"input, never from the command line, where other users could see it. It is verified before it is\n" +
			"saved.\n\n" +
			"The given endpoints are tried first, in order, then the other heads of the cluster, which are\n" +
			"saved too. Run trivet context --refresh to add heads that joined later.",
		Example: "  trivet token issue alice | trivet login --endpoint https://10.0.0.5:7480 --trust sha256:...",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			trust, err := trustText(trust)
			if err != nil {
				return err
			}
			token, err := a.readToken()
			if err != nil {
				return err
			}
			entry := client.Context{Endpoints: endpoints, Trust: trust, Token: token}
			who, err := a.verify(cmd.Context(), &entry)
			if err != nil {
				return err
			}
			path, err := saveContext(cmp.Or(a.context, name), entry)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "logged in as %s (%s); saved to %s\n", who.Account, who.Role, path)
			return nil
		},
	}
	c.Flags().StringArrayVar(&endpoints, "endpoint", nil, "URL of a head; can be repeated")
	c.Flags().StringVar(&trust, "trust", "",
		"pin of the cluster's CA (sha256:...), or a file with its certificate in PEM")
	c.Flags().StringVar(&name, "name", "default", "name of the context in the config file")
	c.MarkFlagRequired("endpoint")
	c.MarkFlagRequired("trust")
	return c
}

// verify checks a token with its cluster, and adds the cluster's other heads to the endpoints.
func (a *app) verify(ctx context.Context, entry *client.Context) (trivet.Whoami, error) {
	cl, err := client.New(client.Config{
		Endpoints: entry.Endpoints, Trust: entry.Trust, Token: entry.Token, FailFast: true, Fresh: true,
		UserAgent: "trivet/" + a.Version,
	})
	if err != nil {
		return trivet.Whoami{}, err
	}
	defer cl.Close()
	who, err := cl.Whoami(ctx)
	if err == nil {
		entry.Endpoints = cl.Endpoints()
	}
	return who, err
}

// trustText returns the pin, or the certificate in the named file.
func trustText(trust string) (string, error) {
	if strings.HasPrefix(trust, "sha256:") {
		return trust, nil
	}
	pem, err := os.ReadFile(trust)
	return string(pem), err
}

func (a *app) readToken() (string, error) {
	if token := os.Getenv("TRIVET_TOKEN"); token != "" {
		return token, nil
	}
	if f, ok := a.In.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(a.Err, "Token: ")
		text, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.Err)
		return strings.TrimSpace(string(text)), err
	}
	in := bufio.NewScanner(a.In)
	if !in.Scan() {
		return "", fmt.Errorf("%w: no token on standard input", trivet.ErrInvalid)
	}
	return strings.TrimSpace(in.Text()), nil
}

func saveContext(name string, entry client.Context) (path string, err error) {
	if path, err = client.FilePath(); err != nil {
		return "", err
	}
	f, err := client.ReadFile(path)
	if errors.Is(err, trivet.ErrNotFound) {
		f, err = &client.File{}, nil
	}
	if err != nil {
		return "", err
	}
	if f.Contexts == nil {
		f.Contexts = map[string]client.Context{}
	}
	f.Contexts[name], f.Current = entry, name
	return path, f.Write(path)
}

func (a *app) contexts() *cobra.Command {
	var refresh bool
	c := &cobra.Command{
		Use:     "context [NAME]",
		Short:   "List the clusters in the config file, or select one",
		Example: "  trivet context\n  trivet context lab\n  trivet context --refresh",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := client.FilePath()
			if err != nil {
				return err
			}
			f, err := client.ReadFile(path)
			if err != nil {
				return err
			}
			switch {
			case refresh:
				return a.refresh(cmd.Context(), path, f, f.Name(cmp.Or(append(args, a.context)...)))
			case len(args) == 1:
				if _, err := f.Pick(args[0]); err != nil {
					return err
				}
				f.Current = args[0]
				return f.Write(path)
			}
			return a.showContexts(f)
		},
	}
	c.Flags().BoolVar(&refresh, "refresh", false, "add the cluster's current heads to the context's endpoints")
	return c
}

// refresh adds the cluster's current heads to a context. Endpoints are never removed: one that is not a head may be a
// load balancer.
func (a *app) refresh(ctx context.Context, path string, f *client.File, name string) error {
	entry, err := f.Pick(name)
	if err != nil {
		return err
	}
	before := len(entry.Endpoints)
	if _, err := a.verify(ctx, &entry); err != nil {
		return err
	}
	f.Contexts[name] = entry
	fmt.Fprintf(a.Out, "context %s has %d endpoints, %d of them new\n", name, len(entry.Endpoints),
		len(entry.Endpoints)-before)
	return f.Write(path)
}

func (a *app) showContexts(f *client.File) error {
	rows := [][]string{{"", "CONTEXT", "ENDPOINTS"}}
	for _, name := range slices.Sorted(maps.Keys(f.Contexts)) {
		mark := ""
		if name == f.Current {
			mark = "*"
		}
		rows = append(rows, []string{mark, name, strings.Join(f.Contexts[name].Endpoints, " ")})
	}
	return align(a.Out, rows)
}
