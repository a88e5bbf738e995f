package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Env is the environment of a command.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	Version  string   // of this program
	Signals  *Signals // that it receives; optional
}

// app is the state that all commands share.
type app struct {
	Env                    // Out and Err escape what is written
	screen  io.Writer      // Out as it is, for control sequences and raw logs
	status  io.Writer      // Err as it is
	client  *client.Client // the last one created; nil: none
	context string         // name of a context in the config file
	output  string         // table, json, yaml or name

	// Of the wide tables, by full name of the provision.
	places    map[string]trivet.QueuePlace
	installed map[string]*trivet.Provision

	projectName string // as --project has it
	allProjects bool
	showManaged bool // get prints which fields each manager has
}

// ExitError ends the program with a status and without a message.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func newApp(env Env) *app {
	a := &app{Env: env, screen: env.Out, status: env.Err}
	a.Out, a.Err = escaper{env.Out}, escaper{env.Err}
	return a
}

// Root returns the trivet command with the operator commands. The program adds the server, agent, demo and lab
// commands.
func Root(env Env) *cobra.Command {
	a := newApp(env)
	root := &cobra.Command{
		Use:   "trivet",
		Short: "Bare-metal control plane: netboot, install and manage machines",
		Long: "Trivet netboots and installs machines, and keeps working when any part of itself fails.\n\n" +
			"The cluster is taken from the config file (written by trivet login), from TRIVET_ENDPOINTS,\n" +
			"TRIVET_TRUST and TRIVET_TOKEN, or, as root on a head, from the head's own credentials.",
		SilenceErrors: true, SilenceUsage: true,
		Version: env.Version,
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.PersistentFlags().StringVar(&a.context, "context", "", "context of the config file to use")
	root.RegisterFlagCompletionFunc("context", completeContexts)
	a.projectFlag(root)
	root.AddGroup(&cobra.Group{ID: "machines", Title: "Machine commands:"},
		&cobra.Group{ID: "records", Title: "Record commands:"}, &cobra.Group{ID: "cluster", Title: "Cluster commands:"})
	root.PersistentPostRun = func(*cobra.Command, []string) {
		if a.client != nil && a.client.Stale() {
			fmt.Fprintln(a.Err, "trivet: warning: the cluster has no quorum; this output may be out of date")
		}
	}
	root.AddCommand(a.commands()...)
	root.CompletionOptions.HiddenDefaultCmd = false
	return root
}

func (a *app) commands() []*cobra.Command {
	var all []*cobra.Command
	for group, list := range map[string][]*cobra.Command{
		"machines": {a.provision(), a.scale(), a.pause(), a.resume(), a.retry(), a.replace(), a.redeploy(), a.logs(),
			a.console(), a.why(), a.power(), a.accept(), a.rename(), a.quarantine(), a.check(), a.release(), a.models(),
			a.machine(), a.template(), a.image(), a.platform(), a.blob()},
		"records": {a.apply(), a.diff(), a.get(), a.describe(), a.explain(), a.label(), a.annotate(), a.patch(), a.edit(),
			a.delete(), a.watch(), a.wait()},
		"cluster": {a.login(), a.contexts(), a.statusCommand(), a.head(), a.key(), a.rotateCommand(), a.upgrade(),
			a.backup(), a.recover(), a.notifier(), a.ca(), a.lb(), a.prometheus(), a.account(), a.token(), a.whoami(),
			a.audit(), a.supportBundle(), a.version()},
	} {
		for _, c := range list {
			c.GroupID = group
			all = append(all, c)
		}
	}
	return all
}

// Execute runs a command line and returns the program's exit status. Errors are printed here, once.
func Execute(ctx context.Context, root *cobra.Command) int {
	root.InitDefaultCompletionCmd()
	setGroups(root)
	setUsage(root)
	root.SetFlagErrorFunc(flagError)
	command, err := root.ExecuteContextC(ctx)
	err = usageError(command, err)
	var exit ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return 130
	}
	PrintError(root.ErrOrStderr(), err)
	return 1
}

