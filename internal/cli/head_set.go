package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// headSettings are the flags of trivet head set.
type headSettings struct {
	bmc               trivet.BMC
	noBMC, noTakeover bool
	after             time.Duration
	reach             []string
}

func (a *app) headSet() *cobra.Command {
	var f headSettings
	c := &cobra.Command{
		Use:   "set NAME",
		Short: "Set the BMC of a head, and when the head takes over from the other one",
		Long: "Set what heads need to take over by themselves where there are two full ones: of the one that may be\n" +
			"lost the BMC of its host, with a secret as for machines, and of the other one after what time without\n" +
			"a quorum it takes over. It does so only if\n\n" +
			"  - one of the addresses of --takeover-reach, such as a router, responds to ICMP echo requests,\n" +
			"  - the other head is silent, and each witness responds and is connected to no leader,\n" +
			"  - this head had all that was acknowledged when the other one was heard last, and\n" +
			"  - the other head was powered off, and its BMC reports for 15 s that it is off.\n\n" +
			"Then it goes on as the first head of another incarnation of the cluster, as after trivet recover\n" +
			"--from-survivor: provisions that have not ended are frozen until trivet recover resolve. The state of\n" +
			"this is the invariant takeover of trivet status.",
		Example: "  trivet head set head0 --bmc 10.0.9.5 --bmc-secret bmc-heads\n" +
			"  trivet head set head1 --takeover-after 1m --takeover-reach 10.0.0.1\n" +
			"  trivet head set head1 --no-takeover",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("heads"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setHead(cmd.Context(), args[0], &f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.bmc.Address, "bmc", "", "address of the BMC: host, host:port or https URL")
	flags.StringVar(&f.bmc.Protocol, "bmc-protocol", "", "ipmi, redfish or exec (default ipmi)")
	flags.StringVar(&f.bmc.Secret, "bmc-secret", "", "secret with its user and password: NAME or PROJECT/NAME")
	flags.StringVar(&f.bmc.Command, "bmc-command", "", "program of protocol exec, of --power-commands of the heads")
	flags.BoolVar(&f.noBMC, "no-bmc", false, "forget the BMC")
	flags.DurationVar(&f.after, "takeover-after", 0, "take over after this time without a quorum: 30s to 1h")
	flags.StringSliceVar(&f.reach, "takeover-reach", nil, "IPv4 addresses of which one must respond")
	flags.BoolVar(&f.noTakeover, "no-takeover", false, "do not take over without an operator")
	for _, with := range []string{"bmc", "bmc-protocol", "bmc-secret", "bmc-command"} {
		c.MarkFlagsMutuallyExclusive("no-bmc", with)
	}
	c.MarkFlagsMutuallyExclusive("no-takeover", "takeover-after")
	c.MarkFlagsMutuallyExclusive("no-takeover", "takeover-reach")
	c.MarkFlagsOneRequired("bmc", "bmc-protocol", "bmc-secret", "bmc-command", "no-bmc", "takeover-after",
		"takeover-reach", "no-takeover")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

func (a *app) setHead(ctx context.Context, name string, f *headSettings) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	h, err := client.Of[trivet.Head](cl).Get(ctx, name)
	if err != nil {
		return noSuchHead(err, "set", name)
	}
	s, err := f.apply(h)
	if err != nil {
		return err
	}
	if h, err = cl.SetHead(ctx, name, s); err != nil {
		return err
	}
	if a.output != "table" {
		return a.showValue(h)
	}
	fmt.Fprintf(a.Out, "head/%s set\n", name)
	return nil
}

// apply returns the settings of a head as the flags change them.
func (f *headSettings) apply(h *trivet.Head) (s trivet.HeadSettings, err error) {
	s = trivet.HeadSettings{Revision: h.Revision, BMC: h.Spec.BMC, Takeover: h.Spec.Takeover}
	switch {
	case f.noBMC:
		s.BMC = nil
	case f.bmc != trivet.BMC{}:
		old := trivet.BMC{Protocol: "ipmi"}
		if s.BMC != nil {
			old = *s.BMC
		}
		s.BMC = &trivet.BMC{Protocol: cmp.Or(f.bmc.Protocol, old.Protocol), Address: cmp.Or(f.bmc.Address, old.Address),
			Secret: cmp.Or(f.bmc.Secret, old.Secret), Command: cmp.Or(f.bmc.Command, old.Command)}
	}
	if f.noTakeover {
		s.Takeover = nil
		return s, nil
	}
	if f.after == 0 && len(f.reach) == 0 {
		return s, nil
	}
	t := trivet.Takeover{}
	if s.Takeover != nil {
		t = *s.Takeover
	}
	t.After = cmp.Or(trivet.Duration(f.after), t.After)
	if len(f.reach) > 0 {
		t.Reach = nil
	}
	for _, text := range f.reach {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return s, &trivet.FieldError{Field: "--takeover-reach", Problem: fmt.Sprintf("%.80q is not an IPv4 address", text)}
		}
		t.Reach = append(t.Reach, addr)
	}
	s.Takeover = &t
	return s, nil
}
