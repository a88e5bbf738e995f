package cli

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
)

// maxBundled bounds the records of one kind in a bundle.
const maxBundled = 5000

func (a *app) supportBundle() *cobra.Command {
	return &cobra.Command{
		Use: "support-bundle [FILE]", Short: "Collect what support needs into a file, without secrets",
		Long: "Collect what support needs into a file (.tar.gz): the status, versions, records, events, and the\n" +
			"metrics of each head that responds. What cannot be read is named in errors.txt.\n\n" +
			"It has no secrets: of the spec of each record it has only fields that are known to be harmless, and\n" +
			"not the values of secrets, hashes of tokens, addresses of BMCs, user-data, parameters, SSH keys,\n" +
			"arguments of actions, or kernel arguments. It has names, labels, MACs, addresses and serial numbers.\n" +
			"Logs of heads are not in it: add what journalctl -u trivet shows on them, after reading it. The account\n" +
			"needs role viewer.",
		Example: "  trivet support-bundle\n  trivet support-bundle /tmp/trivet.tar.gz",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "trivet-support-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
			if len(args) > 0 {
				path = args[0]
			}
			err := a.writeBundle(cmd.Context(), path)
			return a.interrupted(cmd.Context(), err, "interrupted; nothing was written")
		},
	}
}

// bundle is a support bundle that is being written.
type bundle struct {
	to     *tar.Writer
	now    time.Time
	errors []string
}

func (a *app) writeBundle(ctx context.Context, path string) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	if _, err := cl.Whoami(ctx); err != nil { // without any head there is nothing to collect
		return err
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return &trivet.Error{Op: "write", Name: path, Err: errors.Join(trivet.ErrInvalid, err),
			Hint: "name a file in a directory that exists"}
	}
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o600))
	if err != nil {
		return err
	}
	defer f.Cleanup()
	packed := gzip.NewWriter(f)
	b := &bundle{to: tar.NewWriter(packed), now: time.Now()}
	if err := a.fill(ctx, cl, b); err != nil {
		return err
	}
	if err := errors.Join(b.to.Close(), packed.Close()); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	for _, text := range b.errors {
		fmt.Fprintln(a.Err, "trivet: warning:", printable(text))
	}
	fmt.Fprintln(a.Out, path)
	return nil
}

// bundleReadme explains a bundle to its reader.
const bundleReadme = `A support bundle of Trivet.

status.json     the invariants and facts of "trivet status", also as status.txt
versions.json   this program, and the head that responded
records/        records by kind; what may be secret in their specs is "[removed]"
metrics/        of each head that responded
errors.txt      what could not be read, or is not complete; missing if there is nothing

The logs of the heads are not here: journalctl -u trivet shows them on each.
`

// fill adds all files. What cannot be read is noted; an error means that the bundle cannot be written, or ctx ended.
func (a *app) fill(ctx context.Context, cl *client.Client, b *bundle) error {
	err := b.add("README.txt", []byte(bundleReadme))
	if err == nil {
		err = a.addStatus(ctx, cl, b)
	}
	if err == nil {
		err = a.addVersions(ctx, cl, b)
	}
	for _, info := range trivet.Kinds {
		if err == nil {
			err = addRecords(ctx, cl, b, info)
		}
	}
	if err == nil {
		err = a.addMetrics(ctx, cl, b)
	}
	if err == nil && len(b.errors) > 0 {
		err = b.add("errors.txt", []byte(strings.Join(b.errors, "\n")+"\n"))
	}
	return errors.Join(err, ctx.Err())
}

// add adds a file, in which Trivet's own credentials are hidden wherever they are.
func (b *bundle) add(name string, text []byte) error {
	text = []byte(auth.Redact(string(text)))
	err := b.to.WriteHeader(&tar.Header{Name: "trivet-support/" + name, Mode: 0o600, Size: int64(len(text)),
		ModTime: b.now, Format: tar.FormatPAX})
	if err == nil {
		_, err = b.to.Write(text)
	}
	return err
}

func (b *bundle) addJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return b.add(name, append(text, '\n'))
}

// missing notes that something could not be read.
func (b *bundle) missing(what string, err error) {
	b.errors = append(b.errors, what+": "+auth.Redact(err.Error()))
}

func (a *app) addStatus(ctx context.Context, cl *client.Client, b *bundle) error {
	report, err := cl.Status(ctx)
	if err != nil {
		b.missing("status", err)
		return nil
	}
	var text strings.Builder
	shown := newApp(Env{Out: &text, Err: io.Discard})
	shown.output = "wide"
	if _, err := shown.showStatus(report, ""); err != nil {
		return err
	}
	shown.output = "table"
	fmt.Fprintln(&text)
	if _, err := shown.showStatus(report, ""); err != nil {
		return err
	}
	return errors.Join(b.addJSON("status.json", report), b.add("status.txt", []byte(text.String())))
}

func (a *app) addVersions(ctx context.Context, cl *client.Client, b *bundle) error {
	head, err := cl.Version(ctx)
	if err != nil {
		b.missing("version", err)
	}
	return b.addJSON("versions.json", map[string]any{"program": a.Version, "head": head, "time": b.now.UTC()})
}

func addRecords(ctx context.Context, cl *client.Client, b *bundle, info trivet.KindInfo) error {
	raw, more, err := cl.Kind(info).AllProjects().RawFirst(ctx, client.ListOptions{}, maxBundled)
	if err != nil {
		b.missing(info.Plural, err)
	}
	if more {
		b.errors = append(b.errors, fmt.Sprintf("%s: there are more than the first %d", info.Plural, maxBundled))
	}
	all := make([]any, len(raw))
	for i, text := range raw {
		all[i] = harmless(info.Kind, text)
	}
	return b.addJSON("records/"+info.Plural+".json", all)
}

func (a *app) addMetrics(ctx context.Context, cl *client.Client, b *bundle) error {
	heads, _, err := client.Of[trivet.Head](cl).List(ctx, client.ListOptions{})
	if err != nil {
		b.missing("metrics", err)
		return nil
	}
	for _, h := range heads {
		if !h.Serves() || len(h.Status.API) == 0 {
			continue
		}
		text, err := a.metricsOf(ctx, h)
		if err != nil {
			b.missing("metrics of "+h.Name, err)
			continue
		}
		if err := b.add("metrics/"+h.Name+".txt", text); err != nil {
			return err
		}
	}
	return nil
}

// metricsOf reads the metrics of one head.
func (a *app) metricsOf(ctx context.Context, h *trivet.Head) ([]byte, error) {
	cfg, err := client.Environment(a.context)
	if err != nil {
		return nil, err
	}
	cfg.Endpoints, cfg.UserAgent, cfg.RetryTimeout = h.Status.API[:1], "trivet/"+a.Version, -1
	cl, err := client.New(cfg)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return cl.Metrics(ctx)
}