// setGroups makes commands that only have subcommands reject unknown ones. Without a subcommand, they print their help.
func setGroups(c *cobra.Command) {
	for _, sub := range c.Commands() {
		setGroups(sub)
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
			return fmt.Errorf("unknown command %q for %q; see %s --help", args[0], c.CommandPath(), c.CommandPath())
		}
		return fmt.Errorf("unknown command %q for %q; did you mean %s?", args[0], c.CommandPath(),
			strings.Join(near, " or "))
	}
}

// interrupted returns err. If the command was interrupted by Ctrl-C, it prints a message and returns an ExitError
// instead.
func (a *app) interrupted(ctx context.Context, err error, format string, args ...any) error {
	if ctx.Err() == nil || err == nil {
		return err
	}
	fmt.Fprintf(a.Err, format+"\n", args...)
	return ExitError(130)
}

// PrintError prints an error and its hint.
func PrintError(w io.Writer, err error) {
	text, hint := err.Error(), hintOf(err)
	if hint != "" {
		text = strings.Replace(text, " ("+hint+")", "", 1)
	}
	fmt.Fprintln(w, "trivet:", text)
	if hint != "" {
		fmt.Fprintln(w, "  hint:", hint)
	}
}

// hinted is an error with a hint that it does not print itself.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// hintOf returns the hint of an error, or "".
func hintOf(err error) string {
	var p *trivet.Problem
	var own *trivet.Error
	var located *hinted
	switch {
	case errors.As(err, &located):
		return located.hint
	case errors.As(err, &p) && p.Code == trivet.CodeInternal && p.RequestID != "":
		return "see request " + p.RequestID + " in the head's log"
	case errors.As(err, &p) && p.Hint != "":
		return p.Hint
	case errors.As(err, &own) && own.Hint != "":
		return own.Hint
	}
	return listHint(err)
}

// notFound matches the end of what a head answers for a record that does not exist.
var notFound = regexp.MustCompile(`\bget ([a-z]+) (\S+): not found$`)

// listHint returns the command that lists what exists, in place of a record that does not.
func listHint(err error) string {
	m := notFound.FindStringSubmatch(err.Error())
	if m == nil {
		return ""
	}
	info, err := trivet.LookupKind(m[1])
	if err != nil {
		return ""
	}
	flag := ""
	if project, _ := trivet.SplitName(m[2]); project != "" {
		flag = " -p " + project
	}
	return "those that exist: trivet get " + info.Plural + flag
}

// config returns how the selected cluster is reached.
func (a *app) config() (client.Config, error) {
	cfg, err := client.Environment(a.context)
	cfg.UserAgent, cfg.FailFast, cfg.Fresh = "trivet/"+a.Version, true, true
	return cfg, err
}

// connect returns a client of the selected cluster.
func (a *app) connect() (*client.Client, error) {
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	former := cfg.Trust
	cfg.OnTrust = func(trust string) {
		err := client.SaveTrust(a.context, former, trust)
		switch env := os.Getenv("TRIVET_TRUST"); {
		case err == nil:
			former = trust
		case env != "":
			fmt.Fprintf(a.Err, "trivet: warning: the cluster's CA is being replaced; set TRIVET_TRUST to %s\n",
				printable(trust))
		case !errors.Is(err, trivet.ErrNotFound): // that of a head's own administrator is changed by the head
			fmt.Fprintln(a.Err, "trivet: warning: the cluster's CA is being replaced; run trivet login again:", err)
		}
	}
	a.client, err = client.New(cfg)
	return a.client, err
}

// kind returns a client of the records of a kind, by any name of the kind.
func (a *app) kind(name string) (client.Kind, error) {
	info, err := lookupKind(name)
	if err != nil {
		return client.Kind{}, err
	}
	c, err := a.connect()
	if err != nil {
		return client.Kind{}, err
	}
	return a.within(c.Kind(info)), nil
}

// terminal reports whether the output is a terminal, and its width.
func (a *app) terminal() (width int, ok bool) {
	f, isFile := a.screen.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	return width, err == nil && width > 0
}
