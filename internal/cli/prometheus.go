package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// scrape is the configuration of Prometheus that is printed.
type scrape struct {
	Job, Token, CA string
	Heads          []string // URLs of their service discovery
}

// prometheus prints a scrape configuration.
func (a *app) prometheus() *cobra.Command {
	var dir, account, job, ttl, output string
	c := &cobra.Command{
		Use:   "prometheus",
		Short: "Print a scrape configuration for Prometheus, and write its token",
		Long: "Print a scrape configuration for Prometheus. It finds the heads by HTTP service discovery, from each\n" +
			"head, so that a head that is lost or joins later needs no change.\n\n" +
			"The configuration refers to two files, which are written into --dir: ca.pem, the CA of the heads, and\n" +
			"token, a new token of an account with role viewer, which is created if it does not exist. Both belong\n" +
			"to the owner of the directory, with mode 0600, so that Prometheus can read them and no other user can.\n" +
			"The token expires as others do: run the command again before, such as once a week. Prometheus reads\n" +
			"the files again by itself.",
		Example: "  install -d -o prometheus -m 700 /etc/prometheus/trivet\n" +
			"  trivet prometheus -o /etc/prometheus/trivet/scrape.yml   # for scrape_config_files of Prometheus 2.43\n" +
			"  trivet prometheus                                        # to add to scrape_configs by hand",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			s := scrape{Job: job, Token: filepath.Join(dir, "token"), CA: filepath.Join(dir, "ca.pem")}
			req, err := tokenRequest(account, ttl)
			if err != nil {
				return err
			}
			issued, err := a.writeScrapeFiles(cmd.Context(), dir, req, &s)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Err, "%s and %s are written; token/%s of account/%s %s\n", s.Token, s.CA, issued.Name,
				account, expiryText(issued.Expires))
			return a.writeScrape(output, s)
		},
	}
	c.Flags().StringVar(&dir, "dir", "/etc/prometheus/trivet", "directory of the token and the CA's certificate")
	c.Flags().StringVar(&account, "account", "prometheus", "account of the token; its role must be viewer")
	c.Flags().StringVar(&job, "job", "trivet", "name of the job, one for each cluster")
	c.Flags().StringVar(&ttl, "ttl", "", `how long the token is valid, such as 720h, or "never"`)
	c.Flags().StringVarP(&output, "output", "o", "", "file that the configuration is written to; empty: standard output")
	c.RegisterFlagCompletionFunc("account", a.completeNames("accounts"))
	c.MarkFlagDirname("dir")
	return c
}

// writeScrapeFiles writes the files that a configuration refers to, and finds the heads.
func (a *app) writeScrapeFiles(ctx context.Context, dir string, req trivet.TokenRequest, s *scrape) (
	issued trivet.TokenResponse, err error) {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return issued, &trivet.Error{Op: "write " + s.Token, Err: cmp.Or(err, error(syscall.ENOTDIR)),
			Hint: "create the directory for the user that Prometheus runs as: install -d -o prometheus -m 700 " + dir}
	}
	cl, err := a.connect()
	if err != nil {
		return issued, err
	}
	ca, err := cl.CA(ctx)
	if err != nil {
		return issued, err
	}
	heads, _, err := client.Of[trivet.Head](cl).List(ctx, client.ListOptions{})
	if err != nil {
		return issued, err
	}
	for _, h := range heads {
		if h.Serves() && len(h.Status.API) > 0 {
			s.Heads = append(s.Heads, h.Status.API[0]+"/v1/prometheus/targets")
		}
	}
	if err := scrapeAccount(ctx, cl, req.Account); err != nil {
		return issued, err
	}
	if issued, err = cl.IssueToken(ctx, req); err != nil {
		return issued, err
	}
	return issued, errors.Join(writeOwned(s.CA, ca.Certificates, info), writeOwned(s.Token, issued.Token+"\n", info))
}

// scrapeAccount creates the account, or checks the role of the one that exists: its token is in a file.
func scrapeAccount(ctx context.Context, cl *client.Client, name string) error {
	accounts := client.Of[trivet.Account](cl)
	is, err := accounts.Get(ctx, name)
	if errors.Is(err, trivet.ErrNotFound) {
		_, err = accounts.Create(ctx, &trivet.Account{Meta: trivet.Meta{Kind: "Account", Name: name},
			Spec: trivet.AccountSpec{Role: trivet.AccountViewer}})
		return err
	}
	if err == nil && is.Spec.Role != trivet.AccountViewer {
		err = &trivet.Error{Op: "use", Kind: "Account", Name: name,
			Err:  fmt.Errorf("%w: its role is %s, and Prometheus needs viewer", trivet.ErrInvalid, is.Spec.Role),
			Hint: "name another account: --account NAME"}
	}
	return err
}

// writeOwned replaces a file of the owner of a directory, which no other user can read.
func writeOwned(file, text string, dir os.FileInfo) error {
	f, err := renameio.NewPendingFile(file, renameio.WithPermissions(0o600), renameio.IgnoreUmask())
	if err != nil {
		return err
	}
	defer f.Cleanup()
	if owner, ok := dir.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(f, text); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// scrapeConfig names the type of the token, which the discovery of Prometheus 2.42 does not assume.
var scrapeConfig = template.Must(template.New("scrape").Parse(`# Written by 'trivet prometheus'.
scrape_configs:
- job_name: {{printf "%q" .Job}}
  scheme: https
  authorization: {type: Bearer, credentials_file: {{printf "%q" .Token}}}
  tls_config: {ca_file: {{printf "%q" .CA}}}
  http_sd_configs: # each head lists all heads
{{- range .Heads}}
  - url: {{printf "%q" .}}
    authorization: {type: Bearer, credentials_file: {{printf "%q" $.Token}}}
    tls_config: {ca_file: {{printf "%q" $.CA}}}
{{- end}}
`))

// writeScrape writes the configuration to a file, or to the standard output.
func (a *app) writeScrape(file string, s scrape) error {
	var text strings.Builder
	if err := scrapeConfig.Execute(&text, s); err != nil {
		return err
	}
	if file == "" {
		_, err := io.WriteString(a.Out, text.String())
		return err
	}
	dir, err := os.Stat(filepath.Dir(file))
	if err != nil {
		return err
	}
	return writeOwned(file, text.String(), dir)
}
