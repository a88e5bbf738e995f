package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/wait"
)

func (a *app) audit() *cobra.Command {
	var o client.AuditOptions
	var since time.Duration
	var limit int
	var follow bool
	c := &cobra.Command{
		Use:   "audit [KIND[/NAME]]",
		Short: "Show who changed what",
		Long: "Show the audit log: each change by a person or program, each refused attempt and each read of a secret,\n" +
			"with account, token, address and request. Only admins may read it. The newest entry is the last line.",
		Example: "  trivet audit\n  trivet audit machine/m1 --since 24h\n  trivet audit --account alice -o json\n" +
			"  trivet audit --follow",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.Kind, o.Name, _ = strings.Cut(args[0], "/")
				o.Project = a.projectOfKind(o.Kind, o.Name)
			}
			if since > 0 {
				o.Since = time.Now().Add(-since)
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			entries, err := auditEntries(cmd.Context(), cl, o, limit)
			if err != nil {
				return err
			}
			if err := a.showAudit(entries, true); err != nil || !follow {
				return err
			}
			return a.followAudit(cmd.Context(), cl, o, entries)
		},
	}
	c.Flags().StringVar(&o.Account, "account", "", "entries of this account only")
	c.Flags().DurationVar(&since, "since", 0, "entries of this last time only, such as 24h")
	c.Flags().IntVar(&limit, "limit", 100, "number of entries; 0 means all")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "show new entries until interrupted")
	a.outputForms(c, "table", "json")
	return c
}

// maxAuditPage is the number of entries of one request.
const maxAuditPage = 500

// auditEntries returns the newest entries, the oldest of them first; limit 0 means all.
func auditEntries(ctx context.Context, cl *client.Client, o client.AuditOptions, limit int) ([]trivet.Audit, error) {
	var entries []trivet.Audit
	for {
		if o.Limit = maxAuditPage; limit > 0 {
			o.Limit = min(limit-len(entries), maxAuditPage)
		}
		page, err := cl.Audit(ctx, o)
		if err != nil {
			return nil, err
		}
		entries = append(entries, page.Items...)
		if o.Continue = page.Continue; o.Continue == "" || limit > 0 && len(entries) >= limit {
			slices.Reverse(entries)
			return entries, nil
		}
	}
}

const (
	followInterval = 2 * time.Second
	// followOverlap is how far back each request reads: heads' clocks differ, and so the order of entries.
	followOverlap = 30 * time.Second
)

// followAudit shows entries that are new since the last request.
func (a *app) followAudit(ctx context.Context, cl *client.Client, o client.AuditOptions, last []trivet.Audit) error {
	shown := map[string]bool{}
	for _, e := range last {
		shown[e.ID] = true
	}
	for wait.Sleep(ctx, followInterval) == nil {
		o.Since = time.Now().Add(-followOverlap)
		entries, err := auditEntries(ctx, cl, o, 0)
		if err != nil {
			fmt.Fprintln(a.Err, "trivet:", err)
			continue
		}
		now := map[string]bool{}
		var fresh []trivet.Audit
		for _, e := range entries {
			if now[e.ID] = true; !shown[e.ID] {
				fresh = append(fresh, e)
			}
		}
		shown = now
		if err := a.showAudit(fresh, false); err != nil {
			return err
		}
	}
	return ExitError(130)
}

// showAudit prints entries as a table, or as lines of JSON.
func (a *app) showAudit(entries []trivet.Audit, first bool) error {
	if a.output == "json" {
		enc := json.NewEncoder(a.Out)
		for _, e := range entries {
			if err := enc.Encode(e); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	if first {
		rows = append(rows, []string{"TIME", "ACCOUNT", "FROM", "ACTION", "RECORD", "RESULT", "CHANGED"})
	}
	for _, e := range entries {
		rows = append(rows, auditRow(e))
	}
	return align(a.Out, rows)
}

func auditRow(e trivet.Audit) []string {
	record := strings.ToLower(string(e.Kind))
	if e.Name != "" {
		record += "/" + trivet.ShortName(trivet.FullName(e.Project, e.Name))
	}
	changed := strings.Join(e.Fields, ",")
	if len(e.Also) > 0 {
		changed = strings.TrimSpace(changed + " (also " + strings.Join(e.Also, ",") + ")")
	}
	if e.Error != "" {
		changed = e.Error
	}
	if e.Omitted > 0 {
		changed += fmt.Sprintf(" (%d such requests before, not recorded)", e.Omitted)
	}
	cells := []string{e.Time.Local().Format(time.DateTime), e.Account, e.From, e.Action, record, e.Result, changed}
	for i, cell := range cells {
		if cells[i] = printable(cell); cells[i] == "" {
			cells[i] = "-"
		}
	}
	return cells
}
