package main

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"

	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/agent/installer"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
	"github.com/trivet-project/trivet/internal/agent/installer/osinit"
	"github.com/trivet-project/trivet/internal/agent/inventory"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
)

// stateDir is in the installer's memory: it outlives an agent's process, not the boot.
const stateDir = "/run/trivet"

// runInstaller is the agent in the installer OS, configured by the kernel's command line.
func runInstaller(ctx context.Context, env osinit.Env) (osinit.After, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: redact}))
	if env.LastOutput != "" {
		log.Warn("the previous agent of this boot failed", "restarts", env.Restarts, "output", env.LastOutput)
	}
	cfg, err := installerConfig(ctx, env, log)
	if err != nil {
		return osinit.Reboot, err
	}
	defer cfg.Journal.Close()
	ending, err := installer.Run(ctx, *cfg)
	if err != nil {
		return osinit.Reboot, err
	}
	log.Info("the agent has ended", "ending", ending)
	switch ending {
	case action.EndOff:
		return osinit.PowerOff, nil
	case action.EndKexec:
		return osinit.Kexec, nil
	default:
		return osinit.Reboot, nil // the next boot script decides what to boot
	}
}

func installerConfig(ctx context.Context, env osinit.Env, log *slog.Logger) (*installer.Config, error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, err
	}
	key, err := installer.LoadKey(stateDir)
	if err != nil {
		return nil, err
	}
	clock := &installer.Clock{}
	urls, trust := env.Cmdline.List("trivet.url"), env.Cmdline["trivet.ca"]
	heads, err := agentClient(installer.LoadHeads(stateDir), urls, trust, key, clock)
	if err != nil {
		return nil, err
	}
	root := os.DirFS("/")
	inv := inventory.Read(ctx, root)
	inventory.ReadHealth(ctx, inv.Disks, log)
	path := env.Cmdline["trivet.journal"]
	j, err := openJournal(path)
	if err != nil {
		return nil, err
	}
	work := &action.Env{
		Host:     &action.Machine{Dir: filepath.Join(stateDir, "mnt"), Avoid: avoid(path)},
		Dir:      filepath.Join(stateDir, "work"),
		Firmware: inv.Firmware, Fetch: (&blob.Fetcher{}).Fetch, LoadKernel: action.KexecLoad, Sys: root,
	}
	return &installer.Config{
		Client: heads, Do: work.Do, Machine: env.Cmdline["trivet.machine"], MAC: bootMAC(env),
		Token: env.Cmdline["trivet.token"],
		Key:   publicKey(key), BootID: env.BootID, Version: version, Inventory: inv,
		Journal: j, State: stateDir, Clock: clock, Log: log,
	}, nil
}

// agentClient returns a client of the heads that signs requests with the agent's key.
func agentClient(
	known installer.Heads, urls []string, trust string, key ed25519.PrivateKey, clock *installer.Clock,
) (*client.AgentAPI, error) {
	c, err := client.New(client.Config{Endpoints: urls, Trust: trust, UserAgent: "trivet-agent/" + version})
	if err != nil {
		return nil, err
	}
	c.Learn(known.URLs)
	c.Follow(known.Trust)
	sign := func(req *http.Request, body []byte, machine string) {
		auth.SignRequest(req, body, machine, key, clock.Now())
	}
	return c.AgentAPI(sign, clock.Learn), nil
}

func publicKey(key ed25519.PrivateKey) string {
	return base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
}

func openJournal(path string) (*journal.Journal, error) {
	if path == "" {
		return journal.Memory(), nil
	}
	j, err := journal.Open(path)
	if err != nil {
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	return j, nil
}

func avoid(journal string) []string {
	if journal == "" {
		return nil
	}
	return []string{journal}
}

func bootMAC(env osinit.Env) string {
	if mac := env.Cmdline["trivet.mac"]; mac != "" {
		return mac
	}
	return env.MAC
}
