package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cli"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/server"
)

func serverCommand() *cobra.Command {
	cfg := headConfig{Config: server.Config{Version: version}}
	var level, format, config string
	c := &cobra.Command{
		Use:   "server",
		Short: "Run a head",
		Long: "Run a head: the store, the API and the boot services.\n\n" +
			"The first start creates the cluster, its CA and an administrator, whose credentials are in\n" +
			"DATA-DIR/admin.yaml. A head that joins a cluster creates its own credentials.",
		Example: "  # serve DHCP on eth1; the API and boot services on all addresses\n" +
			"  trivet server --data-dir /var/lib/trivet --dhcp eth1\n\n" +
			"  # without DHCP: another DHCP server directs machines to this head\n" +
			"  trivet server --advertise 10.0.0.5\n\n" +
			"  # the same from a file, whose keys are the names of the flags: \"dhcp: eth1\"\n" +
			"  trivet server --config /etc/trivet/config.yaml\n\n" +
			"  # join a cluster; create the token with: trivet head token\n" +
			"  trivet server --dhcp eth1 --join https://10.0.0.5:7480 --token sha256:...",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err = readConfig(cmd.LocalNonPersistentFlags(), config); err == nil {
				cfg.Log, err = newLogger(os.Stderr, level, format)
			}
			if err == nil {
				err = runServer(cmd.Context(), cfg)
			}
			if err != nil {
				setIssue(cfg.Issue, err)
			}
			return err
		},
	}
	networkFlags(c.Flags(), &cfg.Config)
	clusterFlags(c.Flags(), &cfg)
	c.Flags().StringVar(&config, "config", "", "file of YAML with flags, NAME: VALUE; those of the command line win")
	c.Flags().StringVar(&level, "log-level", "info", "log level: debug, info, warn or error")
	c.Flags().StringVar(&format, "log-format", "text", "log format: text or json")
	return c
}

// headConfig is the configuration of a head and of its process.
type headConfig struct {
	server.Config
	Issue string // file of the login message; empty: none
}

// confirmTimeout is how long a new program may take until it works. It includes a wait for a quorum.
const confirmTimeout = 3 * time.Minute

var errNotConfirmed = fmt.Errorf("it did not work within %s", confirmTimeout)

func runServer(ctx context.Context, cfg headConfig) error {
	tuneGC()
	raiseFileLimit()
	programs := ownPrograms(cfg.Dir)
	cfg.Programs = programs
	if programs.Unconfirmed() {
		cfg.Log.Info("this program was brought by an upgrade, and must confirm that it works", "version", cfg.Version)
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		defer time.AfterFunc(confirmTimeout, func() {
			if programs.Unconfirmed() {
				cancel(errNotConfirmed)
			}
		}).Stop()
	}
	err := serve(ctx, cfg.Config, func() { setIssue(cfg.Issue, nil) })
	failure := notConfirmed(ctx)
	if failure == nil && ctx.Err() == nil && !errors.Is(err, server.ErrRestart) { // it was not stopped by a signal
		failure = err
	}
	if failure != nil && programs.Unconfirmed() {
		cfg.Log.Error("this program is given up: the head goes back to its former one", "error", failure)
		if err := programs.GiveUp(failure.Error()); err != nil {
			return errors.Join(failure, err)
		}
		return execNext(programs)
	}
	if errors.Is(err, server.ErrRestart) || notConfirmed(ctx) != nil { // it may have been confirmed a moment too late
		return execNext(programs)
	}
	return err
}

// notConfirmed returns errNotConfirmed where that ended ctx.
func notConfirmed(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errNotConfirmed) {
		return errNotConfirmed
	}
	return nil
}

