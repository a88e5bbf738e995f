package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/reference"
)

func (a *app) wait() *cobra.Command {
	var want string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "wait KIND NAME --for STATE|FIELD=VALUE|delete",
		Short: "Wait until a record has a state or value, or is deleted",
		Long: "Wait until a record has a state (of status.state) or a value, or is deleted. A record that does not\n" +
			"exist yet is waited for, too. At the timeout the command fails with the value that the record has\n" +
			"then. It fails at once where a provision or workflow has ended in another state.",
		Example: "  trivet wait machine m1 --for active --timeout 30m\n" +
			"  trivet wait provision web1 --for succeeded\n" +
			"  trivet wait machine m1 --for status.power=off\n" +
			"  trivet wait machine m1 --for delete",
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.completeRecords,
		RunE: func(cmd *cobra.Command, args []string) error {
			info, err := lookupKind(args[0])
			if err != nil {
				return err
			}
			cond, err := parseCondition(info, want)
			if err != nil {
				return err
			}
			kind, err := a.kind(args[0])
			if err != nil {
				return err
			}
			text, err := a.waitFor(cmd.Context(), kind, args[1], cond, timeout)
			if err != nil {
				return a.interrupted(cmd.Context(), err, "interrupted")
			}
			fmt.Fprintf(a.Out, "%s %s\n", title(info, args[1]), text)
			return nil
		},
	}
	c.Flags().StringVar(&want, "for", "", "a state, FIELD=VALUE (spec.cordoned=true), or delete")
	c.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait")
	c.MarkFlagRequired("for")
	c.RegisterFlagCompletionFunc("for", completeConditions)
	return c
}

// condition is what a record is waited for.
type condition struct {
	deleted bool
	state   bool     // path is that of the state
	path    []string // of the field
	value   string
}

const stateField = "status.state"

// parseCondition parses --for.
func parseCondition(info trivet.KindInfo, text string) (c condition, err error) {
	if text == "delete" {
		return condition{deleted: true}, nil
	}
	field, value, ok := strings.Cut(text, "=")
	if !ok {
		field, value = stateField, text
	}
	c = condition{state: !ok, path: strings.Split(field, "."), value: value}
	if key, isLabel := strings.CutPrefix(field, "labels."); isLabel {
		c.path = []string{"labels", key}
		return c, nil
	}
	path, f, err := reference.Lookup(string(info.Kind) + "." + field)
	if err != nil && c.state {
		return c, fmt.Errorf("%w: %s have no state; use --for FIELD=VALUE or --for delete", trivet.ErrInvalid,
			info.Plural)
	}
	if err != nil {
		return c, fmt.Errorf("--for %s: %w", text, err)
	}
	c.path = strings.Split(path, ".")[1:]
	if problem := never(f, field, value); problem != "" {
		return c, fmt.Errorf("%w: --for %s: %s", trivet.ErrInvalid, text, problem)
	}
	return c, nil
}

// never says that a field cannot have a value; empty where it can.
func never(f reference.Field, field, value string) string {
	known := func(v reference.Value) bool { return v.Value == value }
	if len(f.Values) == 0 || slices.ContainsFunc(f.Values, known) {
		return ""
	}
	return fmt.Sprintf("%s is never %q; %s", field, value,
		strings.Replace(oneOf(f.Values), "One of: ", "it is one of ", 1))
}

// checkFields refuses a selector by a value that the field cannot have. The head refuses fields that do not exist.
func checkFields(info trivet.KindInfo, selector string) error {
	for term := range strings.SplitSeq(selector, ",") {
		field, value, _ := strings.Cut(term, "=")
		field = strings.TrimSuffix(field, "!")
		_, f, err := reference.Lookup(string(info.Kind) + "." + field)
		if err != nil || value == "" { // empty: the field is not set
			continue
		}
		if problem := never(f, field, value); problem != "" {
			return fmt.Errorf("%w: --field %s: %s", trivet.ErrInvalid, term, problem)
		}
	}
	return nil
}

// check reports whether a record has what is waited for, and what it has. raw is nil where it does not exist.
func (c condition) check(raw json.RawMessage) (met bool, present string) {
	switch {
	case c.deleted && raw == nil:
		return true, "deleted"
	case c.deleted:
		return false, "exists"
	case raw == nil:
		return false, "does not exist"
	}
	value := valueAt(raw, c.path)
	met = value == c.value
	if c.state {
		present = stateText(value)
	} else {
		present = fmt.Sprintf("has %s=%s", strings.Join(c.path, "."), value)
	}
	if reason := valueAt(raw, []string{"status", "reason"}); reason != "" && !met {
		present += ": " + reason
	}
	return met, present
}

// ended reports whether a provision or workflow has ended, and so will not have another state.
func (c condition) ended(r trivet.Record) bool {
	switch r := r.(type) {
	case *trivet.Provision:
		return c.state && (r.Status.State == trivet.ProvisionSucceeded || r.Status.State == trivet.ProvisionFailed)
	case *trivet.Workflow:
		return c.state && r.Status.State.Ended()
	}
	return false
}

// waitFor waits until a record meets a condition, and returns what it has then.
func (a *app) waitFor(ctx context.Context, kind client.Kind, name string, c condition, timeout time.Duration) (
	string, error) {
	var now waited
	var err error
	if now.raw, err = kind.Raw(ctx, name); err != nil && !errors.Is(err, trivet.ErrNotFound) {
		return "", err // a watch would try until the timeout
	}
	failed := func(format string, args ...any) error {
		return &trivet.Error{Op: "wait for", Kind: kind.Info.Kind, Name: name, Err: fmt.Errorf(format, args...)}
	}
	_, present := c.check(now.raw) // what is known until the watch has begun
	now = waited{}
	until, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for e, err := range kind.Client().Watch(until, client.WatchOptions{Kinds: []trivet.Kind{kind.Info.Kind},
		Names: []string{name}, Project: a.project()}) {
		if until.Err() != nil {
			break
		}
		if err != nil {
			return "", err
		}
		if now.apply(e); !now.synced {
			continue
		}
		met := false
		if met, present = c.check(now.raw); met {
			return present, nil
		}
		if now.raw != nil && c.ended(now.record) {
			return "", failed("it %s, and will not become %s", present, c.value)
		}
	}
	return "", cmp.Or(ctx.Err(), failed("after %s it %s", durationText(timeout), present))
}

// waited is a record as a watch has it; raw is nil where it does not exist.
type waited struct {
	raw    json.RawMessage
	record trivet.Record
	synced bool
}

func (w *waited) apply(e client.Event) {
	switch e.Type {
	case client.Put:
		w.raw, w.record = e.Raw, e.Record
	case client.Delete:
		w.raw = nil
	case client.Synced:
		w.synced = true
	case client.Reset:
		w.raw, w.synced = nil, false
	}
}

// completeConditions completes the states of the kind that is named first.
func completeConditions(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all := []cobra.Completion{"delete"}
	if len(args) > 0 {
		_, f, err := reference.Lookup(args[0] + "." + stateField)
		for _, v := range f.Values {
			if err == nil {
				all = append(all, v.Value)
			}
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}
