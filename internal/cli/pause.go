package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) pause() *cobra.Command {
	return a.provisionVerb(&cobra.Command{
		Use:   "pause PROVISION|WORKFLOW...",
		Short: "Pause provisions: what is in progress ends, and nothing further is started",
		Long: "Pause provisions, by their names or by those of their runs.\n\n" +
			"One that waits for a machine claims none, and keeps its place in the queue. The run of another\n" +
			"ends the attempt of the action that it is at, and starts no further one. The agent learns it from the\n" +
			"response to its next heartbeat, after a quarter of the site's agentTimeout at most: an action that it\n" +
			"begins until then is still done. No deadline counts and no machine is powered by Trivet, until trivet\n" +
			"resume.",
		Example: "  trivet pause web1\n  trivet pause web1-1 web2",
	}, "paused", (*client.Client).Pause)
}

func (a *app) resume() *cobra.Command {
	return a.provisionVerb(&cobra.Command{
		Use:   "resume PROVISION|WORKFLOW...",
		Short: "Resume provisions that are paused",
		Long: "Resume provisions that are paused, by their names or by those of their runs. Each goes on where it\n" +
			"was: with its place in the queue, or with the next action of its run and the rest of its deadline.",
		Example: "  trivet resume web1",
	}, "resumed", (*client.Client).Resume)
}

// provisionVerb completes a command that does the same to provisions.
func (a *app) provisionVerb(c *cobra.Command, done string,
	do func(*client.Client, context.Context, string, string) error) *cobra.Command {
	c.Args, c.ValidArgsFunction = cobra.MinimumNArgs(1), a.completeNames("provisions")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		cl, err := a.connect()
		if err != nil {
			return err
		}
		failed := false
		for _, arg := range args {
			name, err := a.provisionOf(cmd.Context(), cl, arg)
			if err == nil {
				err = do(cl, cmd.Context(), a.project(), name)
			}
			if err != nil {
				failed = true
				PrintError(a.Err, err)
				continue
			}
			fmt.Fprintf(a.Out, "provision/%s %s\n", name, done)
		}
		if failed {
			return ExitError(1)
		}
		return nil
	}
	return c
}

// provisionOf returns the name of a provision that is named by itself or by its last run: "web1", "web1-1", or where
// both exist "provision/web1" and "workflow/web1-1".
func (a *app) provisionOf(ctx context.Context, cl *client.Client, arg string) (string, error) {
	kind, name, given := strings.Cut(arg, "/")
	if !given {
		kind, name = "", arg
	}
	if kind != "workflow" {
		_, err := client.Of[trivet.Provision](cl).In(a.project()).Get(ctx, name)
		if err == nil || kind == "provision" || !errors.Is(err, trivet.ErrNotFound) {
			return name, err
		}
	}
	w, err := client.Of[trivet.Workflow](cl).In(a.project()).Get(ctx, name)
	if errors.Is(err, trivet.ErrNotFound) {
		return "", fmt.Errorf("%s: %w: there is no provision or workflow of this name", name, trivet.ErrNotFound)
	}
	if err != nil {
		return "", err
	}
	p, err := client.Of[trivet.Provision](cl).In(a.project()).Get(ctx, w.Spec.Provision)
	if err != nil {
		return "", err
	}
	if p.UID != w.Spec.ProvisionUID || p.Status.Workflow != w.Name {
		return "", &trivet.Error{Op: "find", Kind: "Workflow", Name: name,
			Err:  fmt.Errorf("%w: it is not the last run of provision %s", trivet.ErrConflict, p.Name),
			Hint: "name the provision: " + p.Name}
	}
	return p.Name, nil
}

// pauseText says who paused something, and since when; empty where it is not paused.
func pauseText(p *trivet.Pause) string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("paused by %s since %s", p.By, p.Since.UTC().Format(time.RFC3339))
}

// runPauseText is pauseText of a run, with what is still in progress.
func runPauseText(w *trivet.Workflow) string {
	text := pauseText(w.Status.Paused)
	if s := w.Status.Current(); text != "" && s != nil {
		return fmt.Sprintf("%s; %s is in progress", text, s.Name)
	}
	return text
}