// serve runs a head until it ends. It calls started when the head runs, and returns ErrRestart where this process is to
// replace itself.
func serve(ctx context.Context, cfg server.Config, started func()) error {
	s, err := server.New(ctx, cfg)
	switch {
	case errors.Is(err, server.ErrNotJoined): // a script must not continue as if it had joined
		cfg.Log.Info("not joined yet; restart with the same token", "error", err)
		return cli.ExitError(130)
	case ctx.Err() != nil && err != nil: // stopped by a signal during the start
		cfg.Log.Info("stopped before it was ready", "error", err)
		return nil
	case err != nil:
		return err
	}
	started()
	err = s.Run(ctx)
	restart := errors.Is(err, server.ErrRestart)
	if restart {
		err = nil
	}
	if !errors.Is(err, server.ErrStuck) {
		err = errors.Join(err, s.Close())
	}
	if err == nil {
		cfg.Log.Info("stopped", "restart", restart && ctx.Err() == nil)
	}
	if restart && err == nil && ctx.Err() == nil {
		return server.ErrRestart
	}
	if errors.Is(err, server.ErrStuck) { // for a report of the error; the program exits without it
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
	return err
}

// networkFlags are the flags of where a head serves machines and clients.
func networkFlags(f *pflag.FlagSet, cfg *server.Config) {
	f.StringVar(&cfg.API, "api", server.DefaultAPI, "listen address of the API, over TLS")
	f.StringVar(&cfg.Boot, "boot", server.DefaultBoot, "listen address of the boot services, over HTTP and HTTPS")
	f.StringVar(&cfg.TFTP, "tftp", server.DefaultTFTP, `listen address of TFTP; "" disables it`)
	f.StringSliceVar(&cfg.DHCPInterfaces, "dhcp", nil, "interfaces on which DHCP is served")
	f.StringVar(&cfg.DHCPAddress, "dhcp-listen", "", "listen address of DHCP for relays only, such as 10.0.0.5:67")
	f.StringVar(&cfg.VIP, "vip", "", "virtual address shared by the heads, such as 10.0.0.9/24; "+
		"an unused address of this head's network, the same for all heads")
	f.StringVar(&cfg.VIPInterface, "vip-interface", "",
		"interface of the virtual address (default: the interface of --dhcp)")
	f.StringSliceVar(&cfg.Advertise, "advertise", nil,
		"addresses or names at which machines and clients reach this head")
	f.IntVar(&cfg.PerAddress, "connections-per-address", server.DefaultPerAddress,
		"connections that one unauthenticated address may have at a port; it may begin four times as many at once, "+
			"and a quarter of them a second")
	f.Var(&prefixes{&cfg.Shared}, "shared-addresses", "addresses and networks of load balancers and NAT gateways, "+
		"which many callers share: they have no limit of one address")
	f.StringVar(&cfg.IPXEDir, "ipxe", "", "directory with the iPXE programs (default: that of Debian's package ipxe)")
}

// clusterFlags are the flags of a head's data and of its place in the cluster.
func clusterFlags(f *pflag.FlagSet, cfg *headConfig) {
	f.StringVar(&cfg.Dir, "data-dir", server.DefaultDir, "data directory")
	f.StringVar(&cfg.Name, "name", "", "name of the head, set at the first start (default "+server.DefaultName+")")
	f.StringSliceVar(&cfg.Join, "join", nil, "API URLs of the cluster to join at the first start")
	f.StringVar(&cfg.JoinToken, "token", "",
		"join token from trivet head token (preferred: environment variable "+joinToken+")")
	f.BoolVar(&cfg.Rejoin, "rejoin", false, "join as a new head even if the data directory is not empty; "+
		"existing data is moved to DATA-DIR/aside")
	f.BoolVar(&cfg.Recover, "recover", false, "a head without data joins the living cluster of --join, or one that "+
		"answers on a network of --dhcp, and never creates one; it needs a token; with data the flag has no effect")
	f.BoolVar(&cfg.NewCluster, "new-cluster", false,
		"create a new cluster even if another one answers on a network of --dhcp")
	f.StringVar(&cfg.Audit, "audit", "", "file to which this head appends the audit log as lines of JSON, or "+
		server.AuditSyslog+"; the log is also in the store: trivet audit")
	f.StringVar(&cfg.PowerCommands, "power-commands", server.DefaultPowerCommands,
		"directory of the programs of machines whose spec.bmc.protocol is exec")
	f.StringVar(&cfg.BackupDir, "backup-dir", "", "directory that scheduled backups are written below: those of "+
		"spec.directory; it should be on a disk that all heads have mounted")
	f.DurationVar(&cfg.Drain, "drain", 0,
		"how long to serve requests after SIGTERM while reporting not ready, for load balancers")
	f.DurationVar(&cfg.Heartbeat, "heartbeat", 0, "heartbeat interval of the store; increase it for slow disks or links; "+
		"must be the same on all heads (default 50ms: a failed leader is detected after 0.3 to 0.6 s)")
	f.BoolVar(&cfg.NoUpgrades, "no-upgrades", false, "trivet upgrade does not replace this head's program, but waits "+
		"until that was done on its host")
	f.StringVar(&cfg.Issue, "issue", "", "file to which this head writes why it does not run, for the login message of "+
		"its host (issue(5)); it is removed when the head runs")
	f.TextVar(&cfg.StoreQuota, "store-quota", trivet.ByteSize(cluster.DefaultQuota),
		"how much of the store may be in use; the same on all heads; writes that make it larger are refused from 90 % on")
	f.TextVar((*quota)(&cfg.BlobQuota), "blob-quota", quota(0),
		"how much of the disk images and platforms may take; more is refused (default: all but a reserve for the store)")
}
