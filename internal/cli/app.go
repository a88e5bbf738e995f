package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Env is the surroundings of a command.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	Version  string // of this program
}

// app is what all commands share.
type app struct {
	Env
	client  *client.Client // that was made last; nil: none yet
	context string         // name of a context in the config file
	output  string         // table, json, yaml or name
}

// ExitError ends the program with a status and without another word.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Root is the trivet command with all that operators do. The program adds what a head, an agent and the lab are.
func Root(env Env) *cobra.Command {
	a := &app{Env: env}
	root := &cobra.Command{
		Use:   "trivet",
		Short: "Bare-metal control plane: netboots, installs and runs machines",
		Long: "Trivet netboots machines, installs them and keeps going when any part of itself dies.\n\n" +
			"Which cluster to speak to comes from the config file (trivet login writes it), from TRIVET_ENDPOINTS,\n" +
			"TRIVET_TRUST and TRIVET_TOKEN, or, as root on a head, from the head itself.",
		SilenceErrors: true, SilenceUsage: true,
		Version: env.Version,
	}
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	root.PersistentFlags().StringVar(&a.context, "context", "", "context of the config file to use")
	root.AddGroup(&cobra.Group{ID: "do", Title: "Machines and what they run:"},
		&cobra.Group{ID: "records", Title: "Records:"}, &cobra.Group{ID: "site", Title: "The site:"})
	root.PersistentPostRun = func(*cobra.Command, []string) {
		if a.client != nil && a.client.Stale() {
			fmt.Fprintln(a.Err, "trivet: the heads that answer have no majority; this may be out of date")
		}
	}
	root.AddCommand(a.commands()...)
	root.CompletionOptions.HiddenDefaultCmd = false
	return root
}

func (a *app) commands() []*cobra.Command {
	var all []*cobra.Command
	for group, list := range map[string][]*cobra.Command{
		"do":      {a.provision(), a.logs(), a.why(), a.accept(), a.quarantine(), a.image(), a.platform()},
		"records": {a.apply(), a.get(), a.describe(), a.delete(), a.watch()},
		"site":    {a.login(), a.contexts(), a.head(), a.lb(), a.token(), a.version()},
	} {
		for _, c := range list {
			c.GroupID = group
			all = append(all, c)
		}
	}
	return all
}

// Execute runs a command line and gives the program's exit status. Errors are told once, here.
func Execute(ctx context.Context, root *cobra.Command) int {
	root.InitDefaultCompletionCmd()
	group(root)
	err := root.ExecuteContext(ctx)
	var exit ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return 130
	}
	tell(root.ErrOrStderr(), err)
	return 1
}

// group has a command that only holds others, and all below it, refuse what is none of them. By itself it shows its help.
func group(c *cobra.Command) {
	for _, sub := range c.Commands() {
		group(sub)
	}
	if !c.HasSubCommands() || c.Runnable() {
		return
	}
	c.DisableFlagsInUseLine, c.SuggestionsMinimumDistance = true, 2
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		near := c.SuggestionsFor(args[0])
		if len(near) == 0 {
			return fmt.Errorf("unknown command %q for %q; see: %s --help", args[0], c.CommandPath(), c.CommandPath())
		}
		return fmt.Errorf("unknown command %q for %q; did you mean %s?", args[0], c.CommandPath(), strings.Join(near, " or "))
	}
}

// stopped takes what a command came to, and tells a person who ended it with Ctrl-C what holds then and what to do next.
func (a *app) stopped(ctx context.Context, err error, format string, args ...any) error {
	if ctx.Err() == nil || err == nil {
		return err
	}
	fmt.Fprintf(a.Err, format+"\n", args...)
	return ExitError(130)
}

// tell shows an error: what happened, which fields, and what to do next.
func tell(w io.Writer, err error) {
	text, hint := err.Error(), hintOf(err)
	if hint != "" {
		text = strings.Replace(text, " ("+hint+")", "", 1)
	}
	fmt.Fprintln(w, "trivet:", text)
	if hint != "" {
		fmt.Fprintln(w, "  hint:", hint)
	}
}

// hintOf is what an error says to do next; empty where it says nothing.
func hintOf(err error) string {
	var p *trivet.Problem
	var own *trivet.Error
	switch {
	case errors.As(err, &p) && p.Code == trivet.CodeInternal && p.RequestID != "":
		return "the head's log has more about request " + p.RequestID
	case errors.As(err, &p) && p.Hint != "":
		return p.Hint
	case errors.As(err, &own):
		return own.Hint
	}
	return ""
}

// connect gives a client of the cluster that is meant.
func (a *app) connect() (*client.Client, error) {
	cfg, err := client.Environment(a.context)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent, cfg.FailFast, cfg.Fresh = "trivet/"+a.Version, true, true
	a.client, err = client.New(cfg)
	return a.client, err
}

// kind finds what a person calls a kind.
func (a *app) kind(name string) (client.Kind, error) {
	info, err := trivet.LookupKind(name)
	if err != nil {
		return client.Kind{}, err
	}
	c, err := a.connect()
	if err != nil {
		return client.Kind{}, err
	}
	return c.Kind(info), nil
}

// terminal says whether a person watches the output, and how wide it is.
func (a *app) terminal() (width int, ok bool) {
	f, isFile := a.Out.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	return width, err == nil && width > 0
}
