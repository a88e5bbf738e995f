package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet/internal/cli"
	"github.com/trivet-project/trivet/internal/server"
)

func serverCommand() *cobra.Command {
	cfg := server.Config{Version: version}
	var level, format string
	c := &cobra.Command{
		Use:   "server",
		Short: "Run a head",
		Long: "Run a head: the store, the API, and what machines boot from.\n\n" +
			"The first start makes the cluster, its CA and an administrator, whose credential is in DATA-DIR/admin.yaml; each head that joins makes its own.",
		Example: "  # serve machines on eth1; the API and boot doors on all addresses\n" +
			"  trivet server --data-dir /var/lib/trivet --dhcp eth1\n\n" +
			"  # no DHCP of its own: another server points machines here\n" +
			"  trivet server --advertise 10.0.0.5\n\n" +
			"  # join a cluster as its next head; the token comes from: trivet head token\n" +
			"  trivet server --dhcp eth1 --join https://10.0.0.5:7480 --token sha256:...",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Log, err = newLogger(level, format); err != nil {
				return err
			}
			collectLess()
			s, err := server.New(cmd.Context(), cfg)
			switch {
			case errors.Is(err, server.ErrNotJoined): // the operator's script must not go on as if it had
				cfg.Log.Info("start it again with the same token", "error", err)
				return cli.ExitError(130)
			case cmd.Context().Err() != nil && err != nil: // stopped while it started, as it was told
				cfg.Log.Info("stopped before it was ready", "at", err)
				return nil
			case err != nil:
				return err
			}
			defer s.Close()
			return s.Run(cmd.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.Dir, "data-dir", server.DefaultDir, "where the head keeps its data")
	f.StringVar(&cfg.Name, "name", "", "the head's name, given at the first start (default "+server.DefaultName+")")
	f.StringVar(&cfg.API, "api", server.DefaultAPI, "listen here for the API, over TLS")
	f.StringVar(&cfg.Boot, "boot", server.DefaultBoot, "listen here for machines that boot, over HTTP")
	f.StringVar(&cfg.TFTP, "tftp", server.DefaultTFTP, `listen here for TFTP; "" for none`)
	f.StringSliceVar(&cfg.DHCPInterfaces, "dhcp", nil, "serve DHCP on these interfaces")
	f.StringVar(&cfg.DHCPAddress, "dhcp-listen", "", "serve DHCP to relays on this address instead, such as 10.0.0.5:67")
	f.StringVar(&cfg.VIP, "vip", "", "an address that the heads share, such as 10.0.0.9/24: one of this head's network that no box has by "+
		"itself; give it to all of them")
	f.StringVar(&cfg.VIPInterface, "vip-interface", "", "where this head has the shared address (default: the interface of --dhcp)")
	f.StringSliceVar(&cfg.Advertise, "advertise", nil, "addresses or names of this head for machines and clients")
	f.StringSliceVar(&cfg.Join, "join", nil, "API URLs of heads whose cluster this one joins at its first start")
	f.StringVar(&cfg.JoinToken, "token", os.Getenv("TRIVET_JOIN_TOKEN"), "token for --join, from trivet head token; better: TRIVET_JOIN_TOKEN")
	f.Lookup("token").DefValue = ""
	f.BoolVar(&cfg.Rejoin, "rejoin", false, "join as a new head though the folder has data, which are set aside (kept in DATA-DIR/aside)")
	f.BoolVar(&cfg.NewCluster, "new-cluster", false, "make a new cluster though another one answers on a network of --dhcp")
	f.DurationVar(&cfg.Drain, "drain", 0, "serve this long after SIGTERM, not ready any more, so that load balancers turn away first")
	f.DurationVar(&cfg.Heartbeat, "heartbeat", 0, "how often the store's leader tells the other heads that it is there; more for slow disks "+
		"or links, the same for all heads (default 50ms: a head that dies is missed after 0.3 to 0.6 s)")
	f.StringVar(&cfg.IPXEDir, "ipxe", "", "folder with iPXE's programs (default: where Debian's package ipxe has them)")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&format, "log-format", "text", "text or json")
	return c
}

// collectLess has a head's garbage collected half as often as Go does by itself, unless GOGC says otherwise: a tenth of the
// processor time of a run for some 20 KB of memory an agent.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
}

func newLogger(level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: write debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, opts)), nil
	}
	return nil, fmt.Errorf("--log-format %q: write text or json", format)
}
