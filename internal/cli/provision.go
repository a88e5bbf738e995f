package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// provisionFlags are the flags of trivet provision.
type provisionFlags struct {
	template, machine, hostname string
	selector, params, labels    map[string]string
	sshKeys                     []string // files
	userData, networkData       string   // files
	alternatives                int
	ifNoMachine                 string
	count, maxInFlight, race    int
	hedge                       bool
	noWait, watch               bool
}

func (a *app) provision() *cobra.Command {
	var f provisionFlags
	c := &cobra.Command{
		Use:   "provision NAME",
		Short: "Install a machine from a template and watch the progress",
		Long: "Install a machine from a template and watch the progress: each step with its time, deadline and\n" +
			"attempts. Where the machine is at fault, it is quarantined, and another one of the selector is installed\n" +
			"with the same configuration. The exit status is 0 when the installed system has reported, or 1 if the provision\n" +
			"failed. Ctrl-C stops watching; the provision continues.\n\n" +
			"With --count, one provision for each of several machines is created, as NAME-1, NAME-2 and so on, and\n" +
			"their progress is counted; --max-in-flight limits how many are in progress at the same time.",
		Example: "  trivet provision web1 --template debian --machine m1 --ssh-key ~/.ssh/id_ed25519.pub\n" +
			"  trivet provision web2 --template debian --selector rack=r1 --param disk=/dev/sda --hostname web2\n" +
			"  trivet provision web3 --template debian --selector pool=web --alternatives 3\n" +
			"  trivet provision web3 --template debian --selector pool=web --race 2\n" +
			"  trivet provision web4 --template debian --selector pool=web --if-no-machine fail\n" +
			"  trivet provision web --template debian --selector pool=web --count 20 --max-in-flight 5\n" +
			"  trivet provision web1 --watch     # watch an existing provision",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("provisions"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			if !f.watch {
				if err := a.createProvision(cmd, cl, args[0], &f); err != nil {
					return err
				}
			}
			if f.noWait {
				return nil
			}
			return a.watchProvision(cmd.Context(), cl, args[0])
		},
	}
	c.Flags().StringVar(&f.template, "template", "", "name of the template")
	c.Flags().StringVar(&f.machine, "machine", "", "name of the machine")
	c.Flags().StringToStringVarP(&f.selector, "selector", "l", nil,
		"labels of the machine, such as rack=r1,disk=ssd; any available one is used")
	c.Flags().IntVar(&f.alternatives, "alternatives", trivet.DefaultAlternatives,
		"further machines of the selector to use, one after the other, where the machine is at fault")
	c.Flags().IntVar(&f.race, "race", 0, "2: two machines install it at the same time, and the first that is up serves it")
	c.Flags().BoolVar(&f.hedge, "hedge", false,
		"a second machine begins when a step of the first one is slow, by what was learnt of earlier runs")
	c.MarkFlagsMutuallyExclusive("race", "hedge")
	c.Flags().StringVar(&f.ifNoMachine, "if-no-machine", trivet.NoMachineWait,
		"what to do while no machine is free: wait, or fail at once")
	c.RegisterFlagCompletionFunc("if-no-machine", cobra.FixedCompletions(
		[]string{trivet.NoMachineWait, trivet.NoMachineFail}, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().IntVar(&f.count, "count", 0, "number of machines of the selector, each with a provision of its own")
	c.Flags().IntVar(&f.maxInFlight, "max-in-flight", 0,
		"provisions of --count that may wait for a machine or run at the same time (default: all)")
	f.contentFlags(c)
	c.Flags().BoolVar(&f.noWait, "no-wait", false, "create the provision and exit")
	c.Flags().BoolVar(&f.watch, "watch", false, "watch an existing provision")
	c.MarkFlagsMutuallyExclusive("watch", "no-wait")
	c.MarkFlagsMutuallyExclusive("watch", "template")
	c.MarkFlagsMutuallyExclusive("machine", "selector")
	c.RegisterFlagCompletionFunc("param", a.completeParams)
	c.RegisterFlagCompletionFunc("template", a.completeFlag("templates"))
	c.RegisterFlagCompletionFunc("machine", a.completeFlag("machines"))
	return c
}

// contentFlags adds the flags for what is installed, whatever the machine.
func (f *provisionFlags) contentFlags(c *cobra.Command) {
	c.Flags().StringToStringVar(&f.params, "param", nil, "template parameters, name=value")
	c.Flags().StringToStringVar(&f.labels, "label", nil, "labels of the provision")
	c.Flags().StringVar(&f.hostname, "hostname", "", "host name of the installed system (default: the machine's name)")
	c.Flags().StringArrayVar(&f.sshKeys, "ssh-key", nil,
		"file with public SSH keys, as in authorized_keys; can be repeated")
	c.Flags().StringVar(&f.userData, "user-data", "", "file with cloud-init user-data")
	c.Flags().StringVar(&f.networkData, "network-data", "", "file with cloud-init network-config, version 2, "+
		"instead of the machine's")
}

func (a *app) completeFlag(kind string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.names(cmd.Context(), kind, nil)
	}
}

func (a *app) createProvision(cmd *cobra.Command, cl *client.Client, name string, f *provisionFlags) error {
	p, err := f.record(name)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("alternatives") {
		p.Spec.Alternatives = &f.alternatives
	}
	p.Spec.Race, p.Spec.Hedge = f.race, f.hedge
	if cmd.Flags().Changed("if-no-machine") { // heads of earlier releases refuse the field
		p.Spec.IfNoMachine = f.ifNoMachine
	}
	if cmd.Flags().Changed("count") {
		p.Spec.Count = &f.count
	}
	p.Spec.MaxInFlight = f.maxInFlight
	if err := trivet.ValidateWritten(p); err != nil {
		return withFlags(name, err, f)
	}
	if err := checkMachine(cmd.Context(), cl, f.machine); err != nil {
		return err
	}
	_, err = client.Of[trivet.Provision](cl).In(a.project()).Create(cmd.Context(), p)
	if errors.Is(err, trivet.ErrExists) {
		return &trivet.Error{Op: "create", Kind: "Provision", Name: name, Err: trivet.ErrExists,
			Hint: fmt.Sprintf("watch it with: trivet provision%[1]s %[2]s --watch; or delete it with: "+
				"trivet delete%[1]s provision %[2]s", a.flagText(), name)}
	}
	if err != nil {
		return a.interrupted(cmd.Context(), withFlags(name, err, f),
			"interrupted; check whether the provision was created: trivet get%s provision %s", a.flagText(), name)
	}
	fmt.Fprintf(a.Out, "provision/%s created\n", name)
	return nil
}

// record returns the provision, with the contents of the files.
func (f *provisionFlags) record(name string) (p *trivet.Provision, err error) {
	p = &trivet.Provision{
		Meta: trivet.Meta{Kind: "Provision", Name: name, Labels: f.labels},
		Spec: trivet.ProvisionSpec{Template: f.template, Machine: f.machine, Selector: f.selector, Parameters: f.params,
			Hostname: f.hostname},
	}
	if p.Spec.SSHKeys, err = readKeys(f.sshKeys); err != nil {
		return nil, err
	}
	if p.Spec.UserData, err = readText(f.userData); err != nil {
		return nil, err
	}
	p.Spec.NetworkData, err = readText(f.networkData)
	return p, err
}

// checkMachine refuses a machine that does not exist. A provision that is applied waits for it; a person who names one
// here has mistyped it.
func checkMachine(ctx context.Context, cl *client.Client, machine string) error {
	if machine == "" {
		return nil
	}
	_, err := client.Of[trivet.Machine](cl).Get(ctx, machine)
	if p := (*trivet.Problem)(nil); errors.As(err, &p) && p.Hint != "" { // it was renamed
		return err
	}
	if errors.Is(err, trivet.ErrNotFound) {
		return &trivet.Error{Op: "provision", Kind: "Machine", Name: machine, Err: trivet.ErrNotFound,
			Hint: "those that exist: trivet get machines"}
	}
	return err
}

// withFlags adds to an error of a provision's fields by which flags they are set.
func withFlags(name string, err error, f *provisionFlags) error {
	hint, fields := "", apitypes.FieldErrors(err)
	if len(fields) == 0 {
		return err
	}
	for _, fe := range fields {
		switch missing := strings.HasPrefix(fe.Problem, "is missing"); {
		case missing && fe.Field == "spec.template":
			hint = "--template NAME; those that exist: trivet get templates"
		case missing && fe.Field == "spec.selector":
			hint = "--machine NAME, or --selector LABEL=VALUE; those that exist: trivet get machines"
		case strings.HasPrefix(fe.Field, "spec.parameters."):
			hint = "--param NAME=VALUE; what the template knows: trivet describe template " + f.template
		}
	}
	var p *trivet.Problem
	switch {
	case !errors.As(err, &p):
		return &trivet.Error{Op: "create", Kind: "Provision", Name: name, Err: err, Hint: hint}
	case p.Hint == "":
		p.Hint = hint
	}
	return err
}

func readText(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

// readKeys returns the lines of authorized_keys files, without comments and empty lines.
func readKeys(paths []string) ([]string, error) {
	var keys []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if strings.Contains(line, "PRIVATE KEY") {
				return nil, fmt.Errorf("%s: %w: this is a private key; use the .pub file", path, trivet.ErrInvalid)
			}
			if line != "" && !strings.HasPrefix(line, "#") {
				keys = append(keys, line)
			}
		}
	}
	return keys, nil
}
